"""Renders a conversation into prompt token ids with the model's own chat template.

What a person typed is text and stays text: only the template writes control tokens. Every way in
which messages can be wrong ends in an `InvalidRequest`. This module knows no request and no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from engine.core.errors import InvalidRequest

ROLES = ("system", "user", "assistant")

# For a model that was never taught turns: the texts, a line each, and the model goes on from there.
CONTINUATION_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"
)

_SAMPLE_CONVERSATIONS = (
    [{"role": "system", "content": "a"}, {"role": "user", "content": "a"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}],
)

# What Jinja, or Python inside a template, raises on messages that the template did not expect.
_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, LookupError, ArithmeticError)
_MAX_FAULT_LENGTH = 300


def check_text(text: object, field: str) -> str:
    """The text itself, if it is a string that can be written as UTF-8.

    Raises InvalidRequest naming the field: JSON may carry half of a surrogate pair, which no
    tokenizer takes.
    """
    if not isinstance(text, str):
        raise InvalidRequest(f"{field} must be a string; got {_kind(text)}.", field=field)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{field} holds half of a surrogate pair at character {error.start}; send whole "
            "characters.",
            field=field,
        ) from None
    return text


def check_messages(messages: Sequence[Mapping[str, object]]) -> list[dict[str, str]]:
    """The messages with plain role and content; a list of text parts becomes the joined text.

    Raises InvalidRequest for no messages, an unknown role, and content that is neither a string
    nor a list of `{"type": "text", "text": ...}` parts.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise InvalidRequest(f"messages must be a list; got {_kind(messages)}.", field="messages")
    if not messages:
        raise InvalidRequest("messages is empty; send at least one message.", field="messages")
    return [_check_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _check_message(message: object, field: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise InvalidRequest(
            f"{field} must be an object with role and content; got {_kind(message)}.", field=field
        )
    role = message.get("role")
    if role not in ROLES:
        raise InvalidRequest(
            f"{field}.role must be one of {', '.join(ROLES)}; got {role!r:.80}.",
            field=f"{field}.role",
        )
    content = message.get("content")
    where = f"{field}.content"
    if isinstance(content, list | tuple):
        content = "".join(_check_part(part, f"{where}[{i}]") for i, part in enumerate(content))
    elif not isinstance(content, str):
        raise InvalidRequest(
            f"{where} must be a string or a list of text parts; got {_kind(content)}.", field=where
        )
    return {"role": str(role), "content": check_text(content, where)}


def _check_part(part: object, field: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(text, str):
        raise InvalidRequest(
            f'{field} must be {{"type": "text", "text": "..."}}; this model reads text only.',
            field=field,
        )
    return text


def render_chat(
    tokenizer: Any,
    messages: list[dict[str, str]],
    *,
    add_generation_prompt: bool,
    continue_final: bool,
) -> list[int]:
    """Prompt token ids of checked messages, template and texts tokenised in one call.

    tokenizer: a transformers tokenizer. Control-token text inside a message is tokenised as the
    plain characters it is; other text gives the ids of the usual one-call tokenisation. A model
    without a chat template gets the texts a line each (`CONTINUATION_TEMPLATE`), roles left out.

    Raises InvalidRequest with the template's own message where it refuses the conversation.
    """
    if continue_final and add_generation_prompt:
        raise InvalidRequest(
            "continue_final and add_generation_prompt exclude each other: either the last message "
            "goes on or a new turn opens.",
            field="continue_final",
        )
    if continue_final and messages[-1]["role"] != "assistant":
        raise InvalidRequest(
            "continue_final needs the last message to be the assistant's; got one of role "
            f"{messages[-1]['role']}.",
            field="messages",
        )
    try:
        ids = tokenizer.apply_chat_template(
            messages,
            chat_template=None if tokenizer.chat_template else CONTINUATION_TEMPLATE,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final,
            sanitize_control_tokens=True,
            return_dict=False,
        )
    except _TEMPLATE_FAULTS as error:
        reason = " ".join(str(error).split())[:_MAX_FAULT_LENGTH]
        raise InvalidRequest(
            f"The model's chat template refused the messages: {reason}", field="messages"
        ) from error
    return [int(token_id) for token_id in ids]


def continue_ids(
    tokenizer: Any,
    messages: list[dict[str, str]],
    known_ids: Sequence[int],
    known_text: str,
    decode: Callable[[Sequence[int]], str],
) -> list[int] | None:
    """Prompt ids that begin with `known_ids`, when their text begins the rendered conversation.

    known_text and decode: the text of ids with special tokens kept. Only what follows is tokenised.
    None when the conversation is another one, or where a cut there would change what is read: in
    a tokenizer that reads a text's start differently, or when a message holds the text of a control
    token, which must stay text.
    """
    if not known_ids or not tokenizer.chat_template:
        return None
    control = {*tokenizer.all_special_tokens, *(tokenizer.chat_control_tokens or ())}
    if any(token in message["content"] for message in messages for token in control):
        return None
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if not rendered.startswith(known_text) or len(rendered) == len(known_text):
        return None
    rest = tokenizer.encode(rendered[len(known_text) :], add_special_tokens=False)
    ids = [*known_ids, *rest]
    return ids if decode(ids) == rendered else None


def control_tokens(tokenizer: Any) -> list[str]:
    """Added tokens that the chat template writes, special or not, for `chat_control_tokens`.

    A template may put a control token together from pieces (`'<|' + role + '|>'`), so rendered
    conversations are searched as well as its source.
    """
    written = [_template_source(tokenizer)]
    for messages in _SAMPLE_CONVERSATIONS:
        try:
            rendered = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except _TEMPLATE_FAULTS:
            continue  # A template that knows no system role still shows its tokens in the other.
        written.append(rendered)
    return [
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if not token.content.isspace() and any(token.content in text for text in written)
    ]


def _template_source(tokenizer: Any) -> str:
    template = tokenizer.chat_template
    return "\n".join(template.values()) if isinstance(template, dict) else template


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
