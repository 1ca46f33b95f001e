"""Decoding steps recorded once as CUDA graphs and replayed, so that Python launches no kernels.

One graph for each layout of a step's buffer, recorded when a step first has it. Whatever goes wrong
ends recording for good, and steps are computed as ever: a graph is never required.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.devices import free_bytes
from engine.model.step_buffer import StepLayout

log = logging.getLogger(__name__)

Compute = Callable[[Tensor, StepLayout], Tensor]
Replay = Callable[[], None]
Record = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]
Recorder = Callable[[torch.device], Record]

_MAX_GRAPHS = 96
_MAX_SECONDS = 60.0  # of recording, all graphs together
_MIN_FREE_BYTES = 1 << 30
_TOLERANCE = 0.05  # of the logits' spread: a graph may pick another algorithm for a product


@dataclass(frozen=True, slots=True)
class _Graph:
    """A recorded step: what it reads, how to run it and what it fills."""

    buffer: Tensor
    replay: Replay
    logits: Tensor


class DecodeGraphs:
    """Graphs by layout, recorded within bounds of number, time and memory.

    recorder: makes what records calls of a device (`cuda_recorder`).
    """

    def __init__(self, device: torch.device, recorder: Recorder) -> None:
        self._device = device
        self._recorder = recorder
        self._failed = False
        self.clear()

    def __len__(self) -> int:
        return len(self._graphs)

    def clear(self) -> None:
        """Forget every graph, as when the pool that they read has been replaced."""
        self._graphs: dict[StepLayout, _Graph] = {}
        self._record = self._recorder(self._device)
        self._seconds = 0.0

    def run(self, packed: Tensor, layout: StepLayout, compute: Compute) -> Tensor | None:
        """Logits `[layout.num_samples, vocab_size]`, to be read before the next run.

        packed: the step's buffer in main memory; compute: the step from its buffer on the device to
        its logits, queued without waiting. None where there is no graph for the layout and none can
        be made.
        """
        graph = self._graphs.get(layout) or self._add(packed, layout, compute)
        if graph is None:
            return None
        graph.buffer.copy_(packed, non_blocking=True)
        graph.replay()
        return graph.logits

    def _add(self, packed: Tensor, layout: StepLayout, compute: Compute) -> _Graph | None:
        if (
            self._failed
            or len(self._graphs) >= _MAX_GRAPHS
            or self._seconds >= _MAX_SECONDS
            or free_bytes(self._device) < _MIN_FREE_BYTES
        ):
            return None
        start = time.perf_counter()
        try:
            graph = self._recorded(packed, layout, compute)
        except RuntimeError as error:
            log.warning("Decoding goes on without CUDA graphs: %s", error)
            graph = None
        self._seconds += time.perf_counter() - start
        if graph is None:
            self._failed = True
            self._graphs.clear()
            return None
        self._graphs[layout] = graph
        return graph

    def _recorded(self, packed: Tensor, layout: StepLayout, compute: Compute) -> _Graph | None:
        """Record the step; computing it more than once writes the same keys to the same places."""
        buffer = packed.to(self._device)
        expected = compute(buffer, layout).float()
        replay, logits = self._record(lambda: compute(buffer, layout))
        replay()
        slack = _TOLERANCE * expected[expected.isfinite()].std().nan_to_num().item()
        if not torch.allclose(logits.float(), expected, rtol=0.0, atol=slack, equal_nan=True):
            log.warning("Decoding goes on without CUDA graphs: a graph gave other logits.")
            return None
        return _Graph(buffer, replay, logits)


def cuda_recorder(device: torch.device) -> Record:
    """Records CUDA graphs that share one pool of memory, since they never run at the same time."""
    pool = torch.cuda.graph_pool_handle()
    # torch leaves this class without types.
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(compute: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device):
            usual = torch.cuda.current_stream()
            stream.wait_stream(usual)
            try:
                with torch.cuda.stream(stream):
                    compute()  # libraries set themselves up in their first call on a stream
                usual.wait_stream(stream)
                # Other threads may use the device for something else meanwhile.
                with torch.cuda.graph(
                    graph, pool=pool, stream=stream, capture_error_mode="thread_local"
                ):
                    logits = compute()
            finally:
                torch.cuda.set_stream(usual)  # a recording that fails leaves its own in place
        return graph.replay, logits

    return record
