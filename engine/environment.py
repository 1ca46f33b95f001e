"""What arithmetic libraries read from the environment when they are imported.

Must be set before torch is, so nothing here may import it.
"""

from __future__ import annotations

import os

from engine import host

# Spinning OpenMP threads take the cores that the web server and the engine's own Python need:
# decoding becomes several times slower once somebody watches.
_PASSIVE_WAITING = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
}
# A step reads all weights: with pages of 2 MiB instead of 4 KiB it looks up far fewer addresses.
_LARGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
_QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}


def prepare(threads: int = 0) -> None:
    """Set thread count (0: one a core) and waiting; what a person has set stays."""
    count = {"OMP_NUM_THREADS": str(threads or host.cores())}
    for name, value in (_PASSIVE_WAITING | _LARGE_PAGES | _QUIET | count).items():
        os.environ.setdefault(name, value)
