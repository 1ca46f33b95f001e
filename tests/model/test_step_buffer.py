"""A step's inputs in one buffer: what goes in comes out, and what fills it up is no request's."""

from __future__ import annotations

import pytest

from engine.core.plan import Chunk, StepPlan
from engine.core.request import Phase, Request, SamplingParams, Timeline
from engine.model.step_buffer import batch_size, decode_layout, layout_of, pack, unpack

SIZE, SCRATCH = 4, 50


def chunk(number: int, start: int, length: int, table: list[int], *, samples: bool = True) -> Chunk:
    request = Request(
        number=number,
        token_ids=list(range(100 * number, 100 * number + start + length)),
        params=SamplingParams(),
        seed=0,
        timeline=Timeline(submitted=0.0),
        block_table=table,
    )
    return Chunk(request, start, length, Phase.DECODE, samples=samples)


def test_a_mixed_step_comes_out_as_it_was_put_in() -> None:
    plan = StepPlan((chunk(1, 5, 1, [8, 3]), chunk(2, 2, 4, [6, 1, 7]), chunk(3, 0, 2, [2])))
    plan = StepPlan((*plan.chunks, chunk(4, 0, 3, [5], samples=False)))
    layout = layout_of(plan, SIZE)
    packed = pack(plan, layout, block_size=SIZE, scratch_block=SCRATCH, pinned=False)
    assert packed.shape == (layout.num_words,)
    step = unpack(packed, layout)
    assert step.token_ids.tolist() == [105, 202, 203, 204, 205, 300, 301, 400, 401, 402]
    assert step.positions.tolist() == [5, 2, 3, 4, 5, 0, 1, 0, 1, 2]
    assert step.places.tolist() == [13, 26, 27, 4, 5, 8, 9, 20, 21, 22]
    assert step.samples.tolist() == [0, 4, 6]
    assert step.query_starts.tolist() == [0, 1, 5, 7, 10]
    assert step.key_starts.tolist() == [0, 6, 12, 14, 17]
    assert step.lengths.tolist() == [6, 6, 2, 3]
    assert step.table.tolist() == [[8, 3], [6, 1], [2, SCRATCH], [5, SCRATCH]]


@pytest.mark.parametrize("paged", [True, False])
def test_a_decoding_step_is_filled_up_with_rows_in_the_scratch_block(paged: bool) -> None:
    chunks = tuple(chunk(i, 5 + i, 1, [2 * i, 2 * i + 1, 20 + i]) for i in range(5))
    layout = decode_layout(StepPlan(chunks), SIZE, paged=paged)
    assert layout is not None
    assert (layout.num_tokens, layout.num_samples, layout.max_query) == (8, 8, 1)
    assert (layout.num_keys == 0) == paged
    step = unpack(
        pack(StepPlan(chunks), layout, block_size=SIZE, scratch_block=SCRATCH, pinned=False), layout
    )
    assert step.samples.tolist() == list(range(8))
    assert (step.places[5:] == SCRATCH * SIZE).all()
    assert (step.table[5:] == SCRATCH).all()
    assert step.lengths.tolist() == [6, 7, 8, 9, 10, 1, 1, 1]
    assert step.query_starts.tolist() == list(range(9))
    live = {block for one in chunks for block in one.request.block_table}
    assert not live & {place // SIZE for place in step.places[5:].tolist()}


def test_steps_of_nearly_the_same_size_share_a_layout() -> None:
    def layout(count: int, start: int) -> object:
        chunks = tuple(chunk(i, start, 1, [*range(30)]) for i in range(count))
        return decode_layout(StepPlan(chunks), SIZE, paged=False)

    assert layout(5, 40) == layout(8, 30)
    assert layout(5, 40) != layout(9, 40)


def test_steps_that_read_a_prompt_have_no_layout_to_share() -> None:
    reads = chunk(1, 0, 3, [1])
    silent = chunk(2, 0, 1, [2], samples=False)
    for plan in (StepPlan((reads,)), StepPlan((silent,))):
        assert decode_layout(plan, SIZE, paged=True) is None


def test_batch_sizes_are_powers_of_two_and_then_steps_of_eight() -> None:
    sizes = {batch_size(count) for count in range(1, 41)}
    assert sizes == {1, 2, 4, 8, 16, 24, 32, 40}
    assert all(batch_size(count) >= count for count in range(1, 41))
