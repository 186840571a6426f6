"""RequestRow: the public row of one request, from arrival to end.

The end is published at once. Earlier changes (arrival, place, grant, first token) are published together when the row
publisher's turn comes, never per chunk.
"""

import re
from dataclasses import fields
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from sparkdash.domain.event import RequestChanged
from sparkdash.domain.request import Request, RequestState
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import ParsedHead
from sparkdash.gateway.protocol.tap import Tap
from sparkdash.gateway.traffic_meter import ENCODED
from sparkdash.limits import shown
from sparkdash.supervisor import Lease
from sparkdash.supervisor.leasing import QueuePlace

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
INTERNAL = "sparkdash-demo/"
"""User-Agent prefix of the demo's own traffic."""
_CLIENTS = (
    (re.compile(r"claude-(cli|code)/"), "claude-code"),
    (re.compile(r"codex[\w-]*/"), "codex"),
    (re.compile(r"opencode/"), "opencode"),
    (re.compile(r"QwenCode/"), "qwen-code"),
    (re.compile(r"(Async)?OpenAI/Python"), "openai-python"),
    (re.compile(r"OpenAI/JS"), "openai-js"),
    (re.compile(r"(Async)?Anthropic/Python"), "anthropic-python"),
    (re.compile(r"Anthropic/JS"), "anthropic-js"),
    (re.compile(r"litellm/"), "litellm"),
    (re.compile(r"ai-sdk/"), "ai-sdk"),
    (re.compile(r"python-httpx/"), "httpx"),
    (re.compile(r"Python/\S+ aiohttp/"), "aiohttp"),
    (re.compile(r"ls/JS "), "continue"),
    (re.compile(r"Mozilla/"), "browser"),
)
_WORD = re.compile(r"[A-Za-z][\w.+-]{0,31}")
UNKNOWN_CLIENT = "unknown"
_PREFILL, _STREAMING = RequestState.PREFILL, RequestState.STREAMING
_NEW: dict[str, Any] = {field.name: None for field in fields(Request)} | {"state": RequestState.WAITING}
"""Fields of a new row."""


@lru_cache(maxsize=256)
def identify_client(user_agent: str) -> tuple[str, bool]:
    """Return the client's short name, and whether it is sparkdash itself."""
    return client_name(user_agent.removeprefix(INTERNAL)), user_agent.startswith(INTERNAL)


def client_name(user_agent: str) -> str:
    """Return the User-Agent's product, never an address or a key."""
    for pattern, name in _CLIENTS:
        if pattern.search(user_agent):
            return name
    word = _WORD.match(user_agent)
    return word[0].lower() if word else UNKNOWN_CLIENT


def _runs_here(lease: Lease) -> bool:
    """Whether this box does the work of a server that runs by itself: not one at another's address."""
    return not lease.profile.engine.is_remote and _is_loopback(lease.url)


@lru_cache(maxsize=256)
def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


class RequestRow:
    """Row of one request; `request` is the whole row as it is now."""

    __slots__ = ("_deps", "_facts", "_metered", "_untold", "id", "profile")

    def __init__(
        self,
        deps: Deps,
        head: ParsedHead,
        key: str | None,
        profile: str,
        route: str,
        stream: bool,
        *,
        prompt: bytes = b"",
        request_id: str | None = None,
    ) -> None:
        """Begin the row. `prompt`: a body from whose size the prompt's tokens are estimated until they are counted."""
        self._deps = deps
        self.id = request_id or deps.new_id()
        self.profile = profile
        facts = self._facts = _NEW.copy()
        facts["id"] = self.id
        facts["client"], facts["internal"] = identify_client(head.agent)
        facts["session"] = head.session
        facts["key"] = key
        facts["profile"] = profile
        facts["route"] = shown(route)
        facts["started_at"] = deps.clock()
        facts["stream"] = stream
        self._metered = deps.meter.begin(self.id, profile, route)
        if prompt.find(ENCODED) < 0:
            self._metered.body_bytes = len(prompt)
        self._untold = True
        """Whether an update is queued but not published."""
        deps.row_publisher.publish_soon(self._tell)

    @property
    def request(self) -> Request:
        return Request.of(self._facts.copy())

    def waits(self, place: QueuePlace) -> bool:
        """Note the place in the queue; return False for late news of a wait that is over."""
        facts = self._facts
        if facts["state"] is not RequestState.WAITING:
            return False
        facts["position"], facts["held_by"], facts["held_until"] = place
        if not self._untold:
            self._later()
        return True

    def requeued(self) -> None:
        """Mark the request waiting again, after its engine died before it answered."""
        facts = self._facts
        self._metered.requeued()
        facts["state"] = RequestState.WAITING
        facts["granted_at"] = facts["node"] = None
        if not self._untold:
            self._later()

    def granted(self, lease: Lease) -> None:
        facts, engine = self._facts, lease.engine
        facts["state"] = _PREFILL
        facts["profile"] = self.profile = lease.profile.name
        facts["node"] = engine.nodes[0] if engine.container else None
        facts["position"] = facts["held_by"] = facts["held_until"] = None
        facts["granted_at"] = self._deps.clock()
        self._metered.granted(self.profile, here=not lease.profile.engine.is_external or _runs_here(lease))
        if not self._untold:
            self._later()

    def answers(self, answer: Tap) -> None:
        """Note the stream that answers, for its progress."""
        self._metered.answer = answer

    def streams(self, sent_at: float | None) -> None:
        """Mark the first text of an answer to the request that was sent at `sent_at`, by the monotonic clock.

        None: bytes pass that nobody reads.
        """
        facts = self._facts
        facts["state"] = _STREAMING
        if sent_at is not None:
            facts["ttft_s"] = ttft_s = self._deps.monotonic() - sent_at
            self._metered.began_text(ttft_s)
        if not self._untold:
            self._later()

    def ended(
        self, state: RequestState, figures: Tap | None = None, status: int | None = None, error: str | None = None
    ) -> None:
        """End the row, with the figures that were read of the answer. Only the first call counts."""
        facts = self._facts
        if facts["finished_at"] is not None:
            return
        usage = None
        if figures is not None:
            usage, facts["decode_tok_s"], facts["finish_reason"] = figures.at_end()
            facts["prompt_tokens"], facts["cached_tokens"], completion, facts["reasoning_tokens"] = usage
            facts["completion_tokens"] = completion
        if facts["completion_tokens"] is None:
            facts["completion_estimate"] = self._metered.tokens()[0] or None
        estimate = facts["completion_estimate"]
        facts["energy_wh"] = self._deps.meter.end(self._metered, usage, facts["ttft_s"], estimate)
        facts["state"] = state
        facts["position"] = facts["held_by"] = facts["held_until"] = None
        facts["finished_at"] = self._deps.clock()
        facts["status"] = status
        facts["error"] = error
        request = Request.of(facts)  # nothing changes them any more
        self._publish(request)
        if self._deps.record is not None:
            self._deps.record(request)

    def _later(self) -> None:
        self._untold = True
        self._deps.row_publisher.publish_soon(self._tell)

    def _tell(self) -> None:
        if self._untold:
            self._facts["prompt_estimate"] = self._metered.prompt_estimate()
            self._publish(self.request)

    def _publish(self, request: Request) -> None:
        self._untold = False
        self._deps.bus.publish(RequestChanged(request))
