"""Traffic of the demo: simulated clients that talk to `auto`, as people's tools do.

Owns: the clients, their messages, their pace, and the switch. Must not know: the gateway beyond its URL.
The clients never cause a swap, since `auto` means whatever runs. They repeat a failed request later. The User-Agent of
each request begins with "sparkdash-demo/".
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from sparkdash.sim.engine.prose import paragraph, seeded_random

USER_AGENT = "sparkdash-demo/"
BACK_OFF_S = 3.0
"""Wait of a client after a failed request."""


@dataclass(frozen=True, slots=True)
class ClientHabit:
    """Behaviour of a kind of client. Sizes in words, times in seconds."""

    client: str
    system: int
    """Size of the first message: an agent's instructions, a repository's map."""
    ask: tuple[int, int]
    think: tuple[float, float]
    """Pause between an answer and the next question."""
    answer: tuple[int, int]
    """Range of max_tokens."""
    turns: int
    """Turns after which the conversation restarts."""


HABITS = (
    ClientHabit("codex", system=3000, ask=(60, 600), think=(1.0, 4.0), answer=(80, 400), turns=14),
    ClientHabit("open-webui", system=60, ask=(10, 60), think=(6.0, 15.0), answer=(200, 700), turns=8),
    ClientHabit("aider", system=1500, ask=(30, 250), think=(4.0, 10.0), answer=(150, 500), turns=10),
)
Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Conversation:
    """Growing conversation: every prompt begins with the previous one."""

    habit: ClientHabit
    rng: random.Random
    messages: list[dict[str, str]] = field(default_factory=list)

    def next(self) -> dict[str, object]:
        """Return the body of the next request."""
        if len(self.messages) > 2 * self.habit.turns:
            self.messages = []
        if not self.messages:
            rules = f"Session {self.rng.randrange(10**6)}. {paragraph(self.rng, self.habit.system)}"
            self.messages.append({"role": "system", "content": rules})
        self.messages.append({"role": "user", "content": paragraph(self.rng, self.rng.randint(*self.habit.ask))})
        return {
            "model": "auto",
            "messages": self.messages,
            "max_tokens": self.rng.randint(*self.habit.answer),
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def answered(self, text: str) -> None:
        """Store the answer. An empty one removes the question."""
        if text:
            self.messages.append({"role": "assistant", "content": text})
        else:
            self.messages.pop()


class Traffic:
    """Simulated clients of one gateway. `url` is its base with /v1."""

    def __init__(
        self,
        url: str,
        *,
        on: bool = True,
        habits: tuple[ClientHabit, ...] = HABITS,
        seed: str = "demo",
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._url = url.rstrip("/")
        self._habits = habits
        self._seed = seed
        self._sleep = sleep
        self._on = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.switch(on=on)

    @property
    def on(self) -> bool:
        """Whether the clients send requests."""
        return self._on.is_set()

    def switch(self, *, on: bool) -> None:
        """Switch on, or off: requests in progress then end and no new ones are sent."""
        if on:
            self._on.set()
        else:
            self._on.clear()

    def hang_up(self) -> None:
        """Cancel `run`, in the middle of any request."""
        if self._running is not None:
            self._running.cancel()

    async def run(self) -> None:
        """Run all clients until cancelled."""
        self._running = asyncio.current_task()
        async with httpx.AsyncClient(timeout=httpx.Timeout(600, connect=5)) as http, asyncio.TaskGroup() as clients:
            for habit in self._habits:
                clients.create_task(self._client(http, habit), name=f"demo traffic: {habit.client}")

    async def _client(self, http: httpx.AsyncClient, habit: ClientHabit) -> None:
        rng = seeded_random(f"{self._seed}/{habit.client}")
        talk = Conversation(habit, rng)
        while True:
            await self._on.wait()
            text = await self._ask(http, talk)
            talk.answered(text)
            await self._sleep(rng.uniform(*habit.think) if text else BACK_OFF_S)

    async def _ask(self, http: httpx.AsyncClient, talk: Conversation) -> str:
        """Return the text of one request; empty after a failure."""
        headers = {"user-agent": f"{USER_AGENT}{talk.habit.client}"}
        try:
            async with http.stream("POST", f"{self._url}/chat/completions", json=talk.next(), headers=headers) as reply:
                if reply.status_code != httpx.codes.OK:
                    return ""
                return "".join([_content(line) async for line in reply.aiter_lines()])
        except httpx.HTTPError:
            return ""


def _content(line: str) -> str:
    """Return the text of one line of the stream."""
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line[6:]).get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")
