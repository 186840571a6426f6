"""InFlight: the row that people see of one request, from arrival to end.

Owns: when RequestChanged is published: its end at once, and what comes before it (arrival, each change of place, grant, first
token) when the board's turn comes, told once with what else happened by then; never per chunk. Must not know HTTP.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from sparkdash.domain.event import RequestChanged
from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.state import OPEN
from sparkdash.gateway.deps import Deps

INTERNAL = "sparkdash-demo/"
"""How the User-Agent of requests begins that sparkdash itself makes (the demo's traffic)."""
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
)
_WORD = re.compile(r"[A-Za-z][\w.+-]{0,31}")
UNKNOWN_CLIENT = "unknown"


@lru_cache(maxsize=256)
def client_name(user_agent: str) -> str:
    """A short name for who asks: the User-Agent's product, never an address or a key."""
    user_agent = user_agent.removeprefix(INTERNAL)
    for pattern, name in _CLIENTS:
        if pattern.search(user_agent):
            return name
    word = _WORD.match(user_agent)
    return word[0].lower() if word else UNKNOWN_CLIENT


class InFlight:
    """One request's row. `id` and `profile` are at hand; `request` is the whole of it, as it is now."""

    def __init__(
        self, deps: Deps, *, user_agent: str, profile: str, route: str, stream: bool, key: str | None = None
    ) -> None:
        self._deps = deps
        self.id = deps.new_id()
        self.profile = profile
        self._state = RequestState.WAITING
        self._facts: dict[str, Any] = {
            "id": self.id,
            "client": client_name(user_agent),
            "key": key,
            "profile": profile,
            "route": route,
            "state": RequestState.WAITING,
            "started_at": deps.clock(),
            "stream": stream,
            "internal": user_agent.startswith(INTERNAL),
        }
        self._row: Request | None = None
        """The facts in their form; None when they have changed since."""
        self._untold = False
        """Is there news that the board will have told?"""
        self._later()

    @property
    def request(self) -> Request:
        """The row as it is now."""
        if self._row is None:
            self._row = Request(**self._facts)
        return self._row

    def waits(self, position: int) -> None:
        """Its place in the queue changed; 1 is next. Late news of a wait that is over is passed by."""
        if self._state is RequestState.WAITING:
            self._change(self._state, position=position)

    def requeued(self) -> None:
        """Its engine died before it answered; it waits once more."""
        self._change(RequestState.WAITING, granted_at=None)

    def granted(self, profile: str) -> None:
        """An engine is there; the request goes to it now."""
        self.profile = profile
        self._change(RequestState.PREFILL, profile=profile, position=None, granted_at=self._deps.clock())

    def streams(self, ttft_s: float) -> None:
        """The first text has come."""
        self._change(RequestState.STREAMING, ttft_s=ttft_s)

    def ended(self, state: RequestState, **figures: Any) -> None:
        """It is over: done, failed or gone, with what was learned. Only the first call counts."""
        if self._state not in OPEN:
            return
        self._note(state, figures)
        self._facts.update(position=None, finished_at=self._deps.clock())
        self._publish()
        if self._deps.record is not None:
            self._deps.record(self.request)

    def _change(self, state: RequestState, **news: Any) -> None:
        self._note(state, news)
        self._later()

    def _note(self, state: RequestState, news: dict[str, Any]) -> None:
        self._state = self._facts["state"] = state
        self._facts.update(news)
        self._row = None

    def _later(self) -> None:
        if not self._untold:
            self._untold = True
            self._deps.board.soon(self._tell)

    def _tell(self) -> None:
        if self._untold:
            self._publish()

    def _publish(self) -> None:
        self._untold = False
        self._deps.bus.publish(RequestChanged(request=self.request))
