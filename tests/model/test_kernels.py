"""The compiled kernels compute what torch's own operators do, and a machine without a compiler is
served without them.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model import kernels
from engine.model.cache import cache_folder, cached_folder
from engine.model.kernels import has_tiles, load_kernels
from engine.model.packing import panels_of

BLOCK_SIZE = 16
DTYPES = [torch.float32, torch.bfloat16]


pytestmark = pytest.mark.usefixtures("built_kernels")


def near(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    return torch.allclose(actual.float(), expected.float(), rtol=tolerance, atol=tolerance)


def attention(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int, softcap: float
) -> Tensor:
    """One query `[heads, dim]` over its keys `[length, kv_heads, dim]`, in plain steps."""
    groups = query.shape[0] // keys.shape[1]
    if window:
        keys, values = keys[-window:], values[-window:]
    keys = keys.float().repeat_interleave(groups, dim=1)
    values = values.float().repeat_interleave(groups, dim=1)
    scores = torch.einsum("hd,lhd->hl", query.float(), keys) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.einsum("hl,lhd->hd", scores.softmax(-1), values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [
        *((9, 3, 64), (8, 1, 64), (7, 1, 128), (5, 5, 64), (4, 2, 128), (6, 2, 20)),
        # More heads, or more heads a KV head, than go in one pass; some of two KV heads in one.
        *((32, 8, 96), (71, 1, 32), (36, 2, 64)),
    ],
)
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (24, 0.0), (0, 5.0), (600, 0.0)])
def test_attention_over_scattered_blocks(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, window: int, softcap: float
) -> None:
    """Contexts of one position to such as threads share among themselves."""
    generator = torch.Generator().manual_seed(heads + dim)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    lengths = [1, 16, 17, 100, 512, 1061]
    counts = [-(-length // BLOCK_SIZE) for length in lengths]
    num_blocks = sum(counts) + 2
    tables = [
        table.tolist()
        for table in torch.randperm(num_blocks, generator=generator)[: sum(counts)].split(counts)
    ]
    # What lies beyond a request's positions must not matter, whatever it is.
    keys = torch.full((num_blocks * BLOCK_SIZE, kv_heads, dim), math.nan, dtype=dtype)
    values = keys.clone()
    query = random(8, heads, dim)
    out = torch.full_like(query, 7.0)
    rows = [4, 0, 5, 2, 7, 6]
    expected = []
    for row, length, table in zip(rows, lengths, tables, strict=True):
        places = torch.tensor(
            [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(length)]
        )
        keys[places], values[places] = random(length, kv_heads, dim), random(length, kv_heads, dim)
        expected.append(attention(query[row], keys[places], values[places], 0.2, window, softcap))
    starts = [sum(counts[:i]) for i in range(len(counts))]
    torch.ops.phasescope.decode_attention(
        query,
        keys,
        values,
        torch.tensor(rows),
        torch.tensor(lengths),
        torch.tensor(starts),
        torch.tensor([block for table in tables for block in table]),
        BLOCK_SIZE,
        0.2,
        window,
        softcap,
        out,
    )
    assert near(out[rows], torch.stack(expected), dtype)
    assert (out[[1, 3]] == 7.0).all(), "rows of other requests were written"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [576, 50])
def test_norms_and_activation(dtype: torch.dtype, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(1, 5, size, generator=generator).to(dtype)
    weight = torch.rand(size, generator=generator).to(dtype)
    ops = torch.ops.phasescope
    expected = F.rms_norm(x.float(), (size,), weight.float(), 1e-5)
    assert near(ops.rms_norm(x, weight, 1e-5), expected, dtype)
    gate_up = 30 * torch.randn(1, 5, 2 * size, generator=generator).to(dtype)
    gate, up = gate_up.chunk(2, dim=-1)
    assert near(ops.silu_mul(gate_up), F.silu(gate.float()) * up.float(), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 4, 16, 17, 32, 45])
@pytest.mark.parametrize("biased", [True, False])
def test_products_with_panels(dtype: torch.dtype, rows: int, biased: bool) -> None:
    if dtype == torch.bfloat16 and not has_tiles():
        pytest.skip("this processor has no tiles for bfloat16")
    generator = torch.Generator().manual_seed(rows)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    x, weight, total = random(1, rows, 96), random(192, 96) / 10, random(1, rows, 192)
    bias = random(192) if biased else weight.new_empty(0)
    panels, ops = panels_of(weight), torch.ops.phasescope
    expected = F.linear(x.float(), weight.float(), bias.float() if biased else None)
    assert near(ops.project(x, panels, bias), expected, dtype)
    gate, up = expected.to(dtype).chunk(2, dim=-1)
    gated = F.silu(gate.float()).to(dtype).float() * up.float()
    assert near(ops.project_gated(x, panels, bias), gated, dtype)
    expected = total.float() + expected
    ops.project_add(x, panels, bias, total)
    assert near(total, expected, dtype)


def test_weights_that_do_not_fit_are_refused() -> None:
    panels, none, ops = panels_of(torch.zeros(64, 32)), torch.empty(0), torch.ops.phasescope
    for call, sentence in (
        (lambda: ops.project(torch.zeros(2, 48), panels, none), "does not fit the weights"),
        (lambda: ops.project(torch.zeros(2, 32), panels, torch.zeros(3)), "one bias an output"),
        (lambda: ops.project(torch.zeros(2, 32), panels[:3], none), "do not fill the panels"),
        (lambda: ops.project(torch.zeros(2, 32).half(), panels, none), "one type"),
        (
            lambda: ops.project_add(torch.zeros(2, 32), panels, none, torch.zeros(2, 32)),
            "out does not fit",
        ),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            call()


def test_the_kernels_use_the_threads_that_torch_has() -> None:
    """Without OpenMP, torch's parallel loops are compiled into plain ones, without a word."""
    folder = cached_folder(f"kernels-{kernels.build_key()}", _never, cache_folder())
    assert b"GOMP_parallel" in (folder / "kernels.so").read_bytes()


def _never(folder: Path) -> None:
    raise AssertionError("the loaded kernels are not where they are kept")


def test_not_a_number_stays_one() -> None:
    x = torch.ones(1, 2, 64, dtype=torch.bfloat16)
    x[0, 1, 3] = math.nan
    normed = torch.ops.phasescope.rms_norm(x, torch.ones(64, dtype=torch.bfloat16), 1e-5)
    assert torch.isfinite(normed[0, 0]).all()
    assert torch.isnan(normed[0, 1]).all()


def test_a_place_outside_the_pool_is_refused() -> None:
    pool = torch.zeros(4, 1, 8)
    rotation = torch.ones(1, 8)
    with pytest.raises(RuntimeError, match="outside the pool"):
        torch.ops.phasescope.rotate_and_store(
            torch.ones(1, 24),
            rotation,
            rotation,
            torch.tensor([4]),
            pool,
            pool.clone(),
            None,
            None,
            0.0,
        )


def test_blocks_that_are_not_there_are_refused() -> None:
    pool = torch.zeros(32, 1, 8)
    query = torch.zeros(1, 1, 8)
    one = torch.ones(1, dtype=torch.long)

    def attend(length: int, blocks: list[int]) -> None:
        torch.ops.phasescope.decode_attention(
            query, pool, pool, 0 * one, length * one, 0 * one, torch.tensor(blocks), BLOCK_SIZE,
            1.0, 0, 0.0, torch.empty_like(query),
        )  # fmt: skip

    attend(17, [0, 1])
    for length, blocks, sentence in (
        (17, [0], "not all given"),
        (0, [0], "not all given"),
        (17, [0, 2], "outside the pool"),
        (17, [0, -1], "outside the pool"),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            attend(length, blocks)


def test_without_a_compiler_the_engine_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "available", lambda: False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not load_kernels(tmp_path)
    monkeypatch.setenv("CXX", "false")  # a compiler that is there and fails
    assert not load_kernels(tmp_path)
    assert not list(tmp_path.glob("*.so"))
