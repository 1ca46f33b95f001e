"""Processor and memory facts: what a container or a Space may use, not what the machine has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine import host


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_importing_the_module_does_not_import_torch() -> None:
    code = "import sys, engine.host; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
    ],
)
def test_cpu_quota_of_both_cgroup_versions(
    tmp_path: Path, files: dict[str, str], expected: float | None
) -> None:
    assert host.cpu_quota(write(tmp_path, files)) == expected


def test_cores_are_the_least_of_all_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "affinity", lambda: tuple(range(16)))
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 8)
    assert host.cores({}, tmp_path) == 8
    assert host.cores({"CPU_CORES": "2"}, tmp_path) == 2
    assert host.cores({"CPU_CORES": "many"}, tmp_path) == 8
    write(tmp_path, {"cpu.max": "350000 100000"})
    assert host.cores({}, tmp_path) == 3
    monkeypatch.setattr(host, "affinity", lambda: (5,))
    assert host.cores({"CPU_CORES": "2"}, tmp_path) == 1


def test_a_fraction_of_a_processor_is_still_one_core(tmp_path: Path) -> None:
    assert host.cores({}, write(tmp_path, {"cpu.max": "20000 100000"})) == 1


def test_free_memory_is_what_the_cgroup_leaves(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "memory.max": str(300 << 20),
            "memory.current": str(250 << 20),
            "memory.stat": f"anon 7\ninactive_file {20 << 20}\n",
        },
    )
    assert host.free_memory(tmp_path) == 70 << 20


def test_free_memory_is_never_below_zero(tmp_path: Path) -> None:
    write(tmp_path, {"memory.max": "1000", "memory.current": "5000"})
    assert host.free_memory(tmp_path) == 0


def test_free_memory_without_a_limit_is_the_machines(tmp_path: Path) -> None:
    write(tmp_path, {"memory.max": "max", "memory.current": "5000"})
    write(tmp_path, {"memory/memory.limit_in_bytes": str(0x7FFFFFFFFFFFF000)})
    free = host.free_memory(tmp_path)
    assert free == pytest.approx(psutil.virtual_memory().available, rel=0.2)
