"""InFlight: the row that people see of one request, from arrival to end.

Owns: when RequestChanged is published: arrival, each change of place, grant, first token, end; never per chunk.
Must not know HTTP.
"""

from __future__ import annotations

import re
from typing import Any

from sparkdash.domain.event import RequestChanged
from sparkdash.domain.lease import Request, RequestState
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


def client_name(user_agent: str) -> str:
    """A short name for who asks: the User-Agent's product, never an address or a key."""
    user_agent = user_agent.removeprefix(INTERNAL)
    for pattern, name in _CLIENTS:
        if pattern.search(user_agent):
            return name
    word = _WORD.match(user_agent)
    return word[0].lower() if word else UNKNOWN_CLIENT


class InFlight:
    """One request's row. `request` is the latest published value."""

    def __init__(
        self, deps: Deps, *, user_agent: str, profile: str, route: str, stream: bool, key: str | None = None
    ) -> None:
        self._deps = deps
        self.request = Request(
            id=deps.new_id(),
            client=client_name(user_agent.removeprefix(INTERNAL)),
            key=key,
            profile=profile,
            route=route,
            state=RequestState.WAITING,
            started_at=deps.clock(),
            stream=stream,
            internal=user_agent.startswith(INTERNAL),
        )
        self._publish()

    def waits(self, position: int) -> None:
        """Its place in the queue changed; 1 is next. Late news of a wait that is over is passed by."""
        if self.request.state is RequestState.WAITING:
            self._change(position=position)

    def requeued(self) -> None:
        """Its engine died before it answered; it waits once more."""
        self._change(state=RequestState.WAITING, granted_at=None)

    def granted(self, profile: str) -> None:
        """An engine is there; the request goes to it now."""
        self._change(state=RequestState.PREFILL, profile=profile, position=None, granted_at=self._deps.clock())

    def streams(self, ttft_s: float) -> None:
        """The first text has come."""
        self._change(state=RequestState.STREAMING, ttft_s=ttft_s)

    def ended(self, state: RequestState, **figures: Any) -> None:
        """It is over: done, failed or gone, with what was learned. Only the first call counts."""
        if self.request.finished_at is not None:
            return
        self._change(state=state, position=None, finished_at=self._deps.clock(), **figures)
        if self._deps.record is not None:
            self._deps.record(self.request)

    def _change(self, **update: Any) -> None:
        self.request = self.request.model_copy(update=update)
        self._publish()

    def _publish(self) -> None:
        self._deps.bus.publish(RequestChanged(request=self.request))
