"""Kinds of traffic by name, as small models on small machines can carry them: each is a starting
point that a person edits. Numbers are tokens; they state what a shape is, not what was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.lab.workload import Part, WorkloadSpec
from engine.lab.workload_arrivals import Arrivals, Constant, Poisson
from engine.lab.workload_lengths import Fixed, Lengths, LogNormal, Normal, Uniform, mixture


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of traffic: its sentence for the page and the spec it starts from."""

    title: str
    explanation: str
    spec: WorkloadSpec

    def describe(self) -> str:
        """Prompt and answer lengths and the shared-prefix share, part by part."""
        return "; ".join(_describe_part(part) for part in self.spec.parts)

    @property
    def prompt(self) -> Lengths:
        """Prompt lengths of all its parts together; of a conversation, what each turn adds."""
        return mixture([(part.weight, part.prompt) for part in self.spec.parts])

    @property
    def output(self) -> Lengths:
        """Answer lengths of all its parts together."""
        return mixture([(part.weight, part.output) for part in self.spec.parts])

    @property
    def sharing(self) -> str:
        """How much of its prompts is shared, in a few words."""
        if self.spec.turns > 1:
            return f"each of {self.spec.turns} turns repeats all before it"
        shares = sorted({round(part.shared_share * 100) for part in self.spec.parts})
        if len(shares) == 1:
            return f"{shares[0]} % shared" if shares[0] else "nothing shared"
        return f"{shares[0]} to {shares[-1]} % shared"


def _shape(name: str, title: str, explanation: str, **settings: object) -> tuple[str, Shape]:
    return name, Shape(title, explanation, WorkloadSpec(name=name, **settings))  # type: ignore[arg-type]


_ONE_A_SECOND: Arrivals = Poisson(1.0)

SHAPES: dict[str, Shape] = dict(
    [
        _shape(
            "chat",
            "Chat",
            "Short questions behind a common system prompt, answers of a paragraph.",
            parts=(
                Part(
                    prompt=LogNormal(120, 0.6, 24, 600),
                    output=LogNormal(60, 0.5, 8, 200),
                    shared_share=0.4,
                ),
            ),
            num_requests=24,
            arrivals=Poisson(2.0),
        ),
        _shape(
            "rag",
            "RAG, long context",
            "Long prompts that share a document, short answers.",
            parts=(
                Part(prompt=Normal(1200, 150, 800, 1600), output=Uniform(16, 64), shared_share=0.6),
            ),
            num_requests=12,
            arrivals=_ONE_A_SECOND,
        ),
        _shape(
            "long-output",
            "Long output",
            "Short prompts, answers of pages: almost all time is spent writing.",
            parts=(Part(prompt=Uniform(32, 96), output=Normal(320, 60, 160, 480)),),
            num_requests=12,
            arrivals=_ONE_A_SECOND,
        ),
        _shape(
            "mixed",
            "Mixed",
            "Mostly chats, and now and then a long prompt that may hold everybody up.",
            parts=(
                Part(
                    prompt=LogNormal(100, 0.5, 24, 400),
                    output=LogNormal(60, 0.5, 8, 160),
                    weight=5,
                    shared_share=0.3,
                ),
                Part(prompt=Normal(1500, 200, 1000, 2000), output=Uniform(16, 48), weight=1),
            ),
            num_requests=24,
            arrivals=Poisson(1.5),
        ),
        _shape(
            "batch",
            "Batch",
            "Everything is handed in at once and nobody waits: throughput comes first.",
            parts=(Part(prompt=Normal(200, 60, 64, 400), output=Normal(96, 24, 32, 160)),),
            num_requests=32,
            arrivals=Constant(math.inf),
            streamed=False,
        ),
        _shape(
            "agent",
            "Agent",
            "Conversations of several turns, each sent with all that was said before.",
            parts=(Part(prompt=Uniform(80, 160), output=Uniform(24, 64)),),
            num_requests=24,
            arrivals=_ONE_A_SECOND,
            turns=4,
            think_seconds=0.5,
        ),
    ]
)


def fixed(spec: WorkloadSpec, prompt: int | None, output: int | None) -> WorkloadSpec:
    """The spec with all prompts or answers of one length; None leaves them as they are."""
    parts = [
        replace(part, prompt=_or(prompt, part.prompt), output=_or(output, part.output))
        for part in spec.parts
    ]
    return replace(spec, parts=tuple(parts))


def _or(tokens: int | None, lengths: Lengths) -> Lengths:
    return lengths if tokens is None else Fixed(tokens)


def _describe_part(part: Part) -> str:
    text = f"prompts {part.prompt.describe()}; answers {part.output.describe()}"
    return f"{text}; {part.shared_share * 100:.0f} % of the typical prompt shared"
