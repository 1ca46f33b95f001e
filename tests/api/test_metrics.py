"""/metrics: vLLM's names and labels, numbers that add up, and nothing that goes back."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.api.metrics import EngineMetrics
from engine.contracts import ServiceStatus
from engine.core.capacity import Ceilings, ModelShape
from engine.core.errors import PhaseScopeError
from engine.core.plan import StepPlan
from engine.service import EngineService
from tests.api.server import ApiRunner, Server, served
from tests.stub_service import ScriptedRunner, stub_build, wait_until

LABELS = {"model_name": "stub", "engine": "0"}
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def read(server: Server) -> Samples:
    reply = server.http.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(reply.text))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset({**LABELS, **labels}.items())]


def test_a_server_that_has_done_nothing_says_zero() -> None:
    with served() as server:
        samples = read(server)
        assert len(samples) > 100
        assert set(samples.values()) == {0.0}
        assert all(LABELS.items() <= set(labels) for _, labels in samples)


def test_the_numbers_are_those_of_the_requests() -> None:
    with served(max_batched_tokens=64) as server:
        prompt = "a prompt of more than one whole block"
        server.complete(prompt=prompt, max_tokens=4, stream=True)
        server.complete(prompt=prompt, max_tokens=3)
        server.idle()
        samples = read(server)
        assert value(samples, "vllm:prompt_tokens_total") == 2 * len(prompt)
        assert value(samples, "vllm:generation_tokens_total") == 7
        assert value(samples, "vllm:prefix_cache_queries_total") == 2 * len(prompt)
        assert value(samples, "vllm:prefix_cache_hits_total") == 32
        assert value(samples, "vllm:request_success_total", finished_reason="length") == 2
        # Whole replies have no moment at which their tokens were taken.
        assert value(samples, "vllm:time_to_first_token_seconds_count") == 1
        assert value(samples, "vllm:inter_token_latency_seconds_count") == 3
        assert value(samples, "vllm:request_generation_tokens_sum") == 7
        assert value(samples, "vllm:e2e_request_latency_seconds_count") == 2
        assert value(samples, "vllm:iteration_tokens_total_count") == 7
        steps = value(samples, "vllm:iteration_tokens_total_sum")
        assert steps == 2 * len(prompt) - 32 + 7 - 2
        parts = [
            value(samples, "phasescope:ttft_part_seconds_sum", part=part)
            for part in ("input_preparation", "queueing", "prefill", "delivery")
        ]
        ttft = value(samples, "vllm:time_to_first_token_seconds_sum")
        assert sum(parts) == pytest.approx(ttft)
        chunks = value(samples, "phasescope:chunk_tokens_sum", phase="prefill")
        assert chunks == 2 * len(prompt) - 32
        gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        assert [value(samples, gauge) for gauge in gauges] == [0, 0]
        assert value(samples, "vllm:kv_cache_usage_perc") == 0
        assert value(samples, "phasescope:evictable_blocks") == 2


def test_gauges_say_who_runs_and_who_waits() -> None:
    with served(ApiRunner(seconds=0.02), max_running=1) as server:
        body = {"prompt": "a", "n": 3, "max_tokens": 500, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=body):
            wait_until(lambda: bool(server.service.engine and server.service.engine.num_steps))
            samples = read(server)
            assert value(samples, "vllm:num_requests_running") == 1
            assert value(samples, "vllm:num_requests_waiting") == 2
            assert value(samples, "vllm:kv_cache_usage_perc") == 1 / 256
        server.idle()
        assert value(read(server), "vllm:num_requests_waiting") == 0
        assert value(read(server), "vllm:request_success_total", finished_reason="abort") == 3


def test_counters_never_go_back_whatever_happens() -> None:
    def fail(plan: StepPlan) -> None:
        if any(chunk.length == 13 for chunk in plan.chunks):
            raise PhaseScopeError("The stub was told to fail.")

    with served(ApiRunner(before=fail)) as server:
        before: Samples = {}

        def check() -> Samples:
            samples = read(server)
            for key, earlier in before.items():
                if not key[0].startswith(
                    ("vllm:num_requests", "vllm:kv", "vllm:gpu", "phasescope:evict")
                ):
                    assert samples[key] >= earlier, key
            return samples

        service = server.service
        for _ in range(3):
            server.complete(max_tokens=5)
            before = check()
            server.complete(prompt="x" * 13)
            before = check()
            wait_until(lambda: service.state.status is ServiceStatus.READY or _restart(service))
        server.complete(max_tokens=5)
        after = check()
        assert value(after, "vllm:request_success_total", finished_reason="error") == 3
        assert value(after, "vllm:request_success_total", finished_reason="length") == 4


def _restart(service: EngineService) -> bool:
    if service.state.status is ServiceStatus.STOPPED:
        service.start()
    return False


def test_nothing_is_missed_however_seldom_somebody_reads() -> None:
    with served() as server:
        server.metrics.start()
        try:
            # More steps than the history keeps, with pauses in which they are taken in.
            for _ in range(5):
                server.complete(prompt=["a"] * 8, max_tokens=1000)
            assert value(read(server), "vllm:iteration_tokens_total_count") >= 5000
        finally:
            server.metrics.close()


def test_two_apps_in_one_process_have_registries_of_their_own() -> None:
    with served() as first, served() as second:
        first.complete(max_tokens=2)
        first.idle()
        assert value(read(first), "vllm:generation_tokens_total") == 2
        assert value(read(second), "vllm:generation_tokens_total") == 0


def test_before_the_model_is_loaded_there_is_nothing_to_tell() -> None:
    service = EngineService(stub_build(ScriptedRunner()))
    assert EngineMetrics(service).text() == b""


def test_head_is_answered_without_a_body(server: Server) -> None:
    reply = server.http.head("/metrics")
    assert reply.status_code == 200
    assert reply.content == b""


def test_seconds_of_steps_are_told_by_bound_and_phase() -> None:
    with served(max_batched_tokens=32) as server:
        info = server.service.info
        assert info is not None
        server.complete(prompt="x" * 40, max_tokens=3)
        server.idle()
        samples = read(server)
        phases = {
            phase: value(samples, "phasescope:step_seconds_total", bound="unknown", phase=phase)
            for phase in ("prefill", "decode")
        }
        steps = server.service.store.steps_since(0)
        assert math.isclose(sum(phases.values()), sum(step.duration for step in steps))
        assert all(seconds > 0 for seconds in phases.values())
        # Where the machine was measured, the bound has a name.
        shape = ModelShape(
            matrix_parameters=1,
            hidden_size=1,
            intermediate_size=1,
            vocab_size=1,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=1,
            weight_bytes=1,
            kv_bytes_per_token=1,
            activation_bytes=1,
            tied=True,
        )
        object.__setattr__(info, "shape", shape)
        object.__setattr__(info, "ceilings", Ceilings(1e12, 1e12, 0.0))
        server.complete(max_tokens=3)
        server.idle()
        samples = read(server)
        overhead = [k for k in samples if ("bound", "overhead") in k[1]]
        assert overhead


def test_a_model_that_is_loaded_again_goes_on_in_the_same_families() -> None:
    others = set(threading.enumerate())
    with served() as server:
        server.complete(max_tokens=2)
        for _ in range(3):
            server.service.close()
            server.service.start()
            wait_until(lambda: server.service.state.status is ServiceStatus.READY)
        server.complete(max_tokens=3)
        server.idle()
        assert value(read(server), "vllm:generation_tokens_total") == 5
        wait_until(
            lambda: [t.name for t in set(threading.enumerate()) - others].count("engine") == 1
        )
