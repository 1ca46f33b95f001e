"""Puts an engine's parts together from settings: model, tokenizer, runner and a fitting KV pool.

The one place that knows both what was asked for and what the device has.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from engine.contracts import EngineParts, ModelInfo, Report, ServiceStatus
from engine.core.config import EngineConfig
from engine.core.errors import ModelNotServable
from engine.model.cache import cache_folder
from engine.model.ceilings import measure_ceilings, shape_of
from engine.model.devices import describe_device, free_bytes, pick_device, pick_dtype
from engine.model.kernels import load_kernels
from engine.model.loading import LoadedModel, load
from engine.model.probe import probe
from engine.model.progress import Progress
from engine.model.runners import make_runner
from engine.model.sources import find_source
from engine.model.text import Tokenizer
from engine.model.tuning import tune
from engine.settings import Settings

log = logging.getLogger(__name__)

BLOCK_SIZE = 16
# Of the memory that is free once the weights are loaded. Main memory is shared with the page and
# with whatever else runs; a GPU is ours, but activations need their part.
_POOL_SHARE = {"cpu": 0.5, "mps": 0.5, "xpu": 0.85, "cuda": 0.85}
_MEGABYTE = 1_000_000
_VERBS = {"downloading": "Downloading", "converting": "Converting", "loading": "Loading"}


def build_engine(settings: Settings, report: Report) -> EngineParts:
    """Load what the settings ask for and make it ready to serve, telling `report` how far it is.

    Raises the errors of `engine.model.loading.load`, and ModelNotServable when the KV pool does
    not fit or the model cannot be served on our attention.
    """
    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device)
    source = find_source(settings.model)

    def progress(step: Progress) -> None:
        report(ServiceStatus.LOADING, *_describe(step, source.name))

    with ThreadPoolExecutor(1, thread_name_prefix="compile") as pool:
        # Compiling is a program of its own: it runs beside the loading.
        compiling = pool.submit(load_kernels) if settings.kernels and device.type == "cpu" else None
        loaded = load(source, device, dtype, progress)
        kv_bytes = probe(loaded.model)
        shape = shape_of(loaded.model, kv_bytes)
        if compiling is not None and not compiling.done():
            report(ServiceStatus.LOADING, "Compiling kernels for this processor, once.", None)
    kernels = tune(loaded.model, kernels=compiling is not None and compiling.result())
    config = _configure(settings, loaded, kv_bytes)
    report(ServiceStatus.MEASURING, "Measuring this machine.", None)
    runner, path = make_runner(
        loaded.model, num_blocks=config.num_blocks, block_size=BLOCK_SIZE, kernels=kernels
    )
    ceilings = measure_ceilings(
        loaded.model, device, runner=runner, cache=cache_folder() / "ceilings.json"
    )
    where = f"{describe_device(device)}, {path}"
    log.info("%s runs on %s.", loaded.name, where)
    info = ModelInfo(
        name=loaded.name,
        dtype=str(dtype).removeprefix("torch."),
        device=where,
        kv_bytes_per_token=kv_bytes,
        shape=shape,
        ceilings=ceilings,
    )
    tokenizer = Tokenizer(loaded.tokenizer, loaded.generation_config.eos_token_id)
    return EngineParts(config=config, runner=runner, tokenizer=tokenizer, info=info)


def _configure(settings: Settings, loaded: LoadedModel, kv_bytes: int) -> EngineConfig:
    context = min(settings.context, loaded.context_length or settings.context)
    return EngineConfig(
        num_blocks=settings.kv_blocks or _fitting_blocks(settings, loaded, kv_bytes, context),
        max_batched_tokens=settings.budget,
        max_running=settings.slots,
        max_waiting=settings.queue,
        max_model_len=context,
        block_size=BLOCK_SIZE,
        prefix_caching=settings.prefix_caching,
        policy=settings.policy,
        queue_order=settings.queue_order,
        fingerprint=loaded.fingerprint,
    )


def _fitting_blocks(settings: Settings, loaded: LoadedModel, kv_bytes: int, context: int) -> int:
    """Blocks for every slot at full context, or as many as the free memory has room for."""
    wanted = settings.slots * -(-context // BLOCK_SIZE)
    free = free_bytes(loaded.device) * _POOL_SHARE.get(loaded.device.type, 0.5)
    affordable = int(free // (kv_bytes * BLOCK_SIZE))
    if affordable < 1:
        raise ModelNotServable(
            f"{loaded.name} leaves {free / _MEGABYTE:,.0f} MB for the KV cache, less than one "
            f"block of {kv_bytes * BLOCK_SIZE / _MEGABYTE:,.1f} MB. Free some memory or take a "
            f"smaller model."
        )
    return min(wanted, affordable)


def _describe(step: Progress, name: str) -> tuple[str, float | None]:
    if step.stage not in _VERBS or not step.total_bytes:
        return f"Preparing {name}.", None
    done, total = step.done_bytes // _MEGABYTE, step.total_bytes // _MEGABYTE
    sentence = f"{_VERBS[step.stage]} {name}: {done:,} of {total:,} MB"
    return sentence, step.done_bytes / step.total_bytes
