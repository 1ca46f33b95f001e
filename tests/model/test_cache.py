"""The cache folder: where it is, and that an entry is whole, made once, and anew if damaged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.core.errors import PhaseScopeError
from engine.model import cache

# Says when it has begun to build, and takes its time over it.
BUILDER = """
import sys, time
from pathlib import Path
from engine.model.cache import cached_folder

def build(folder):
    print("building", flush=True)
    (folder / "weights").write_bytes(b"w" * 100)
    time.sleep(float(sys.argv[2]))
    (folder / "config").write_text("c")

print(cached_folder("entry", build, Path(sys.argv[1])), flush=True)
"""


def start_builder(root: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(root), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def build_small(folder: Path) -> None:
    (folder / "weights").write_bytes(bytes(range(256)) * 20_000)
    (folder / "config").write_text("{}")


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A folder in which nothing can be made, whoever tries: it is a file."""
    (tmp_path / "blocked").write_text("")
    return tmp_path / "blocked"


def test_the_variable_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert cache.cache_folder({"PHASESCOPE_CACHE": str(folder)}) == folder
    assert folder.is_dir()


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folders of Linux")
def test_the_platforms_folder_is_next(tmp_path: Path) -> None:
    xdg = {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path)}
    assert cache.cache_folder(xdg) == tmp_path / "xdg" / "phasescope"
    assert cache.cache_folder({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "phasescope"


def test_a_home_that_cannot_be_written_leads_to_the_temporary_folder(
    blocked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    home = {name: str(blocked) for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")}
    folder = cache.cache_folder(home)
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700


def test_nowhere_to_write_names_the_variable_and_what_was_tried(
    blocked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(blocked))
    home = {name: str(blocked) for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")}
    with pytest.raises(
        PhaseScopeError, match="set PHASESCOPE_CACHE to a folder that can"
    ) as caught:
        cache.cache_folder(home)
    assert str(blocked) in str(caught.value)


def test_a_chosen_folder_that_cannot_be_written_is_an_error(blocked: Path) -> None:
    with pytest.raises(PhaseScopeError, match="named by PHASESCOPE_CACHE cannot be written"):
        cache.cache_folder({"PHASESCOPE_CACHE": str(blocked / "inside")})


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root")
def test_another_users_folder_is_not_trusted(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(PhaseScopeError, match="belongs to another user"):
        cache.cache_folder({"PHASESCOPE_CACHE": str(tmp_path)})


def test_an_entry_is_built_once(tmp_path: Path) -> None:
    entry = cache.cached_folder("entry", build_small, tmp_path)
    again = cache.cached_folder("entry", lambda folder: pytest.fail("built twice"), tmp_path)
    assert entry == again
    assert (entry / "config").read_text() == "{}"


def test_two_processes_build_once_and_both_have_it(tmp_path: Path) -> None:
    builders = [start_builder(tmp_path, 1.0) for _ in range(2)]
    outputs = [builder.communicate(timeout=30)[0] for builder in builders]
    assert sum(output.count("building") for output in outputs) == 1
    assert all(output.splitlines()[-1] == str(tmp_path / "entry") for output in outputs)


def test_a_killed_build_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    builder = start_builder(tmp_path, 60.0)
    assert builder.stdout is not None
    assert builder.stdout.readline() == "building\n"
    builder.send_signal(signal.SIGKILL)
    builder.communicate(timeout=30)
    assert not (tmp_path / "entry").exists()
    assert list(tmp_path.glob(".entry.*"))

    started = time.monotonic()
    entry = cache.cached_folder("entry", build_small, tmp_path)
    assert time.monotonic() - started < 5
    assert cache.is_complete(entry)
    assert not list(tmp_path.glob(".entry.*"))


@pytest.mark.parametrize("damage", ["cut", "zeroed", "gone", "no manifest", "bad manifest"])
def test_a_damaged_entry_is_built_anew(tmp_path: Path, damage: str) -> None:
    entry = cache.cached_folder("entry", build_small, tmp_path)
    weights = entry / "weights"
    whole = weights.read_bytes()
    if damage == "cut":
        weights.write_bytes(whole[:-1])
    elif damage == "zeroed":
        weights.write_bytes(whole[:-4096] + bytes(4096))
    elif damage == "gone":
        weights.unlink()
    elif damage == "no manifest":
        (entry / cache.MANIFEST).unlink()
    else:
        (entry / cache.MANIFEST).write_text("[1, 2")
    assert not cache.is_complete(entry)
    assert cache.cached_folder("entry", build_small, tmp_path) == entry
    assert weights.read_bytes() == whole
    assert cache.is_complete(entry)


def test_a_failing_build_passes_its_error_on_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        build_small(folder)
        raise KeyError("no such tensor")

    with pytest.raises(KeyError, match="no such tensor"):
        cache.cached_folder("entry", fail, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["entry.lock"]


def test_a_full_disk_is_said_before_work_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=3 << 20)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(PhaseScopeError, match=r"500 MiB needed, 3 MiB free.*PHASESCOPE_CACHE"):
        cache.cached_folder(
            "entry", lambda folder: cache.require_space(folder, 500 << 20), tmp_path
        )
