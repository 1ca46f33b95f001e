"""What one tick of the live feed says, as plain data: new steps, changed requests, the headline.

A frame is made for everybody who watches, so it holds numbers and times only: never a prompt, an
answer or the text of an error. It reads the service's records and changes nothing.

Times are whole tenths of a millisecond on the service's clock. A frame is a dictionary with

    now      time of the frame
    reset    only in a frame that carries the bounded history instead of what is new
    wall     with reset: wall-clock seconds of time 0
    config   model, device and limits, with reset and whenever they changed
    state    what the service is doing: name, progress (0 to 1 or null), text, since; turn: [label,
             latest end, experiments waiting] while an experiment has the engine alone, else null
    sum      the headline numbers
    steps    [number, start, duration, prefill tokens, decode tokens, running, waiting, used blocks,
             evictable blocks, FLOPs, bytes moved, bound]; bound: 0 unknown, 1 memory, 2 compute,
             3 overhead
    reqs     every request that changed (see `ui.wire.scalars` and `series`), merged by number
    kv       the block map, when it changed (see `ui.wire.block_map`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.contracts import ServiceStatus
from engine.core.capacity import Ceilings
from engine.core.records import RequestRecord, StepRecord
from engine.core.request import FinishReason
from engine.service import EngineService
from engine.telemetry.live import LiveSummary
from engine.telemetry.roofline import Bound, classify, raised, step_work
from ui.wire import (
    NOTHING_SENT,
    Frame,
    Sent,
    block_map,
    percentiles,
    scalars,
    series,
    ticks,
)

THROUGHPUT_WINDOW = 5.0
BUSY_AFTER = 5.0
KV_FULL_FOR = 2.0
HISTORY_STEPS = 2_000
HISTORY_REQUESTS = 600
HISTORY_TOKENS = 60_000

# The page's words for what a service does when it does not serve.
_STATE_NAMES = {
    ServiceStatus.LOADING: "loading",
    ServiceStatus.MEASURING: "measuring",
    ServiceStatus.RECOVERING: "recovering",
    ServiceStatus.STUCK: "stuck",
    ServiceStatus.STOPPED: "stopped",
    ServiceStatus.FAILED: "failed",
    ServiceStatus.CLOSED: "stopped",
}
_BOUNDS = {Bound.MEMORY: 1, Bound.COMPUTE: 2, Bound.OVERHEAD: 3}


class FrameBuilder:
    """Makes frames from a service's records; used by one thread at a time.

    `delta` says what is new since its last call, `history` what a new viewer needs to catch up with
    the last delta. Both are bounded whatever has happened since.
    """

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._summary = LiveSummary()
        self._closed_cursor = 0
        self._last_step = 0
        self._sent: dict[int, Sent] = {}
        self._lasting: Frame = {}
        self._ceilings: Ceilings | None = None
        self._waiting_since: float | None = None
        self._kv_full_until = 0.0

    def delta(self) -> Frame | None:
        """What changed since the last call; None when nothing did."""
        store, now = self._service.store, self._service.clock.now()
        steps = store.steps_since(self._last_step)[-HISTORY_STEPS:]
        # Open ones are read first: one that is closed in between is in both, and then the closed
        # record holds.
        live = store.live()
        closed, self._closed_cursor = store.closed_since(self._closed_cursor)
        self._summary.add(closed)
        records = {record.number: record for record in (*live, *closed)}
        for number in {number for step in steps for number in step.displaced}:
            record = store.find(number)
            if record is not None and number in self._sent:
                records.setdefault(number, record)
        requests = [self._news(record) for record in records.values()]
        frame: Frame = {
            "now": ticks(now),
            "steps": [self._step(step) for step in steps],
            "reqs": [entry for entry in requests if entry is not None],
        }
        self._forget()
        lasting = {
            "config": self._config(),
            "kv": self._blocks(),
            "state": self._state(steps, live, now),
            "sum": self._headline(live, now),
        }
        changed = {name for name, value in lasting.items() if value != self._lasting.get(name)}
        if not (changed or frame["steps"] or frame["reqs"]):
            return None
        self._lasting = lasting
        frame.update({name: lasting[name] for name in changed | {"state", "sum"}})
        return {name: value for name, value in frame.items() if value not in (None, [])}

    def history(self) -> Frame:
        """Everything a new viewer needs: the bounded past up to the last `delta`."""
        store = self._service.store
        steps = [step for step in store.steps_since(0) if step.number <= self._last_step]
        frame: Frame = {
            "reset": True,
            "now": ticks(self._service.clock.now()),
            "wall": self._service.clock.wall_start,
            "steps": [self._step(step) for step in steps[-HISTORY_STEPS:]],
            "reqs": self._known_requests(),
            **self._lasting,
        }
        return {name: value for name, value in frame.items() if value is not None}

    def _step(self, step: StepRecord) -> list[Any]:
        self._last_step = max(self._last_step, step.number)
        return [
            step.number,
            ticks(step.start),
            ticks(step.end) - ticks(step.start),
            step.prefill_tokens + step.recompute_tokens,
            step.decode_tokens,
            step.num_running,
            step.num_waiting,
            step.used_blocks,
            step.evictable_blocks,
            *self._work(step),
        ]

    def _work(self, step: StepRecord) -> tuple[float | None, float | None, int]:
        """FLOPs, bytes moved and what bound the step, as far as that is known."""
        info = self._service.info
        if info is None or info.shape is None:
            return None, None, 0
        work = step_work(info.shape, step.rows, step.num_sampled)
        if info.ceilings is None:
            return work.flops, work.bytes_moved, 0
        self._ceilings = raised(self._ceilings or info.ceilings, work, step.duration)
        bound = classify(work, step.duration, self._ceilings)
        return work.flops, work.bytes_moved, _BOUNDS[bound]

    def _news(self, record: RequestRecord) -> Frame | None:
        """A request's scalars and what has been added to it; None when the viewers know all."""
        displaced_at = self._service.store.displaced_at(record.number)
        sent = self._sent.get(record.number, NOTHING_SENT)
        known = Sent(scalars(record, displaced_at), len(record.token_delivered), len(record.chunks))
        if known == sent:
            return None
        self._sent[record.number] = known
        return known.scalars | series(record, sent, known)

    def _known_requests(self) -> list[Frame]:
        """The newest requests as the viewers know them, whole, oldest first."""
        known: list[Frame] = []
        num_tokens = 0
        for number, sent in reversed(self._sent.items()):
            record = self._service.store.find(number)
            if record is None:
                continue
            num_tokens += sent.num_tokens
            if len(known) == HISTORY_REQUESTS or (known and num_tokens > HISTORY_TOKENS):
                break
            known.append(sent.scalars | series(record, NOTHING_SENT, sent))
        return known[::-1]

    def _forget(self) -> None:
        """Keep what was sent of the newest requests only; those that still run stay."""
        surplus = len(self._sent) - HISTORY_REQUESTS
        if surplus > 0:
            ended = [n for n, sent in self._sent.items() if sent.scalars["end"] is not None]
            for number in ended[:surplus]:
                del self._sent[number]

    def _config(self) -> Frame | None:
        config, info = self._service.config, self._service.info
        if config is None or info is None:
            return None
        ceilings = self._ceilings or info.ceilings
        return {
            "model": info.name,
            "dtype": info.dtype,
            "device": info.device,
            "budget": config.max_batched_tokens,
            "slots": config.max_running,
            "blocks": config.num_blocks,
            "block_size": config.block_size,
            "kv_bytes": info.kv_bytes_per_token,
            "context": config.max_model_len,
            "max_waiting": config.max_waiting,
            "prefix_caching": config.prefix_caching,
            "policy": config.policy,
            "roof": ceilings
            and {
                "flops": ceilings.flops_per_second,
                "bytes": ceilings.bytes_per_second,
                "overhead": ceilings.overhead_seconds,
            },
        }

    def _blocks(self) -> Frame | None:
        config = self._service.config
        return block_map(self._service.pool(), config.block_size) if config else None

    def _state(
        self, steps: Sequence[StepRecord], live: Sequence[RequestRecord], now: float
    ) -> Frame:
        state = self._service.state
        waiting = [r for r in live if r.finished is None and r.scheduled is None]
        since = min((r.submitted for r in waiting), default=None)
        if any(step.preempted for step in steps):
            self._kv_full_until = now + KV_FULL_FOR
        name = _STATE_NAMES.get(state.status)
        if name is None:
            name = self._serving_name(live, since, now)
        if name != self._lasting.get("state", {}).get("name"):
            since_ticks = ticks(now)
        else:
            since_ticks = self._lasting["state"]["since"]
        turn = self._service.turn
        return {
            "name": name,
            "progress": state.progress,
            "text": state.reason,
            "since": since_ticks,
            "turn": turn and [turn.label, ticks(turn.ends_by), turn.num_waiting],
        }

    def _serving_name(
        self, live: Sequence[RequestRecord], waiting_since: float | None, now: float
    ) -> str:
        unfinished = sum(record.finished is None for record in live)
        config = self._service.config
        if config is not None and unfinished >= config.max_running + config.max_waiting:
            return "queue_full"
        if now < self._kv_full_until:
            return "kv_full"
        if waiting_since is not None and now - waiting_since > BUSY_AFTER:
            return "busy"
        return "live" if unfinished else "idle"

    def _headline(self, live: Sequence[RequestRecord], now: float) -> Frame:
        headline = self._summary.read(live, now, THROUGHPUT_WINDOW)
        totals = self._service.store.totals()
        unfinished = [record for record in live if record.finished is None]
        waiting = sum(record.scheduled is None for record in unfinished)
        pool = self._service.engine.scheduler.pool if self._service.engine else None
        return {
            "run": len(unfinished) - waiting,
            "wait": waiting,
            "used": pool.num_used if pool else 0,
            "evictable": pool.num_evictable if pool else 0,
            "free": pool.num_free if pool else 0,
            "tps": round(headline.throughput.tokens_per_second or 0.0, 1),
            "tps_window": THROUGHPUT_WINDOW,
            "ttft": percentiles(headline.ttft),
            "itl": percentiles(headline.itl),
            "done": sum(totals.requests.values()) - totals.requests[FinishReason.ERROR],
            "failed": totals.requests[FinishReason.ERROR],
        }
