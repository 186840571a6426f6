"""Order: what the counter's process is asked, and what it answers. Plain data, known to both sides."""

from __future__ import annotations

import json
from typing import Any

from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import ModelRef, Mount


class CountRequest(Frozen):
    """One count."""

    model: ModelRef
    mounts: tuple[Mount, ...] = ()
    hf_home: str
    """The owner's Hugging Face folder."""
    template: str | None = None
    """Of `engines.prompting.Prompting`, as are the next two."""
    words: dict[str, Any] = {}
    in_parts: bool | None = None


class CountResult(Frozen):
    """The answer: one of the three."""

    tokens: int | None = None
    unknown: str | None = None
    """Why nothing but the engine can count this; the end of a sentence."""
    refused: str | None = None
    """Why no engine would take the request."""


class Uncountable(Exception):  # noqa: N818 - said to the client
    """Only the engine can count this; the words are `ModelStatusEncoder.unknown`."""


class InvalidPrompt(Exception):  # noqa: N818 - said to the client
    """No engine would take this; the words are `ModelStatusEncoder.refused`."""


def encode_count_request(order: CountRequest, body: bytes) -> bytes:
    """An order and a client's body as one: the first line is the order's."""
    return order.model_dump_json(exclude_defaults=True).encode() + b"\n" + body


def decode_count_request(sent: bytes) -> tuple[CountRequest, dict[str, Any]]:
    """The way back. Raises Refused: the body is no JSON object."""
    first, _, rest = sent.partition(b"\n")
    try:
        body = json.loads(rest.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise InvalidPrompt("the body is no JSON object")
    return CountRequest.model_validate_json(first), body
