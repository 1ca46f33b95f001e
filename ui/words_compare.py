"""What the Compare tab says."""

from __future__ import annotations

from typing import Any, Final

COMPARE: Final[dict[str, str]] = {
    "tab": "Compare",
    "empty": "Choose an effect, or describe your traffic, and run it under A and B.",
    "change": "Change",
    "run": "Run both",
    "again": "Run both again",
    "stop": "Stop",
    "effect": "What to compare",
    "own": "Your own traffic: a shape or a trace file",
    "own_hint": "Both sides get the same requests. Choose below in what A and B differ.",
    "look_at": "Look at: {text}",
    "where": "Where",
    "real": "This engine",
    "simulated": "Simulation",
    "simulated_tag": "simulated",
    "real_hint": (
        "This engine: takes it alone for at most {seconds:.0f} s; chats sent meanwhile wait. "
        "Simulation: the same scheduler in virtual time on a cost model; nothing is measured."
    ),
    "repeats": "Runs of each side",
    "repeats_hint": "Interleaved A B B A. From {least} pairs on a difference can be claimed.",
    "seed": "Seed",
    "seed_hint": "Both sides of a pair get the same traffic; each pair has the next seed.",
    "ttft_limit": "TTFT limit, ms",
    "tpot_limit": "TPOT limit, ms",
    "limit_hint": "For goodput; 0: none.",
    "key": "Admin key",
    "key_hint": "This server is locked; only who has its key may start or delete experiments.",
    "wrong_key": "That is not this server's admin key. Nothing was done.",
    "before_you": "Waiting for a turn: {experiments} before yours.",
    "preparing": (
        "Getting ready: requests that run now are finished first, then come a few for warming up, "
        "which do not count."
    ),
    "progress": "Run {run} of {runs}, {side}: {done} of {total} requests ended.",
    "running_already": "Your experiment is still running; stop it first.",
    "stopping": "Stopping after what is being computed.",
    "lesson_stopped": (
        "The lesson was stopped, so there is nothing to see. Go back to Predict and run it again."
    ),
    "save_failed": "The result could not be written to {folder}: {reason}.",
    "failed": "The experiment failed: {reason}",
    "no_vocabulary": "This model's tokenizer does not say which tokens it has; use the simulation.",
    "not_serving": "The engine does not serve now; use the simulation, or try again later.",
    "ask_whole": "{label} must be a whole number; got {value}.",
    "ask_range": "{label} must be from {low} to {high}; got {value}.",
    "ask_lengths": "{label}: write at least one length, such as 12, 40, 55.",
    "same_sides": "A and B have the same settings; change at least one of them.",
    "timelines": "Same arrivals, one time axis",
    "one_timeline": "The run",
    "drawn": "run {run} of {runs}",
    "drawn_simulated": "run {run} of {runs}, simulated",
    "difference": "Difference",
    "legend_claimed": "filled: B better; outlined: B worse; no change: within 3 %",
    "legend_few": "too few runs to tell from noise: no side is called better",
    "uncarried": "max stands where the samples are too few for a percentile.",
    "gaps": "Gap between tokens, from typical to worst",
    "results": "Results",
    "no_results": "No results yet. The newest {most} are kept.",
    "open": "Open",
    "delete": "Delete",
    "export": "Export",
    "export_csv": "Runs (CSV)",
    "export_sends": "Sending times (CSV)",
    "export_json": "Everything (JSON)",
    "export_trace": "Timelines (Perfetto)",
    "as_table": "Show as table",
    "link": "Link to this result",
    "cut": "the first {requests} of {total} requests are drawn",
    "cut_steps": "the first {steps} of {total} steps are drawn",
}

SIDE_LABELS: Final[dict[str, tuple[str, str]]] = {
    "policy": ("Policy", "How a step is filled."),
    "max_batched_tokens": ("Token budget", "Positions one step may compute."),
    "max_running": ("Slots", "Requests computed side by side."),
    "prefix_caching": ("Prefix caching", "Reuse the KV blocks of equal prompt openings."),
    "queue_order": ("Queue order", "Who of those that wait is next."),
    "long_prompt_threshold": ("Long-prompt threshold", "Most tokens of one prompt a step; 0: any."),
    "num_blocks": ("KV blocks", "Size of the KV cache, in 16-token blocks."),
}

METRICS: Final[dict[str, tuple[str, str, str]]] = {
    "ttft": (
        "TTFT",
        "request",
        "Time to first token: from submitted to first_token_delivered. It is input preparation + "
        "queueing + prefill + delivery; the four parts add up exactly.",
    ),
    "input_preparation": (
        "input preparation",
        "request",
        "From submitted to queued: chat template, tokenisation, validation.",
    ),
    "queueing": (
        "queueing",
        "request",
        "From queued to scheduled: waiting for a slot, blocks or token budget.",
    ),
    "prefill": (
        "prefill",
        "request",
        "From scheduled to first_token_sampled: the steps that read the prompt, including waits "
        "between chunks.",
    ),
    "delivery": (
        "delivery",
        "request",
        "From first_token_sampled to first_token_delivered, taken on the server.",
    ),
    "itl": (
        "ITL",
        "gap",
        "Inter-token latency: from token_delivered[i] to token_delivered[i+1] of one request. The "
        "first token is not counted.",
    ),
    "longest_pause": (
        "Longest pause",
        "request",
        "The largest gap between two output tokens inside one request.",
    ),
    "tpot": (
        "TPOT",
        "request",
        "(last_token_delivered - first_token_delivered) / (output tokens - 1): the mean ITL of one "
        "request.",
    ),
    "e2e": ("E2E", "request", "From submitted to last_token_delivered."),
    "throughput": (
        "Throughput",
        "run",
        "Output tokens delivered in the window / window length. Prompt tokens are not counted.",
    ),
    "goodput": (
        "Goodput",
        "run",
        "Requests a second that finished within both limits: time to first token, and mean time "
        "for each further token.",
    ),
    "cost": (
        "Cost",
        "run",
        "What the window's time cost at the price given for an hour / output tokens, for a "
        "million of them.",
    ),
    "hits": (
        "Prefix hits",
        "run",
        "Prompt tokens found in the prefix cache / all prompt tokens. The cache is emptied before "
        "each run.",
    ),
    "errors": ("Failed or refused", "run", "Requests that ended in an error or were turned away."),
}

PARTS: Final = ("input_preparation", "queueing", "prefill", "delivery")

BROWSER_COMPARE: Final[dict[str, Any]] = {
    "loading": "Loading the timelines…",
    "not_loaded": "The timelines could not be loaded ({reason}). Open the result again.",
    "no_token": "no token for {time}",
    "longest_gap": "longest gap {time}",
    "read_in": "the {tokens}-token prompt is read in {steps}",
    "largest_step": "largest step",
    "largest": "largest",
    "since_start": "since start",
    "side_label": "{name}: {title}. {n} requests, {steps} steps, {end}. {finding}",
    "nothing": "nothing",
    "table_caption": "Requests of the run that is drawn, {n} of {total}",
    "table_head": ["request", "prompt", "answer", "submitted"],
    "table_side": ["{name} reused", "{name} TTFT", "{name} longest pause", "{name} ended"],
    "columns": "Side by side",
    "stacked": "One axis",
    "banner": (
        "An experiment has the engine alone, for {time} at most: {label}. "
        "Messages sent now are answered after it."
    ),
    "banner_waiting": " {n} more wait.",
}

KEYS_HINT: Final = (
    "Timeline of {name}; the other side follows. Arrow left and right move the crosshair step by "
    "step, plus and minus zoom, 0 shows everything, Escape leaves. Dragging selects a stretch."
)
