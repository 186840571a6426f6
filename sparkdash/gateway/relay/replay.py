"""Replay of a captured request on another profile, on the way of every request.

Rule: neither body nor answer leaves this module but as figures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sparkdash.domain.history import AnswerMatch, match_answers
from sparkdash.domain.request import LEASE_HEADER, Request
from sparkdash.errors import AdmissionError
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.capture import OURS, REDACTED, CapturedRequest, without_secrets
from sparkdash.gateway.http.channel import Message, Receive, Scope, replay_body
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.answer_text import KeptAnswer
from sparkdash.gateway.protocol.route import Route, find_route
from sparkdash.gateway.relay import passthrough
from sparkdash.gateway.relay.request_row import RequestRow
from sparkdash.keyring import Key

AGENT = f"{OURS}replay"
"""User-Agent of replays, and so the client's name in their rows; the capture leaves them out."""
_LEFT_OUT = frozenset({"user-agent", "x-sparkdash-priority"})


@dataclass(frozen=True, slots=True)
class Replayed:
    """Row of a replay, and the comparison with the captured answer where both are whole."""

    row: Request
    match: AnswerMatch | None


def replayed_route(kept: CapturedRequest) -> Route:
    """Return a captured request's route. Raises AdmissionError: `body_not_kept`; `not_replayable`: no text."""
    route = find_route(kept.path)
    if kept.body is None:
        raise AdmissionError(
            f"Of request {kept.id} only the length of its body was kept.",
            code="body_not_kept",
            status=404,
            hint="Bodies above 1 MiB and binary ones are not kept.",
        )
    if route is None or not route.generates or not isinstance(kept.body, dict):
        raise AdmissionError(
            f"Request {kept.id} cannot be replayed: it was no request for text.",
            code="not_replayable",
            hint="Chats, completions, responses and messages can be.",
        )
    return route


def wants_stream(kept: CapturedRequest) -> bool:
    return isinstance(kept.body, dict) and kept.body.get("stream") is True


def is_redacted(kept: CapturedRequest) -> bool:
    """Whether the body lacks what looked like a secret."""
    return REDACTED in json.dumps(kept.body)


async def replay_request(
    deps: Deps, kept: CapturedRequest, profile: str, scope: Scope, receive: Receive, key: Key | None
) -> Replayed:
    """Send the request to `profile` and wait for its whole answer; it ends when `receive` tells that the caller left.

    `scope` is the caller's. Raises AdmissionError: the request was refused before it had a row.
    """
    route, answer = replayed_route(kept), _Answer()
    body = {**kept.body, "model": profile} if isinstance(kept.body, dict) else {}
    inner = Exchange.from_asgi(
        _scope(kept, route, scope), replay_body(problems.encode_json(body), receive), answer.take, key, collected=True
    )
    inner.kept = KeptAnswer(deps.new_id())
    await passthrough.relay_request(deps, inner, on_row=answer.keep_row)
    if answer.row is None:
        raise answer.refusal()
    text = inner.kept.text(route.dialect)
    known = text is not None and kept.answer is not None
    match = match_answers(kept.answer or "", without_secrets(text or "")) if known else None
    return Replayed(answer.row.request, match)


def _scope(kept: CapturedRequest, route: Route, scope: Scope) -> Scope:
    lease = [(name, value) for name, value in scope["headers"] if name.lower() == LEASE_HEADER.encode()]
    own = [(name.encode(), value.encode("latin-1", "replace")) for name, value in kept.headers.items()]
    return {
        **scope,
        "method": kept.method,
        "path": route.path,
        "raw_path": route.path.encode(),
        "query_string": kept.query.encode("latin-1", "replace"),
        "headers": [
            *((name, value) for name, value in own if name.decode() not in _LEFT_OUT),
            *lease,
            (b"user-agent", AGENT.encode()),
        ],
    }


class _Answer:
    """Takes what a client would get; only a refusal before there is a row is read."""

    def __init__(self) -> None:
        self.row: RequestRow | None = None
        self._status = 500
        self._refusal = b""

    def keep_row(self, row: RequestRow) -> None:
        self.row = row

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif self.row is None:
            self._refusal += message.get("body", b"")

    def refusal(self) -> AdmissionError:
        try:
            error = json.loads(self._refusal)["error"]
        except (ValueError, RecursionError, KeyError, TypeError):
            error = {}
        return AdmissionError(
            error.get("message", "The replay was refused."),
            code=error.get("code") or "replay_refused",
            status=self._status,
        )
