"""A runner without a model: its memory holds token ids, so a wrong block gives a wrong token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from engine.core.clock import VirtualClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine, StepOutput
from engine.core.plan import Chunk, NoText, SampledToken, StepPlan, StepResult, Text
from engine.core.request import Request, SamplingParams, Timeline

VOCABULARY = 50


def next_token(tokens: Sequence[int]) -> int:
    """The stub model: a token that depends on every token before it."""
    digest = blake2b(bytes(t % 256 for t in tokens), digest_size=4).digest()
    return 3 + int.from_bytes(digest, "little") % (VOCABULARY - 3)


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    """The `count` tokens that the stub model generates behind a prompt."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class StubRunner:
    """Writes token ids through block tables and predicts from what it reads back through them."""

    def __init__(
        self,
        config: EngineConfig,
        clock: VirtualClock,
        choose: Callable[[Chunk, int], SampledToken] | None = None,
    ) -> None:
        self._memory = [[-1] * config.block_size for _ in range(config.num_blocks)]
        self._block_size = config.block_size
        self._clock = clock
        self._choose = choose
        self.plans: list[StepPlan] = []

    def run(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        self._clock.advance(0.01)
        for chunk in plan.chunks:
            for position in range(chunk.start, chunk.start + chunk.length):
                block = chunk.request.block_table[position // self._block_size]
                self._memory[block][position % self._block_size] = chunk.request.token_ids[position]
        return StepResult(tuple(self._sample(chunk) for chunk in plan.chunks if chunk.samples))

    def resize(self, num_blocks: int) -> None:
        self._memory = [[-1] * self._block_size for _ in range(num_blocks)]

    def reset(self) -> None:
        self._memory = [[-1] * self._block_size for _ in self._memory]

    def _sample(self, chunk: Chunk) -> SampledToken:
        end = chunk.start + chunk.length
        seen = [
            self._memory[chunk.request.block_table[p // self._block_size]][p % self._block_size]
            for p in range(end)
        ]
        token = next_token(seen)
        return self._choose(chunk, token) if self._choose else SampledToken(token)


class Harness:
    """An engine on a virtual clock with the stub runner, checked after every step."""

    def __init__(
        self,
        *,
        choose: Callable[[Chunk, int], SampledToken] | None = None,
        text: Text | None = None,
        **settings: object,
    ) -> None:
        self.config = EngineConfig(**{"num_blocks": 64, **settings})  # type: ignore[arg-type]
        self.clock = VirtualClock()
        self.runner = StubRunner(self.config, self.clock, choose)
        self.engine = Engine(self.config, self.runner, text or NoText(), self.clock)
        self.text: dict[int, str] = {}
        self._number = 0

    def request(
        self,
        prompt: Iterable[int],
        *,
        salt: str | None = None,
        end_ids: Iterable[int] = (),
        **params: object,
    ) -> Request:
        """Make a request without submitting it; greedy with 8 tokens unless told otherwise."""
        self._number += 1
        settings = {"temperature": 0.0, "max_tokens": 8, **params}
        return Request(
            number=self._number,
            token_ids=list(prompt),
            params=SamplingParams(**settings),  # type: ignore[arg-type]
            seed=self._number,
            timeline=Timeline(submitted=self.clock.now()),
            end_token_ids=frozenset(end_ids),
            cache_salt=salt,
        )

    def submit(self, prompt: Iterable[int], **options: object) -> Request:
        """Make a request and put it in the queue."""
        request = self.request(prompt, **options)  # type: ignore[arg-type]
        request.timeline.queued = self.clock.now()
        self.engine.add(request)
        return request

    def step(self) -> StepOutput | None:
        """One checked step: with work there is always progress."""
        had_work = self.engine.has_work
        output = self.engine.step()
        assert (output is not None) == had_work, "there was work, but the step did nothing"
        self.engine.scheduler.check()
        for item in output.outputs if output else ():
            number = item.request.number
            self.text[number] = self.text.get(number, "") + item.text
        return output

    def run(self, limit: int = 10_000) -> list[StepOutput]:
        """Step until nothing is left to do."""
        outputs = []
        for _ in range(limit):
            output = self.step()
            if output is None:
                return outputs
            outputs.append(output)
        raise AssertionError(f"not done after {limit} steps")
