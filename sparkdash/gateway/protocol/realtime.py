"""Realtime: the few things that a relay reads and changes in the messages of /v1/realtime.

Owns: the token counts and the first text or sound of an engine's events, the model's name in a client's
`session.update`, the event that tells a client of an error, and the keys that pages send as a subprotocol.
Source: OpenAI's realtime API, and vLLM 0.22 for transcriptions.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence

from sparkdash.errors import SparkdashError
from sparkdash.gateway.protocol.counts import TokenUsage, parse_usage
from sparkdash.gateway.protocol.problems import encode_json, error_body
from sparkdash.gateway.protocol.rewrite import Edits, rewrite_body

KEY_PROTOCOL = "openai-insecure-api-key."
"""Prefix of the subprotocol in which a web page sends its key: a page can set no header of a WebSocket."""
_DELTA = re.compile(rb'"type": ?"[\w.]+\.delta"')
_USAGE = b'"usage"'
_UPDATE = re.compile(rb'"type": ?"session\.update"')
_BETA = "openai-beta."


class RealtimeTap:
    """Reads an engine's events as they pass. `on_first` is called once, at the first text or sound."""

    finish_reason = None

    def __init__(self, on_first: Callable[[], object]) -> None:
        self._on_first: Callable[[], object] | None = on_first
        self._counted: list[TokenUsage] = []

    def feed(self, event: bytes) -> None:
        """Read one event."""
        if self._on_first is not None and _DELTA.search(event):
            on_first, self._on_first = self._on_first, None
            on_first()
        if _USAGE in event and (found := parse_usage(event)) != TokenUsage():
            self._counted.append(found)

    def usage(self) -> TokenUsage:
        """Add up the counts of all answers; None where no answer had one."""
        return TokenUsage(*(_sum(values) for values in zip(*self._counted, strict=True)))

    def decode_tok_s(self, _completion: int | None) -> float | None:
        """Return None: a conversation's pauses are not the engine's."""
        return None


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def renamed_session(event: bytes, names: Collection[str], name: str) -> bytes | None:
    """Replace the model in a `session.update` unless the engine knows it by one of `names`; None: nothing to change."""
    if b'"model"' not in event or not _UPDATE.search(event):
        return None
    try:
        value = json.loads(event)
        session = value.get("session")
        edits: dict[str, object] = {}
        if isinstance(value.get("model"), str) and value["model"] not in names:
            edits["model"] = name
        if isinstance(session, dict) and isinstance(session.get("model"), str) and session["model"] not in names:
            edits["session"] = {"model": name}
        return rewrite_body(event, Edits(edits)) if edits else None
    except (ValueError, AttributeError, RecursionError):
        return None


def error_event(error: SparkdashError) -> bytes:
    """Build the event that tells a client of an error before the close."""
    body = error_body(error)
    body["error"]["event_id"] = None
    return encode_json({"type": "error", "event_id": f"sparkdash_{error.code}", **body})


def offered_protocols(header: str | None) -> list[str]:
    """List the subprotocols that a client offers, without secrets and version marks."""
    words = [word.strip() for word in (header or "").split(",")]
    return [word for word in words if word and not word.startswith((KEY_PROTOCOL, _BETA))]


def protocol_key(header: str | None) -> str | None:
    """Return the key that a page sends among its subprotocols."""
    words = (word.strip() for word in (header or "").split(","))
    return next((word.removeprefix(KEY_PROTOCOL) for word in words if word.startswith(KEY_PROTOCOL)), None)
