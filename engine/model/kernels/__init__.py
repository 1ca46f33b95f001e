"""Compiled CPU kernels, built once where a compiler is there and never required.

They are kept in the cache folder, one build for each processor and version of torch; the operators
appear as `torch.ops.phasescope`. Knows nothing of models and steps.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.backends import cpu
from torch.utils import cpp_extension

from engine.core.errors import PhaseScopeError
from engine.model.cache import cache_folder, cached_folder

__all__ = ["available", "build_key", "has_tiles", "load_kernels"]

log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_SOURCE = _FOLDER / "kernels.cpp"
_LIBRARY = "kernels.so"
# Errors of arithmetic are looked for in the logits; flags and traps for them cost vector code.
_FLAGS = (
    *("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-fopenmp"),
    *("-fno-math-errno", "-fno-trapping-math", "-Wno-unknown-pragmas"),
)
_LIBRARIES = ("-lc10", "-ltorch_cpu", "-ltorch")
_COMPILE_SECONDS = 300


def available() -> bool:
    """Whether the kernels have been loaded into this process."""
    return hasattr(torch.ops.phasescope, "decode_attention")


def has_tiles() -> bool:
    """Whether the kernels are loaded and multiply bfloat16 on this processor's tiles (AMX)."""
    return available() and bool(torch.ops.phasescope.has_tiles())


def load_kernels(root: Path | None = None) -> bool:
    """Load the kernels, compiling them under `root` (default: the cache folder) if need be.

    False, with the reason in the log, where they cannot be compiled or loaded. Other processes that
    need them wait for the one that compiles.
    """
    if available():
        return True
    try:
        folder = cached_folder(f"kernels-{build_key()}", _compile, root or cache_folder())
        # torch leaves this function, and the compiler's name below, without types.
        torch.ops.load_library(str(folder / _LIBRARY))  # type: ignore[no-untyped-call]
    except (PhaseScopeError, OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        log.info("Serving without compiled kernels: %s", str(reason).strip()[-2000:])
        return False
    return True


def _compile(folder: Path) -> None:
    compiler: str = cpp_extension.get_cxx_compiler()  # type: ignore[no-untyped-call]
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    places = [f"-L{path}" for path in cpp_extension.library_paths()]
    command: Sequence[str] = (
        *(compiler, *_FLAGS, *includes, str(_SOURCE), *places, *_LIBRARIES),
        *("-o", str(folder / _LIBRARY)),
    )
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_COMPILE_SECONDS)


def build_key() -> str:
    """Differs wherever another build is needed: a home folder may be shared between machines."""
    digest = hashlib.blake2b(digest_size=12)
    sources = [path.read_text() for path in sorted(_FOLDER.glob("*.[ch]*"))]
    for part in (*sources, torch.__version__, repr(_FLAGS), _processor()):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _processor() -> str:
    """The processor's instruction sets, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    described = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {cpu.get_cpu_capability()} {described}"
