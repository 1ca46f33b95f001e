"""The service's numbers for Prometheus: vLLM's families where we have the number, and our own.

Names, labels and buckets are vLLM's, so that dashboards made for it work. Every number comes from
the records by the definitions of `engine.telemetry`; a request's are added when it has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from engine.contracts import ModelInfo
from engine.core.capacity import Ceilings
from engine.core.records import RequestRecord, StepRecord
from engine.core.request import FinishReason, Phase, RequestStatus
from engine.service import EngineService
from engine.telemetry import metrics, roofline
from engine.telemetry.metrics import RequestMetrics
from engine.telemetry.store import Totals

log = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

PERIOD = 1.0
"""Seconds between two readings of the history, which keeps far more steps than a second has."""

_LABELS = ("model_name", "engine")
_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
    FinishReason.ERROR: "error",
}
_TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_TOKEN_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_TTFT_PARTS = ("input_preparation", "queueing", "prefill", "delivery")


_GAUGES = {
    "vllm:num_requests_running": "Requests that hold a slot.",
    "vllm:num_requests_waiting": "Requests in the queue.",
    "vllm:kv_cache_usage_perc": "Share of the KV blocks in use, 0 to 1.",
    # The name that vLLM had for it before 0.11.
    "vllm:gpu_cache_usage_perc": "Share of the KV blocks in use, 0 to 1.",
    "phasescope:evictable_blocks": "KV blocks that are free to take but still hold a prefix.",
}
# Help text and labels of its own.
_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "vllm:prefix_cache_queries": ("Prompt tokens looked up in the prefix cache.", ()),
    "vllm:prefix_cache_hits": ("Prompt tokens found in the prefix cache.", ()),
    "vllm:num_preemptions": ("Times a request lost its slot.", ()),
    "vllm:prompt_tokens": ("Prompt tokens of ended requests, cached ones included.", ()),
    "vllm:generation_tokens": ("Output tokens.", ()),
    "vllm:request_success": ("Ended requests by reason.", ("finished_reason",)),
    "phasescope:step_seconds": (
        "Seconds of engine steps by what bounds them (unknown where nobody measured the machine) "
        "and by phase (prefill: prompts, recomputed ones too; mixed: these and decoding).",
        ("bound", "phase"),
    ),
}
# Help text, buckets (none: lengths up to the context) and labels of its own.
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...], tuple[str, ...]]] = {
    "vllm:time_to_first_token_seconds": ("Submission to first token taken.", _TTFT_BUCKETS, ()),
    "vllm:inter_token_latency_seconds": ("One token taken to the next.", _TOKEN_BUCKETS, ()),
    # The name that vLLM had for it before 0.11, on which older dashboards rely.
    "vllm:time_per_output_token_seconds": ("One token taken to the next.", _TOKEN_BUCKETS, ()),
    "vllm:request_time_per_output_token_seconds": (
        "Mean time between tokens taken, a request.",
        _TOKEN_BUCKETS,
        (),
    ),
    "vllm:e2e_request_latency_seconds": ("Submission to last token.", _REQUEST_BUCKETS, ()),
    "vllm:request_queue_time_seconds": ("Queue to first step.", _REQUEST_BUCKETS, ()),
    "vllm:request_inference_time_seconds": ("First step to last token.", _REQUEST_BUCKETS, ()),
    "vllm:request_prefill_time_seconds": ("First step to first token.", _REQUEST_BUCKETS, ()),
    "vllm:request_decode_time_seconds": ("First to last token sampled.", _REQUEST_BUCKETS, ()),
    "vllm:request_prompt_tokens": ("Prompt tokens a request.", (), ()),
    "vllm:request_generation_tokens": ("Output tokens a request.", (), ()),
    # In vLLM the longest of a call's choices, each of which is a request of its own here.
    "vllm:request_max_num_generation_tokens": ("Output tokens a request.", (), ()),
    "vllm:request_params_max_tokens": ("Output limit a request, as held to.", (), ()),
    "vllm:iteration_tokens_total": ("Positions computed a step.", _STEP_TOKEN_BUCKETS, ()),
    "phasescope:ttft_part_seconds": (
        "The four parts of the time to first token; they add up to it.",
        _TTFT_BUCKETS,
        ("part",),
    ),
    "phasescope:longest_pause_seconds": (
        "Longest time between two moments at which a request's tokens were taken.",
        _TOKEN_BUCKETS,
        (),
    ),
    "phasescope:chunk_tokens": (
        "Positions a prompt chunk, by phase.",
        _STEP_TOKEN_BUCKETS,
        ("phase",),
    ),
}


class EngineMetrics:
    """One app's metrics, in a registry of its own; read them with `text`.

    Between `start` and `close` a thread takes the history in once a second, so that nothing is
    missed however seldom somebody reads.
    """

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._families: _Families | None = None
        self._closed_cursor = 0
        self._last_step = 0
        self._ended = threading.Event()

    def start(self) -> None:
        """Take the history in from now on."""
        threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop doing so."""
        self._ended.set()

    def text(self) -> bytes:
        """Prometheus' text format; empty until the model, whose name is a label, is loaded."""
        with self._lock:
            families = self._take_in()
            if families is None:
                return b""
            families.set_gauges(self._service)
            return generate_latest(families.registry)

    def _run(self) -> None:
        while not self._ended.wait(PERIOD):
            try:
                with self._lock:
                    self._take_in()
            except Exception:
                # What comes later must be counted, whatever was wrong with this.
                log.exception("The history could not be counted into the metrics")

    def _take_in(self) -> _Families | None:
        """Add what has happened since the last time. The lock is held."""
        service = self._service
        info, config = service.info, service.config
        if info is None or config is None:
            return self._families
        if self._families is None:
            self._families = _Families(info.name, config.max_model_len)
        families = self._families
        closed, self._closed_cursor = service.store.closed_since(self._closed_cursor)
        for record in closed:
            families.add_request(record)
        steps = service.store.steps_since(self._last_step)
        for step in steps:
            families.add_step(step, info)
        if steps:
            self._last_step = steps[-1].number
        families.add_totals(service.store.totals())
        return families


class _Families:
    """Every metric family, and how records are counted into them."""

    def __init__(self, model: str, max_model_len: int) -> None:
        self.registry = CollectorRegistry()
        self._base = {"model_name": model, "engine": "0"}
        self._ceilings: Ceilings | None = None
        self._num_output_tokens = 0
        self._num_ended = dict.fromkeys(_REASONS, 0)
        lengths = tuple(_one_two_five(max_model_len))
        self._gauges = {
            name: Gauge(name, text, _LABELS, registry=self.registry)
            for name, text in _GAUGES.items()
        }
        self._counters = {
            name: Counter(name, text, (*_LABELS, *labels), registry=self.registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(
                name, text, (*_LABELS, *labels), buckets=buckets or lengths, registry=self.registry
            )
            for name, (text, buckets, labels) in _HISTOGRAMS.items()
        }
        self._show_zeros()

    def _show_zeros(self) -> None:
        """Show what has not happened yet as 0, so that a rate over it can begin there."""
        for gauge in self._gauges.values():
            gauge.labels(**self._base)
        for name, (_, labels) in _COUNTERS.items():
            if not labels:
                self._counters[name].labels(**self._base)
        for name, (_, _, labels) in _HISTOGRAMS.items():
            if not labels:
                self._histograms[name].labels(**self._base)
        for reason in _REASONS.values():
            self._counters["vllm:request_success"].labels(**self._base, finished_reason=reason)

    def add_request(self, record: RequestRecord) -> None:
        """Count a closed request, by the rules of `engine.telemetry.summary`."""
        if record.scheduled is not None:
            self._count("vllm:prompt_tokens", record.num_prompt_tokens)
            self._count("vllm:prefix_cache_queries", record.num_prompt_tokens)
            self._count("vllm:prefix_cache_hits", record.num_cached_tokens)
        if not metrics.measures_latency(record):
            return
        values = metrics.request_metrics(record)
        self._observe("vllm:time_to_first_token_seconds", values.ttft)
        self._observe("vllm:request_queue_time_seconds", values.queueing)
        if values.ttft is not None:
            for part in _TTFT_PARTS:
                self._observe("phasescope:ttft_part_seconds", getattr(values, part), part=part)
        for gap in metrics.itl([record]):
            self._observe("vllm:inter_token_latency_seconds", float(gap))
            self._observe("vllm:time_per_output_token_seconds", float(gap))
        if metrics.measures_whole(record):
            self._add_finished(record, values)

    def _add_finished(self, record: RequestRecord, values: RequestMetrics) -> None:
        last = record.token_sampled[-1] if record.token_sampled else None
        decode = metrics.between(record.first_token_sampled, last)
        inference = metrics.between(record.scheduled, last)
        self._observe("vllm:request_time_per_output_token_seconds", values.tpot)
        self._observe("vllm:e2e_request_latency_seconds", values.e2e)
        self._observe("vllm:request_prefill_time_seconds", values.prefill)
        self._observe("vllm:request_decode_time_seconds", decode)
        self._observe("vllm:request_inference_time_seconds", inference)
        self._observe("vllm:request_prompt_tokens", record.num_prompt_tokens)
        for name in ("request_generation_tokens", "request_max_num_generation_tokens"):
            self._observe(f"vllm:{name}", record.num_output_tokens)
        self._observe("vllm:request_params_max_tokens", record.max_output_tokens)
        self._observe("phasescope:longest_pause_seconds", values.longest_pause)

    def add_step(self, step: StepRecord, info: ModelInfo) -> None:
        """Count a step."""
        read = step.prefill_tokens + step.recompute_tokens
        phase = "decode" if not read else "mixed" if step.decode_tokens else "prefill"
        self._observe("vllm:iteration_tokens_total", read + step.decode_tokens)
        self._count("vllm:num_preemptions", len(step.preempted))
        self._count(
            "phasescope:step_seconds", step.duration, bound=self._bound(step, info), phase=phase
        )
        for row in step.rows:
            if row.phase is not Phase.DECODE:
                self._observe("phasescope:chunk_tokens", row.length, phase=row.phase.value)

    def add_totals(self, totals: Totals) -> None:
        """Counts that the store keeps exactly, whatever its history has dropped."""
        # Summed up while requests grow, the total may fall a token short of an earlier one.
        new = max(0, totals.output_tokens - self._num_output_tokens)
        self._num_output_tokens += new
        self._count("vllm:generation_tokens", new)
        for reason, name in _REASONS.items():
            ended = totals.requests[reason] - self._num_ended[reason]
            self._count("vllm:request_success", ended, finished_reason=name)
        self._num_ended = dict(totals.requests)

    def set_gauges(self, service: EngineService) -> None:
        """What is now."""
        live = [record for record in service.store.live() if record.finished is None]
        running = sum(record.status is RequestStatus.RUNNING for record in live)
        self._gauges["vllm:num_requests_running"].labels(**self._base).set(running)
        self._gauges["vllm:num_requests_waiting"].labels(**self._base).set(len(live) - running)
        engine = service.engine
        if engine is not None:
            pool = engine.scheduler.pool
            usage = pool.num_used / engine.config.num_blocks
            for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
                self._gauges[name].labels(**self._base).set(usage)
            self._gauges["phasescope:evictable_blocks"].labels(**self._base).set(pool.num_evictable)

    def _bound(self, step: StepRecord, info: ModelInfo) -> str:
        """What the page says of the step: it too raises the ceilings that a step has beaten."""
        if info.shape is None or info.ceilings is None:
            return "unknown"
        work = roofline.step_work(info.shape, step.rows, step.num_sampled)
        self._ceilings = roofline.raised(self._ceilings or info.ceilings, work, step.duration)
        return roofline.classify(work, step.duration, self._ceilings).value

    def _count(self, name: str, amount: float, **labels: str) -> None:
        self._counters[name].labels(**self._base, **labels).inc(amount)

    def _observe(self, name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            self._histograms[name].labels(**self._base, **labels).observe(value)


def _one_two_five(limit: int) -> Iterator[int]:
    """1, 2, 5, 10, 20, ... up to the limit: vLLM's buckets for counts of tokens."""
    power = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * power > limit:
                return
            yield mantissa * power
        power *= 10
