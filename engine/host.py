"""What this computer has to give: processor cores and memory, as far as this process may use them.

Read before torch is imported, so it must not import torch. A container sees the whole machine in
`/proc`, but may be allowed a part of it: affinity and cgroup limits are taken into account.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number near 2**63


def cores(environ: Mapping[str, str] = os.environ, cgroup_root: Path = CGROUP_ROOT) -> int:
    """Physical cores this process may keep busy at once, at least 1.

    The least of: the machine's physical cores, the processor affinity, the cgroup's CPU quota, and
    the environment's `CPU_CORES`, which Hugging Face Spaces sets to what a Space has rented.
    """
    limits: list[float] = [len(affinity())]
    if physical := psutil.cpu_count(logical=False):
        limits.append(physical)
    if (quota := cpu_quota(cgroup_root)) is not None:
        limits.append(quota)
    rented = environ.get("CPU_CORES", "")
    with contextlib.suppress(ValueError):  # unset, or not a number to go by
        limits.append(float(rented))
    return max(1, int(min(limit for limit in limits if limit > 0)))


def affinity() -> tuple[int, ...]:
    """Ids of the logical processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_quota(cgroup_root: Path = CGROUP_ROOT) -> float | None:
    """Processors' worth of time the cgroup allows, such as 2.5, or None without a limit."""
    quota_and_period = _read(cgroup_root / "cpu.max").split()
    if not quota_and_period:
        quota_and_period = [
            _read(cgroup_root / "cpu" / "cpu.cfs_quota_us"),
            _read(cgroup_root / "cpu" / "cpu.cfs_period_us"),
        ]
    try:
        quota, period = (int(value) for value in quota_and_period)
    except ValueError:
        return None  # "max", or no cgroup here
    return quota / period if quota > 0 and period > 0 else None


def free_memory(cgroup_root: Path = CGROUP_ROOT) -> int:
    """Bytes of main memory that can be taken without swapping or reaching the cgroup's limit."""
    available = int(psutil.virtual_memory().available)
    headroom = _cgroup_headroom(cgroup_root)
    return available if headroom is None else max(0, min(available, headroom))


def _cgroup_headroom(cgroup_root: Path) -> int | None:
    """Bytes left under the cgroup's memory limit; the file cache counts as free, as it yields."""
    for folder, limit_name, usage_name in (
        (cgroup_root, "memory.max", "memory.current"),
        (cgroup_root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit, usage = int(_read(folder / limit_name)), int(_read(folder / usage_name))
        except ValueError:
            continue  # "max", or not this version of cgroups
        if limit < _UNLIMITED:
            return limit - usage + _inactive_file_bytes(folder)
    return None


def _inactive_file_bytes(folder: Path) -> int:
    for line in _read(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
