"""Messages between the gateway and the counter's process.

Pure.
"""

from __future__ import annotations

import json
from typing import Any

from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import ModelRef, Mount


class CountRequest(Frozen):
    """Request for one count."""

    model: ModelRef
    mounts: tuple[Mount, ...] = ()
    hf_home: str
    template: str | None = None
    """From `engines.prompting.Prompting`, as are the next two."""
    words: dict[str, Any] = {}
    in_parts: bool | None = None


class CountResult(Frozen):
    """Answer of the counter; exactly one field is set."""

    tokens: int | None = None
    unknown: str | None = None
    """Why only the engine can count this; ends a sentence."""
    refused: str | None = None
    """Why no engine would take the request; ends a sentence."""


class Uncountable(Exception):  # noqa: N818 - its text goes to the client
    """Only the engine can count this; the text becomes `CountResult.unknown`."""


class InvalidPrompt(Exception):  # noqa: N818 - its text goes to the client
    """No engine would take this; the text becomes `CountResult.refused`."""


def encode_count_request(order: CountRequest, body: bytes) -> bytes:
    """Encode a count request and a client's body; the first line is the request's."""
    return order.model_dump_json(exclude_defaults=True).encode() + b"\n" + body


def decode_count_request(sent: bytes) -> tuple[CountRequest, dict[str, Any]]:
    """Decode a count request and a client's body. Raises InvalidPrompt: the body is not a JSON object."""
    first, _, rest = sent.partition(b"\n")
    try:
        body = json.loads(rest.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise InvalidPrompt("the body is not a JSON object")
    return CountRequest.model_validate_json(first), body
