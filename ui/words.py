"""Every caption, definition and tooltip of the page, in one place.

Plain words; each number is defined by its two timestamps, named as in the exported trace. This
module knows nothing of how the words are placed.
"""

from __future__ import annotations

from typing import Any, Final

from ui.words_replay import REPLAY

TITLE: Final = "PhaseScope"
CHAT_TITLE: Final = "Chat"
DASH: Final = "\N{EN DASH}"

DEFINITIONS: Final[dict[str, tuple[str, str]]] = {
    "running": ("Running", "Requests holding a slot in the current step."),
    "waiting": ("Waiting", "Requests submitted and not yet scheduled."),
    "kv": (
        "KV cache",
        "Blocks referenced by running requests, divided by all blocks. Cached, evictable "
        "blocks are "
        "shown faded and not counted.",
    ),
    "throughput": (
        "Output",
        "Output tokens delivered in the window, divided by the window's length. Prompt tokens are "
        "not counted.",
    ),
    "ttft": (
        "TTFT",
        "Time to first token: from submitted to first_token_delivered. It is input preparation + "
        "queueing + prefill + delivery; the four parts add up exactly.",
    ),
    "itl": (
        "ITL",
        "Inter-token latency: from token_delivered[i] to token_delivered[i+1] of one request. The "
        "first token is not counted.",
    ),
    "preparation": (
        "preparation",
        "Input preparation: from submitted to queued. Chat template, tokenisation, validation.",
    ),
    "queue": (
        "queue",
        "Queueing: from queued to scheduled. Waiting for a slot, blocks or token budget.",
    ),
    "prefill": (
        "prefill",
        "From scheduled to first_token_sampled: the steps that read the prompt, including waits "
        "between chunks.",
    ),
    "delivery": (
        "delivery",
        "From first_token_sampled to first_token_delivered, taken on the server when the reader "
        "takes the token: detokenise and hand over.",
    ),
}

CAPTIONS: Final[dict[str, tuple[str, str]]] = {
    "requests": (
        "Requests",
        "One lane each. Where the blue ticks spread out, tokens arrive slowly.",
    ),
    "steps": (
        "Engine steps",
        "Bar width is how long the step took. A full orange bar makes every stream in that step "
        "wait for it.",
    ),
    "gaps": (
        "Gap between tokens (ITL)",
        "One dot per token, log scale; bold dots are yours. Lines: running percentiles over "
        "2\N{NO-BREAK SPACE}s.",
    ),
    "growth": (
        "KV cache growth",
        "The jump is prefill; then one token per step. Dotted: finished, kept for reuse.",
    ),
    "offset": (
        "One-token offset",
        "The newest token is on screen, but enters the cache only when it is fed in to make the "
        "next.",
    ),
    "kv": ("KV cache now", "One cell is a 16-token block; counts are blocks."),
    "ttft": ("Time to first token", "What each first token waited for."),
    "roofline": (
        "What limits each step",
        "Near the slope, memory limits a step; near the flat top, compute. Hollow dots lose "
        "time to "
        "overhead.",
    ),
}

WINDOW_CHOICES: Final[tuple[tuple[str, str], ...]] = (
    ("steps-100", "Last 100 steps"),
    ("steps-400", "Last 400 steps"),
    ("steps-2000", "Last 2,000 steps"),
    ("seconds-10", "Last 10 s"),
    ("seconds-60", "Last 60 s"),
    ("all", "All"),
)

TRACE_HINT: Final = "Times of this request as a file to open in ui.perfetto.dev"

KEYS_HINT: Final = (
    "Timeline keys: up and down move between requests, left and right move the crosshair by a "
    "step, "
    "plus and minus zoom, zero shows everything again, Escape leaves, Space pauses. Drag to "
    "measure, "
    "Shift and drag to move, Ctrl and wheel to zoom."
)

BROWSER: Final[dict[str, Any]] = {
    "replay": REPLAY,
    "you": "you",
    "yours": "yours",
    "no_requests": "No requests yet. Send a message, or add 5 users.",
    "no_traffic": "No requests yet. Choose a shape and press Run.",
    "no_rows": "Nothing in this window yet.",
    "lane_head": "request · prompt",
    "lane_head_narrow": "request",
    "output_head": "output",
    "at_cursor": "at cursor",
    "first_token_in": "first token in {time}",
    "no_token_yet": "no token yet",
    "reused": "{cached} of {prompt} prompt tokens reused",
    "lane_label": (
        "{id}: {state}. Prompt {prompt} tokens, {first}, output {out} tokens. Open details."
    ),
    "requests_label": "Timeline of {n} requests, {own} of them yours.",
    "counts_label": ["requests", "in each phase"],
    "raster_label": ["{n} others,", "by arrival"],
    "raster_hint": ["hover a row", "to name it"],
    "slots_of": "{n} slots",
    "prefill": "prefill",
    "decode": "decode",
    "slots": "slots",
    "budget": "budget",
    "token_budget": "token budget",
    "capacity": "capacity",
    "steps_label": "Engine steps: prefill tokens above the line, decode tokens below.",
    "gaps_label": "Gaps between output tokens over time, log scale:",
    "growth_label": "Tokens in the KV cache per request over time.",
    "clock_axis": "clock, m:ss",
    "no_step": "no step",
    "pause": "Pause",
    "resume": "Resume",
    "paused_behind": "paused, {time} behind",
    "last_data": "last data {time} ago",
    "idle_for": "idle for {time}",
    "stopped_at": "stopped at {time}",
    "requests_count": ["request", "requests"],
    "gaps_count": ["gap", "gaps"],
    "all_requests": "all {n}",
    "states": {
        "preparing": "preparing",
        "queued": "queued",
        "reading": "reading",
        "writing": "writing",
        "done": "done",
        "cancelled": "stopped",
        "failed": "failed",
    },
    "header_states": {
        "connecting": "Connecting…",
        "loading": "Loading",
        "measuring": "Measuring machine",
        "live": "Live",
        "idle": "Idle",
        "busy": "Busy",
        "queue_full": "Queue full",
        "kv_full": "KV full",
        "stopped": "Stopped",
        "failed": "Failed",
        "stuck": "Stuck",
        "recovering": "Recovering",
        "reconnecting": "Reconnecting…",
        "offline": "Offline",
        "replay": "Replay",
    },
    "notices": {
        "loading": "Loading the model. Charts start with the first request.",
        "measuring": "Measuring what this machine can do. The chat opens in a moment.",
        "failed": "The model could not be loaded.",
        "stopped": "The engine stopped after an error. What was measured stays on the page.",
        "stuck": "A step has run far longer than any before it.",
        "recovering": "The engine failed a step and is starting over; requests in it were lost.",
        "reconnecting": "No answer from the server. Charts are frozen; last data {time} ago.",
        "offline": "The server has not answered for {time}. Charts show the last data.",
    },
    "retry": "Retry",
    "retry_load": "Retry",
    "restart": "Restart engine",
    "restarting": "Asked the server to start again…",
    "restart_locked": "This server is locked. Enter its admin key, then try again.",
    "restart_refused": "The server refused to restart (status {status}). Look at its log.",
    "restart_unreachable": "The server could not be reached. Check that it runs, then try again.",
    "offset_title": "One-token offset, {id}",
    "offset_title_empty": "One-token offset",
    "offset_empty": "Shows your newest answer, token by token.",
    "offset_prompt": "prompt {prompt} tokens",
    "offset_prompt_narrow": "prompt {prompt}",
    "on_screen": "on screen",
    "in_cache": "in cache",
    "next": "next",
    "reading_progress": "{done} of {prompt} prompt tokens in cache",
    "kv_caption": "One cell is a 16-token block; counts are blocks.",
    "kv_caption_many": "One cell is {k} blocks; counts are blocks.",
    "kv_empty": "Empty cache: 0 of {all} blocks in use.",
    "kv_label": (
        "KV cache: {used} of {all} blocks in use, {cached} cached and evictable, {free} free."
    ),
    "kv_legend": {
        "others": "others",
        "shared": "shared prefix",
        "reused": "dot: reused",
        "cached": "cached, evictable",
        "free": "free",
    },
    "ttft_captions": {
        "parts": CAPTIONS["ttft"][1],
        "time": (
            "A dot at each first token, bigger for yours. Lines: p50 and dashed p95 of the last 20."
        ),
    },
    "roof_unknown": "This machine's ceilings have not been measured.",
    "roof_empty": "No steps in this window.",
    "roof_label": "Roofline of {steps}; {overhead} of them lost most of their time to overhead.",
    "roof_memory": "memory {rate}",
    "roof_compute": "compute {rate}",
    "memory_bound": "memory-bound",
    "compute_bound": "compute-bound",
    "not_held": "no longer held by this page",
    "parts_add_up": "The four parts before the first token add up to TTFT, {time}.",
    "moments": {
        "submitted": "submitted",
        "queued": "in the queue",
        "scheduled": "picked by scheduler",
        "read": "prompt read, chunks: {n}",
        "first_token": "first token delivered",
        "latest_token": "latest token delivered",
        "last_token": "last token delivered",
        "finished": "finished",
    },
    "parts": {
        "preparation": "preparation",
        "queue": "queue",
        "prefill": "prefill",
        "delivery": "delivery",
        "decode": "decode",
    },
    "facts": {
        "prompt": "Prompt tokens",
        "reused": "{n} reused",
        "output": "Output tokens",
        "limit": "limit {n}",
        "itl": "ITL p50, p95",
        "longest": "Longest pause",
        "gaps": "of {n} gaps",
        "tpot": "TPOT",
        "kv": "In KV cache",
        "preempted": "Preempted",
        "once": "once",
        "times": "{n} times",
        "recomputed": "{n} recomputed",
        "finish": "Finished by",
    },
    "composition": "Prompt made of",
    "composition_parts": {
        "system": "system prompt",
        "history": "earlier turns",
        "message": "new message",
        "template": "chat template",
    },
    "finish_reasons": {
        "stop": "end of answer",
        "length": "token limit",
        "cancelled": "stopped by its reader",
        "error": "error",
    },
    "tables": {
        "requests": {
            "caption": "Requests in the window",
            "head": [
                "request",
                "state",
                "prompt",
                "reused",
                "output",
                "submitted",
                "TTFT",
                "longest pause",
            ],
        },
        "steps": {
            "caption": "Newest steps in the window, at most 200",
            "head": [
                "step",
                "start",
                "duration",
                "prefill",
                "decode",
                "running",
                "waiting",
                "bound",
            ],
        },
        "gaps": {
            "caption": "Gaps between tokens per request",
            "head": ["request", "gaps", "p50", "p95", "p99", "longest pause"],
        },
        "growth": {
            "caption": "Tokens in the KV cache per request",
            "head": ["request", "state", "tokens", "memory"],
        },
        "kv": {
            "caption": "Blocks of the KV cache now",
            "head": ["held by", "blocks", "share"],
        },
        "ttft": {
            "caption": "Time to first token in parts",
            "head": ["request", "preparation", "queue", "prefill", "delivery", "TTFT"],
        },
        "roofline": {
            "caption": "What limited the steps of the window",
            "head": ["bound", "steps", "share of time"],
        },
    },
}
"""What the page's scripts say; ``{name}`` is filled in by the browser."""
