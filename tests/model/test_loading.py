"""Loading models: what comes back, honest progress, and sentences for what cannot be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from engine import host
from engine.core.errors import ModelNotFound, ModelNotServable
from engine.model import loading
from engine.model.loading import LoadedModel, load
from engine.model.progress import Progress
from engine.model.sources import ModelSource
from tests.model.tiny_gguf import tiny_llama, write_gguf

CPU = torch.device("cpu")


def save(model: PreTrainedModel, folder: Path, **options: object) -> Path:
    words = {f"w{index}": index for index in range(model.config.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    model.save_pretrained(folder, **options)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def tiny_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=48)
    ).eval()


def load_folder(
    folder: Path, dtype: torch.dtype = torch.float32, seen: list[Progress] | None = None
) -> LoadedModel:
    reports: list[Progress] = [] if seen is None else seen
    return load(ModelSource("folder", str(folder)), CPU, dtype, reports.append)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tiny_llama(tied=False), tmp_path / "tiny")


def test_a_folder_gives_the_model_that_was_saved(folder: Path) -> None:
    original = tiny_llama(tied=False)
    loaded = load_folder(folder)
    ids = torch.arange(3, 30)[None]
    with torch.inference_mode():
        assert torch.equal(loaded.model(ids).logits, original(ids).logits)
    assert not loaded.model.training
    assert loaded.name == "tiny"
    assert loaded.context_length == 128
    assert loaded.num_parameters == sum(one.numel() for one in original.parameters())
    assert loaded.weights_bytes == 4 * loaded.num_parameters
    assert loaded.generation_config.eos_token_id == 2
    assert loaded.model.generation_config is loaded.generation_config
    assert loaded.tokenizer("w7").input_ids == [7]


def test_gpt2_with_tied_weights_counts_them_once(tmp_path: Path) -> None:
    original = tiny_gpt2()
    loaded = load_folder(save(original, tmp_path / "gpt2"))
    assert loaded.num_parameters == sum(one.numel() for one in original.parameters())
    assert loaded.model.lm_head.weight is loaded.model.transformer.wte.weight
    assert loaded.context_length == 48


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_converted_as_they_are_read(folder: Path, dtype: torch.dtype) -> None:
    loaded = load_folder(folder, dtype)
    assert {one.dtype for one in loaded.model.parameters()} == {dtype}
    assert loaded.weights_bytes == 2 * loaded.num_parameters


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "50KB"}])
def test_progress_counts_every_stored_byte_in_order(
    tmp_path: Path, options: dict[str, object]
) -> None:
    original = tiny_llama(tied=False)
    seen: list[Progress] = []
    load_folder(save(original, tmp_path / "tiny", **options), torch.bfloat16, seen)
    stored = sum(one.nbytes for one in original.parameters())
    *steps, last = seen
    done = [one.done_bytes for one in steps]
    assert {(one.stage, one.total_bytes) for one in steps} == {("loading", stored)}
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, stored)
    assert len(set(done)) == 1 + len(original.state_dict())
    assert last == Progress("warming", 0, 0)


def test_progress_reaches_its_total_when_tensors_are_left_unread(tmp_path: Path) -> None:
    model = tiny_gpt2()
    folder = save(model, tmp_path / "gpt2")
    state = {**model.state_dict(), "unused.weight": torch.zeros(1000)}
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    seen: list[Progress] = []
    load_folder(folder, torch.float32, seen)
    assert seen[-2].done_bytes == seen[-2].total_bytes > 4000


def test_older_checkpoints_are_loaded_without_running_their_code(tmp_path: Path) -> None:
    original = tiny_llama(tied=False)
    folder = save(original, tmp_path / "old")
    (folder / "model.safetensors").unlink()
    torch.save(original.state_dict(), folder / "pytorch_model.bin")
    assert torch.equal(load_folder(folder).model.lm_head.weight, original.lm_head.weight)

    torch.save({"lm_head.weight": Path("/")}, folder / "pytorch_model.bin")
    with pytest.raises(ModelNotServable, match=r"pytorch_model.bin holds more than tensors"):
        load_folder(folder)


def test_the_weights_do_not_follow_the_file(folder: Path) -> None:
    loaded = load_folder(folder)
    before = loaded.model.lm_head.weight.clone()
    file = folder / "model.safetensors"
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(bytes(file.stat().st_size - 4096))
    assert torch.equal(loaded.model.lm_head.weight, before)


def test_fingerprints_tell_weights_and_dtypes_apart(tmp_path: Path) -> None:
    one = save(tiny_llama(0), tmp_path / "one")
    other = save(tiny_llama(1), tmp_path / "other")
    copy = shutil.copytree(one, tmp_path / "copy")
    fingerprints = [
        load_folder(one).fingerprint,
        load_folder(other).fingerprint,
        load_folder(one, torch.bfloat16).fingerprint,
    ]
    assert len(set(fingerprints)) == 3
    assert load_folder(copy).fingerprint == fingerprints[0]


def test_the_folders_generation_config_is_kept(folder: Path) -> None:
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [5, 6], "temperature": 0.5, "do_sample": True}))
    assert load_folder(folder).generation_config.eos_token_id == [5, 6]
    path.write_text(json.dumps({"temperature": 0.5, "do_sample": True}))
    assert load_folder(folder).generation_config.eos_token_id == 2
    path.unlink()
    assert load_folder(folder).generation_config.eos_token_id == 2


def test_a_folder_without_a_model_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"holds no config\.json"):
        load_folder(tmp_path)


def test_missing_and_damaged_weights_are_said(folder: Path) -> None:
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(ModelNotServable, match="weights of tiny cannot be loaded"):
        load_folder(folder)
    weights.write_bytes(b"")
    with pytest.raises(ModelNotServable, match="weights of tiny cannot be loaded"):
        load_folder(folder)
    weights.unlink()
    with pytest.raises(ModelNotServable, match="tiny has no weights"):
        load_folder(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = save(tiny_llama(), tmp_path / "tiny", max_shard_size="50KB")
    shard = sorted(folder.glob("model-0000*"))[1]
    shard.unlink()
    with pytest.raises(ModelNotServable, match=f"{shard.name} is missing"):
        load_folder(folder)
    (folder / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ModelNotServable, match=r"index.json cannot be read"):
        load_folder(folder)


def test_weights_that_lack_a_tensor_or_do_not_fit_the_configuration_are_refused(
    folder: Path,
) -> None:
    config = folder / "config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "num_hidden_layers": 3}))
    with pytest.raises(ModelNotServable, match=r"9 tensors are missing, model\.layers\.2"):
        load_folder(folder)
    config.write_text(json.dumps({**settings, "intermediate_size": 128}))
    with pytest.raises(ModelNotServable, match=r"mlp\..* is \[.*96.*\] where \[.*128.*\] belongs"):
        load_folder(folder)


def test_a_tokenizer_that_cannot_be_loaded_is_said(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelNotServable, match="tokenizer of tiny cannot be loaded"):
        load_folder(folder)


def test_a_model_of_another_kind_is_refused_before_its_weights_are_read(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**settings, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}})
    )
    (folder / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(ModelNotServable, match="dynamic"):
        load_folder(folder)


def test_a_model_larger_than_memory_is_refused_with_the_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = 4 * sum(one.numel() for one in tiny_llama(tied=False).parameters())
    monkeypatch.setattr(host, "free_memory", lambda: needed)
    with pytest.raises(ModelNotServable, match=r"tiny does not fit.*GiB are free"):
        load_folder(folder)
    monkeypatch.setattr(host, "free_memory", lambda: needed * 10 // 9 + 10)
    assert load_folder(folder).weights_bytes == needed


def test_weights_are_spread_only_when_one_gpu_cannot_hold_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = {torch.device("cuda", 0): 1000, torch.device("cuda", 1): 2000, CPU: 5000}
    monkeypatch.setattr(loading, "free_bytes", free.__getitem__)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    gpu = torch.device("cuda", 0)
    assert loading.placement(gpu, 900, "m") == ({"": gpu}, None)
    assert loading.placement(gpu, 901, "m") == ("auto", {0: 900, 1: 1800, "cpu": 4500})
    with pytest.raises(ModelNotServable, match="m does not fit"):
        loading.placement(gpu, 7201, "m")


def test_a_damaged_conversion_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHASESCOPE_CACHE", str(tmp_path / "cache"))
    source = ModelSource("gguf", str(write_gguf(tiny_llama(), tmp_path / "tiny.gguf")))
    seen: list[Progress] = []
    first = load(source, CPU, torch.float32, seen.append)
    (weights,) = (tmp_path / "cache").glob("*/model-*.safetensors")
    weights.write_bytes(weights.read_bytes()[:5000])
    seen.clear()
    again = load(source, CPU, torch.float32, seen.append)
    assert seen[0].stage == "converting"
    assert again.fingerprint == first.fingerprint


def test_the_bundled_model_answers_sensibly(bundled_model: LoadedModel) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = bundled_model.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt"
    )
    output = bundled_model.model.generate(**prompt, max_new_tokens=16, do_sample=False)
    answer = bundled_model.tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])
    assert "Paris" in answer
    assert answer.endswith("<|im_end|>")
    assert bundled_model.name == "SmolLM2-135M-Instruct"
    assert bundled_model.num_parameters == 134_515_008


def test_transformers_loads_the_same_logits(folder: Path) -> None:
    ids = torch.arange(3, 50)[None]
    expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.inference_mode():
        ours = load_folder(folder, torch.bfloat16).model(ids).logits
        assert torch.equal(ours, expected(ids).logits)
