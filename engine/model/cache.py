"""Folders that are costly to make and are kept: made once, by one process, whole or not at all.

An entry is written beside its place, flushed to disk, listed in a manifest and renamed into place,
so that what is there under its name was finished. Knows nothing of models.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock

from engine.core.errors import PhaseScopeError

CACHE_VARIABLE = "PHASESCOPE_CACHE"
MANIFEST = "complete.json"
_SAMPLE_BYTES = 1 << 20


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder to keep things in, created if need be.

    `PHASESCOPE_CACHE` if set; else the platform's cache folder; else, where that cannot be written
    (an ordinary user in a container, a read-only home), one under the temporary folder. Raises
    `PhaseScopeError` naming the variable when none can be written.
    """
    if chosen := environ.get(CACHE_VARIABLE):
        folder = Path(chosen).expanduser()
        if reason := _why_not_writable(folder):
            raise PhaseScopeError(
                f"The cache folder {folder} named by {CACHE_VARIABLE} cannot be written "
                f"({reason}); set {CACHE_VARIABLE} to a folder that can."
            )
        return folder
    tried = []
    for folder in (_platform_folder(environ), _temporary_folder()):
        reason = _why_not_writable(folder)
        if reason is None:
            return folder
        tried.append(f"{folder}: {reason}")
    raise PhaseScopeError(
        f"No folder for converted models can be written ({'; '.join(tried)}); "
        f"set {CACHE_VARIABLE} to a folder that can."
    )


def cached_folder(name: str, build: Callable[[Path], None], root: Path) -> Path:
    """The finished entry `name` under `root`, built by `build(empty_folder)` if there is none.

    Other processes that ask for the same entry wait for the one that builds it. An entry whose
    files are missing or not as they were written is built anew. Raises `PhaseScopeError` when
    writing fails; what else `build` raises is passed on, and leaves nothing behind.
    """
    entry = root / name
    if is_complete(entry):
        return entry
    try:
        with FileLock(root / f"{name}.lock"):
            if not is_complete(entry):
                _build(entry, build)
    except OSError as error:
        raise PhaseScopeError(
            f"Could not write to the cache folder {root} ({error.strerror or error}); "
            f"free some space or set {CACHE_VARIABLE} to another folder."
        ) from error
    return entry


def require_space(folder: Path, needed_bytes: int) -> None:
    """Raise `OSError` at once if the disk of `folder` has less than `needed_bytes` free."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise OSError(
            errno.ENOSPC,
            f"{needed_bytes / 2**20:,.0f} MiB needed, {free_bytes / 2**20:,.0f} MiB free",
        )


def is_complete(entry: Path) -> bool:
    """Whether every file that was finished in `entry` is still there and as it was written."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        return all(file_digest(entry / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def file_digest(path: Path) -> str:
    """A hash of a file's size and of one MiB at its start, its middle and its end.

    Reading the whole of a large model at each start would take longer than loading it; a cut or
    zeroed file and a different model are told apart all the same.
    """
    size = path.stat().st_size
    digest = hashlib.blake2b(size.to_bytes(8, "little"), digest_size=16)
    with path.open("rb") as file:
        for offset in sorted({0, max(0, size // 2), max(0, size - _SAMPLE_BYTES)}):
            file.seek(offset)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _build(entry: Path, build: Callable[[Path], None]) -> None:
    """Make the entry; the caller holds its lock, so leftovers of it belong to nobody."""
    for leftover in (entry, *entry.parent.glob(f".{entry.name}.*")):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
    try:
        build(unfinished)
        written = sorted(path for path in unfinished.rglob("*") if path.is_file())
        manifest = {path.relative_to(unfinished).as_posix(): file_digest(path) for path in written}
        (unfinished / MANIFEST).write_text(json.dumps(manifest))
        for path in (*written, unfinished / MANIFEST):
            _flush(path)
        _flush(unfinished)
        unfinished.rename(entry)
        _flush(entry.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _flush(path: Path) -> None:
    """Wait until a file or folder is on disk; folders cannot be opened on Windows."""
    if path.is_dir() and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _platform_folder(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    if sys.platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "phasescope"


def _temporary_folder() -> Path:
    owner = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"phasescope-{owner}"


def _why_not_writable(folder: Path) -> str | None:
    """The reason why files cannot be made in `folder`, or None if they can."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_uid not in (os.getuid(), 0):
            # In a shared temporary folder anybody could have put a model of theirs there.
            return "it belongs to another user"
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
