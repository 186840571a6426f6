"""Replay of a captured request on another profile, on the way of every request.

Rule: neither body nor answer leaves this module but as figures.
"""

import json
from dataclasses import dataclass

from sparkdash.domain.history import AnswerMatch, match_answers
from sparkdash.domain.request import LEASE_HEADER, Request
from sparkdash.errors import AdmissionError
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.capture import OURS, REDACTED, CapturedRequest, without_secrets
from sparkdash.gateway.http.channel import InnerChannel
from sparkdash.gateway.http.exchange import Exchange, ParsedHead
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.answer_text import KeptAnswer
from sparkdash.gateway.protocol.route import Route, find_route
from sparkdash.gateway.relay import passthrough
from sparkdash.gateway.relay.request_row import RequestRow

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


async def replay_request(deps: Deps, kept: CapturedRequest, profile: str, caller: Exchange) -> Replayed:
    """Send the request to `profile` and wait for its whole answer; it ends when the caller leaves.

    Raises AdmissionError: the request was refused before it had a row.
    """
    route = replayed_route(kept)
    body = {**kept.body, "model": profile} if isinstance(kept.body, dict) else {}
    channel = InnerChannel(problems.encode_json(body), caller.channel)
    inner = Exchange(_head(kept, route, caller.head), channel, caller.key, collected=True)
    inner.kept = KeptAnswer(deps.new_id())
    rows: list[RequestRow] = []
    await passthrough.relay_request(deps, inner, on_row=rows.append)
    if not rows:
        raise _refusal(channel)
    text = inner.kept.text(route.dialect)
    known = text is not None and kept.answer is not None
    match = match_answers(kept.answer or "", without_secrets(text or "")) if known else None
    return Replayed(rows[0].request, match)


def _head(kept: CapturedRequest, route: Route, caller: ParsedHead) -> ParsedHead:
    lease = [(name, value) for name, value in caller.raw_headers if name == LEASE_HEADER.encode()]
    own = [(name.encode(), value.encode("latin-1", "replace")) for name, value in kept.headers.items()]
    headers = [pair for pair in own if pair[0].decode() not in _LEFT_OUT]
    query = kept.query.encode("latin-1", "replace")
    return caller.inner(kept.method, route.path, [*headers, *lease, (b"user-agent", AGENT.encode())], query)


def _refusal(answered: InnerChannel) -> AdmissionError:
    try:
        error = json.loads(answered.answer)["error"]
    except (ValueError, RecursionError, KeyError, TypeError):
        error = {}
    return AdmissionError(
        error.get("message", "The replay was refused."),
        code=error.get("code") or "replay_refused",
        status=answered.status or 500,
    )
