"""The API's routes: models, chat, completions and tokenising, put together from their parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response, Security
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from engine.api.access import Access
from engine.api.batch import Batch, check_size, slots_of, submit
from engine.api.errors import ApiError, echo_request_id, request_id
from engine.api.forms import ChatForm, CompletionForm, Form
from engine.api.guard import CLIENT_GONE, arrival, guarded_route
from engine.api.replies import (
    ChatReply,
    CompletionReply,
    ErrorReply,
    Model,
    ModelList,
    TokenizeReply,
)
from engine.api.requests import (
    ChatRequest,
    CompletionRequest,
    Generation,
    TokenizeRequest,
)
from engine.api.writing import EventStream, Writer, new_id, unless_gone
from engine.contracts import ModelInfo, Tokenizer
from engine.core.config import EngineConfig
from engine.core.errors import EngineStopped, InvalidRequest
from engine.core.request import SamplingParams
from engine.service import EngineService

_MEANINGS: dict[int | str, str] = {
    400: "Something in the request is wrong; `param` names it.",
    401: "A valid API key is needed.",
    403: "A script of another page asked.",
    404: "Another model is served.",
    413: "The body is too large.",
    429: "The queue or the client's share is full; `Retry-After` says when to come again.",
    # Stands for 405 and the like, and for the 422 that FastAPI would name.
    "4XX": "Any other refusal.",
    500: "The request failed.",
    503: "No engine serves; `Retry-After` says when to come again.",
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply, "description": text} for status, text in _MEANINGS.items()
}
_STREAM: dict[str, Any] = {"text/event-stream": {}}


def router(service: EngineService, access: Access) -> APIRouter:
    """The routes of one service."""
    api = _Api(service, access)
    routes = APIRouter(
        route_class=guarded_route(access),
        dependencies=[Security(HTTPBearer(auto_error=False))],
        responses=_REFUSALS,
        strict_content_type=False,
    )
    streamed: dict[int | str, dict[str, Any]] = {200: {"content": _STREAM}}

    @routes.get("/v1/models", responses={200: {"model": ModelList}}, response_model=None)
    async def models() -> Response:
        """The model that is served."""
        return api.models()

    @routes.get("/v1/models/{model:path}", responses={200: {"model": Model}}, response_model=None)
    async def one_model(model: str) -> Response:
        """The model of that name."""
        return api.model(model)

    @routes.post("/v1/chat/completions", response_model=ChatReply, responses=streamed)
    async def chat(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation, whole or as a stream.

        Without a limit the answer goes on until the model ends it or the context is full.
        """
        return await api.chat(body, request)

    @routes.post("/v1/completions", response_model=CompletionReply, responses=streamed)
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue texts or token ids, whole or as a stream."""
        return await api.completions(body, request)

    @routes.post("/tokenize", response_model=TokenizeReply)
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        """Turn a text or a conversation into token ids."""
        return await run_in_threadpool(api.tokenize, body, request)

    return routes


class _Api:
    """What the routes do, for one service."""

    def __init__(self, service: EngineService, access: Access) -> None:
        self._service = service
        self._access = access
        self._created = int(time.time())

    def models(self) -> Response:
        return _json(orjson.dumps({"object": "list", "data": [self._model(None)]}))

    def model(self, name: str) -> Response:
        return _json(orjson.dumps(self._model(name)))

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        _, config = self._serving(body.model)
        tokenizer = self._service.tokenizer
        opening = body.opening()
        return await self._generate(
            body,
            request,
            ChatForm(tokenizer),
            params=body.params(config.max_model_len),
            count=1,
            tokenise=lambda: [tokenizer.render(body.messages, *opening)],
        )

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        info, _ = self._serving(body.model)
        tokenizer = self._service.tokenizer
        prompts = body.prompts()
        params = body.params()
        _check_ids(prompts, info, tokenizer)

        def tokenise() -> list[list[int]]:
            return [_prompt_ids(tokenizer, body, prompt) for prompt in prompts]

        if body.only_echo:
            return await self._echo(body, request, prompts, tokenise)
        echoes = [_prompt_text(tokenizer, prompt) for prompt in prompts] if body.echo else []
        return await self._generate(
            body,
            request,
            CompletionForm(tokenizer, echoes),
            params=params,
            count=len(prompts),
            tokenise=tokenise,
        )

    def tokenize(self, body: TokenizeRequest, request: Request) -> Response:
        _, config = self._serving(body.model)
        tokenizer = self._service.tokenizer
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequest("Send either prompt or messages.", field="prompt")
        if body.prompt is not None:
            ids = tokenizer.encode(body.prompt, body.add_special_tokens is not False)
        else:
            ids = tokenizer.render(body.messages or (), *body.opening())
        texts = [tokenizer.token_bytes(i).decode("utf-8", "replace") for i in ids]
        reply = {
            "count": len(ids),
            "max_model_len": config.max_model_len,
            "tokens": ids,
            "token_strs": texts if body.return_token_strs else None,
        }
        return _json(orjson.dumps(reply), echo_request_id(request))

    async def _generate(
        self,
        body: Generation,
        request: Request,
        form: Form,
        *,
        params: SamplingParams,
        count: int,
        tokenise: Callable[[], list[list[int]]],
    ) -> Response:
        """Submit the prompts and reply as the client asked for it."""
        writer = self._writer(body, form)
        label = request_id(request) or writer.id
        check_size(self._service, count * body.num_choices)
        slots, free = slots_of(self._service)
        share = self._access.take(request, count * body.num_choices, slots=slots, free_slots=free)

        def start() -> Batch:
            return submit(
                self._service,
                tokenise(),
                params,
                num_choices=body.num_choices,
                share=share,
                submitted=arrival(request),
                cache_salt=body.cache_salt,
                priority=body.priority or 0,
                label=label,
                streamed=bool(body.stream),
            )

        try:
            # Tokenising takes its time; the event loop has other clients.
            batch = await run_in_threadpool(start)
        except BaseException:
            share.close()
            raise
        headers = {"X-Request-ID": label}
        if body.stream:
            return EventStream(writer.events(batch), batch, headers)
        try:
            reply = await unless_gone(request, writer.whole(batch))
        finally:
            batch.close()
        return Response(status_code=CLIENT_GONE) if reply is None else _json(reply, headers)

    async def _echo(
        self,
        body: CompletionRequest,
        request: Request,
        prompts: Sequence[str | list[int]],
        tokenise: Callable[[], list[list[int]]],
    ) -> Response:
        """Give the prompts back; nothing is computed."""
        tokenizer = self._service.tokenizer
        num_tokens = sum(map(len, await run_in_threadpool(tokenise)))
        form = CompletionForm(tokenizer)
        writer = self._writer(body, form)
        texts = [_prompt_text(tokenizer, prompt) for prompt in prompts]
        repeated = [text for text in texts for _ in range(body.num_choices)]
        choices = [form.echoed(index, text) for index, text in enumerate(repeated)]
        headers = {"X-Request-ID": request_id(request) or writer.id}
        if body.stream:
            return EventStream(writer.echoed_events(choices, num_tokens), None, headers)
        return _json(writer.echoed(choices, num_tokens), headers)

    def _model(self, name: str | None) -> dict[str, Any]:
        info, config = self._serving(name)
        return {
            "id": info.name,
            "object": "model",
            "created": self._created,
            "owned_by": "phasescope",
            "max_model_len": config.max_model_len,
        }

    def _writer(self, body: Generation, form: Form) -> Writer:
        info, _ = self._serving(body.model)
        return Writer(
            service=self._service,
            form=form,
            model=info.name,
            id=new_id(form.prefix),
            with_usage=body.includes_usage,
            along=body.counts_along,
            with_timings=bool(body.return_timings),
        )

    def _serving(self, model: str | None) -> tuple[ModelInfo, EngineConfig]:
        """The model and the limits; raises EngineStopped, or ApiError 404 for another model."""
        healthy, reason = self._service.health()
        info, config = self._service.info, self._service.config
        if not healthy or info is None or config is None:
            raise EngineStopped(reason)
        if model is not None and model != info.name:
            raise ApiError(
                404,
                f"The model {model[:200]!r} is not served here; {info.name!r} is.",
                param="model",
                code="model_not_found",
            )
        return info, config


def _check_ids(prompts: Sequence[str | list[int]], info: ModelInfo, tokenizer: Tokenizer) -> None:
    """Refuse token ids that the model has no embedding for: they would fail the whole step."""
    size = min(tokenizer.vocab_size, info.shape.vocab_size if info.shape else tokenizer.vocab_size)
    for prompt in prompts:
        for token_id in prompt if isinstance(prompt, list) else ():
            if not 0 <= token_id < size:
                raise InvalidRequest(
                    f"The prompt holds token id {token_id}; the model's ids are 0 to {size - 1:,}.",
                    field="prompt",
                )


def _prompt_ids(
    tokenizer: Tokenizer, body: CompletionRequest, prompt: str | list[int]
) -> list[int]:
    """A prompt's token ids; raises InvalidRequest where there are none."""
    if isinstance(prompt, list):
        ids = prompt
    else:
        ids = tokenizer.encode(prompt, body.add_special_tokens is not False)
    if not ids:
        raise InvalidRequest("The prompt is empty; send at least one token.", field="prompt")
    return ids


def _prompt_text(tokenizer: Tokenizer, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt, False)


def _json(body: bytes, headers: dict[str, str] | None = None) -> Response:
    own = {"Cache-Control": "no-store"}
    return Response(body, headers={**own, **(headers or {})}, media_type="application/json")
