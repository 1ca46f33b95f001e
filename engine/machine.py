"""What to call the computer that something was measured on.

Model and architecture only: no host name, no user and no address, since it is written into files
that people pass on.
"""

from __future__ import annotations

import platform
from pathlib import Path

from engine import host

_CPU_INFO = Path("/proc/cpuinfo")


def describe_machine(cpu_info: Path = _CPU_INFO) -> str:
    """The machine in words, such as "AMD EPYC 9B14, 2 cores, Linux x86_64"."""
    cores = host.cores()
    parts = (
        _processor(cpu_info),
        f"{cores} core{'' if cores == 1 else 's'}",
        f"{platform.system()} {platform.machine()}",
    )
    return ", ".join(part for part in parts if part)


def _processor(cpu_info: Path) -> str:
    """The processor's name, or nothing where the system does not tell."""
    try:
        lines = cpu_info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return ""
