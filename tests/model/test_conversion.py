"""Converting GGUF files: the weights are transformers' own, and what it loses is put right."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig

from engine.core.errors import ModelNotServable, PhaseScopeError
from engine.model import conversion
from engine.model.conversion import convert_gguf
from engine.model.loading import LoadedModel
from engine.model.progress import Progress
from engine.model.sources import bundled_gguf
from tests.model.tiny_gguf import CHAT_TEMPLATE, tiny_llama, tiny_mixture_of_experts, write_gguf

# Says by a file named after itself that it has begun, and then takes its time.
CONVERTER = """
import os, sys, time
from pathlib import Path
from engine.model.conversion import convert_gguf

def report(progress):
    if progress.done_bytes == 0:
        Path(sys.argv[2], str(os.getpid())).touch()
        time.sleep(1)

print(convert_gguf(Path(sys.argv[1]), report), flush=True)
"""


def nothing(progress: Progress) -> None:
    """A reader of progress that does not look."""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PHASESCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("tied", [True, False])
def test_unquantised_weights_come_back_exactly(tmp_path: Path, tied: bool) -> None:
    original = tiny_llama(tied=tied)
    folder = convert_gguf(write_gguf(original, tmp_path / "tiny.gguf"), nothing)
    converted = AutoModelForCausalLM.from_pretrained(folder)
    state = original.state_dict()
    assert converted.state_dict().keys() == state.keys()
    for name, weights in converted.state_dict().items():
        assert torch.equal(weights, state[name]), name
    shared = converted.lm_head.weight is converted.model.embed_tokens.weight
    assert shared == tied


def test_experts_are_put_together_from_their_parts(tmp_path: Path) -> None:
    original = tiny_mixture_of_experts()
    file = write_gguf(original, tmp_path / "tiny.gguf", pre_tokenizer="qwen2")
    converted = AutoModelForCausalLM.from_pretrained(convert_gguf(file, nothing))
    assert converted.config.moe_intermediate_size == 32
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        assert torch.equal(original(ids).logits, converted(ids).logits)


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0])
def test_quantised_weights_are_those_transformers_reads(
    tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    file = write_gguf(tiny_llama(), tmp_path / "tiny.gguf", kind)
    direct = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=file.name, dtype=torch.float32
    )
    converted = AutoModelForCausalLM.from_pretrained(convert_gguf(file, nothing))
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        assert torch.equal(direct(ids).logits, converted(ids).logits)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (GGMLQuantizationType.Q4_1, torch.float32),
        (GGMLQuantizationType.F16, torch.float16),
        (GGMLQuantizationType.BF16, torch.bfloat16),
    ],
)
def test_weights_are_stored_without_loss_and_no_larger_than_needed(
    tmp_path: Path, kind: GGMLQuantizationType, stored: torch.dtype
) -> None:
    folder = convert_gguf(write_gguf(tiny_llama(), tmp_path / "tiny.gguf", kind), nothing)
    tensors = load_file(folder / "model-00001.safetensors")
    assert tensors["model.layers.0.mlp.up_proj.weight"].dtype is stored
    assert tensors["model.norm.weight"].dtype is torch.float32


def test_large_models_are_written_in_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "_SHARD_BYTES", 60_000)
    original = tiny_llama()
    folder = convert_gguf(write_gguf(original, tmp_path / "tiny.gguf"), nothing)
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    converted = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(converted.lm_head.weight, original.lm_head.weight)


def test_configuration_tokenizer_and_end_tokens_follow_the_metadata(tmp_path: Path) -> None:
    folder = convert_gguf(write_gguf(tiny_llama(), tmp_path / "tiny.gguf"), nothing)
    config = LlamaConfig.from_pretrained(folder)
    assert config.max_position_embeddings == 128
    assert config.rope_parameters["rope_theta"] == 54321.0
    assert config.tie_word_embeddings
    assert config.architectures == ["LlamaForCausalLM"]
    assert GenerationConfig.from_pretrained(folder).eos_token_id == [2, 0]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.model_max_length == 128


def test_digits_are_split_where_the_vocabulary_was_learned_so(tmp_path: Path) -> None:
    """By GPT-2's rule alone the last space would go with the digits, and they would merge."""
    pieces = {}
    for pre_tokenizer in ("smollm", "gpt-2"):
        file = write_gguf(
            tiny_llama(), tmp_path / f"{pre_tokenizer}.gguf", pre_tokenizer=pre_tokenizer
        )
        tokenizer = AutoTokenizer.from_pretrained(convert_gguf(file, nothing))
        pieces[pre_tokenizer] = tokenizer.tokenize("ab  12")
    assert pieces == {
        "smollm": ["ab", "ĠĠ", "1", "2"],
        "gpt-2": ["ab", "Ġ", "Ġ", "12"],
    }


def test_progress_counts_the_files_tensors_to_the_last_byte(tmp_path: Path) -> None:
    file = write_gguf(tiny_llama(), tmp_path / "tiny.gguf", GGMLQuantizationType.Q8_0)
    seen: list[Progress] = []
    convert_gguf(file, seen.append)
    total = sum(int(tensor.n_bytes) for tensor in GGUFReader(file).tensors)
    done = [one.done_bytes for one in seen]
    assert {(one.stage, one.total_bytes) for one in seen} == {("converting", total)}
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, total)
    seen.clear()
    convert_gguf(file, seen.append)
    assert not seen


def test_another_file_of_the_same_name_is_converted_anew(tmp_path: Path) -> None:
    first = convert_gguf(write_gguf(tiny_llama(0), tmp_path / "tiny.gguf"), nothing)
    second = convert_gguf(write_gguf(tiny_llama(1), tmp_path / "tiny.gguf"), nothing)
    assert first != second


def test_of_two_processes_the_second_goes_on_when_the_first_is_killed(
    tmp_path: Path, own_cache: Path
) -> None:
    file = write_gguf(tiny_llama(), tmp_path / "tiny.gguf")
    begun = tmp_path / "begun"
    begun.mkdir()
    command = [sys.executable, "-c", CONVERTER, str(file), str(begun)]
    processes = {}
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes[str(process.pid)] = process
    deadline = time.monotonic() + 60
    while not (pids := [path.name for path in begun.iterdir()]):
        assert time.monotonic() < deadline, "neither process began to convert"
        time.sleep(0.01)
    assert len(pids) == 1
    first = processes.pop(pids[0])
    first.send_signal(signal.SIGKILL)
    assert first.communicate(timeout=30)[0] == ""
    assert not list(own_cache.glob("tiny-*/config.json"))

    (second,) = processes.values()
    output, _ = second.communicate(timeout=60)
    assert output.strip() == str(convert_gguf(file, nothing))
    assert not list(own_cache.glob(".tiny-*"))
    AutoModelForCausalLM.from_pretrained(output.strip())


def test_a_cut_file_and_one_of_another_kind_are_refused(tmp_path: Path, own_cache: Path) -> None:
    whole = write_gguf(tiny_llama(), tmp_path / "tiny.gguf").read_bytes()
    for name, content in (("cut.gguf", whole[:-1000]), ("other.gguf", b"PK" * 500)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelNotServable, match=f"{name} cannot be read as a GGUF file"):
            convert_gguf(tmp_path / name, nothing)
    assert not list(own_cache.glob("*/config.json"))


def test_an_architecture_transformers_cannot_unpack_is_named(tmp_path: Path) -> None:
    content = write_gguf(tiny_llama(), tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "odd.gguf").write_bytes(content.replace(b"llama", b"lemma"))
    with pytest.raises(ModelNotServable, match="architecture 'lemma', which transformers"):
        convert_gguf(tmp_path / "odd.gguf", nothing)


def test_scaled_rotary_positions_are_refused_as_they_would_be_lost(tmp_path: Path) -> None:
    yarn = write_gguf(tiny_llama(), tmp_path / "yarn.gguf", rope_scaling=gguf.RopeScalingType.YARN)
    factors = np.linspace(1.0, 8.0, 8, dtype=np.float32)
    llama3 = write_gguf(
        tiny_llama(), tmp_path / "llama3.gguf", more_tensors={"rope_freqs.weight": factors}
    )
    for file in (yarn, llama3):
        with pytest.raises(ModelNotServable, match="it scales its rotary positions"):
            convert_gguf(file, nothing)
    ones = {"rope_freqs.weight": np.ones(8, dtype=np.float32)}
    convert_gguf(write_gguf(tiny_llama(), tmp_path / "one.gguf", more_tensors=ones), nothing)


def test_tensors_without_a_place_are_refused_and_not_dropped(tmp_path: Path) -> None:
    bias = {"blk.0.attn_q.bias": np.ones(64, dtype=np.float32)}
    file = write_gguf(tiny_llama(), tmp_path / "bias.gguf", more_tensors=bias)
    with pytest.raises(ModelNotServable, match=r"no place for \(blk\.0\.attn_q\.bias, 1 in all"):
        convert_gguf(file, nothing)


def test_a_cache_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tiny_llama(), tmp_path / "tiny.gguf")
    monkeypatch.setenv("PHASESCOPE_CACHE", str(file / "inside"))
    with pytest.raises(PhaseScopeError, match="PHASESCOPE_CACHE"):
        convert_gguf(file, nothing)


def test_the_bundled_model_is_what_its_metadata_says(bundled_model: LoadedModel) -> None:
    file = bundled_gguf()
    assert file is not None
    reader = GGUFReader(file)
    stated = {key: field.contents() for key, field in reader.fields.items() if "llama." in key}
    config = bundled_model.config
    assert config.num_hidden_layers == stated["llama.block_count"]
    assert config.max_position_embeddings == stated["llama.context_length"] == 8192
    assert config.rope_parameters["rope_theta"] == stated["llama.rope.freq_base"]
    assert config.rms_norm_eps == pytest.approx(stated["llama.attention.layer_norm_rms_epsilon"])
    assert config.num_key_value_heads == stated["llama.attention.head_count_kv"]
    assert config.tie_word_embeddings
    assert (
        bundled_model.tokenizer.chat_template == reader.fields["tokenizer.chat_template"].contents()
    )
    ends = bundled_model.generation_config.eos_token_id
    assert bundled_model.tokenizer.convert_ids_to_tokens(ends) == ["<|im_end|>", "<|endoftext|>"]
    assert json.loads(config.to_json_string())["vocab_size"] == 49152
    assert bundled_model.tokenizer("x =   12").input_ids == [104, 446, 333, 33, 34]
