"""Attached servers: whether one answers, its name of the model, and those in use, kept over restarts."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.engines import model_list, openai
from sparkdash.errors import EngineError, UpstreamError
from sparkdash.supervisor.decide.breaker import SERVER_AGAIN_S
from sparkdash.supervisor.probe import PROBE_S, UNLISTED
from sparkdash.supervisor.tools import Tools

REFUSED = frozenset({401, 403})
SHOWN = 8


class Attached(NamedTuple):
    """An attached server that answers: its root URL, without /v1, and its name of the model."""

    url: str
    model_id: str


async def attach_server(tools: Tools, profile: Profile) -> Attached:
    """Find the profile's model in the server's list. Raises EngineError `engine_unreachable`, `model_unclear`."""
    url, path = openai.root(profile.url or ""), tools.adapter(profile).probes.alive
    if tools.settings.serves_at(url):
        raise EngineError(
            f"{profile.name} names this gateway itself ({url}).",
            code="loop_detected",
            hint="Write the address of the server that runs the model as `url` in the profile.",
        )
    try:
        reply = await tools.upstream.get(url + path, timeout_s=PROBE_S)
    except UpstreamError as error:
        raise _unreachable(profile, url, error.message.rstrip(".")) from None
    if reply.status in UNLISTED and profile.model_id is None:
        raise EngineError(
            f"The server of {profile.name} at {url} lists no models: GET {path} answered {reply.status}.",
            code="model_unclear",
            hint="Write the server's name of the model as `model_id` in the profile.",
        )
    if reply.status != 200 and reply.status not in UNLISTED:
        raise _unreachable(profile, url, f"{path} answered {reply.status}", refused=reply.status in REFUSED)
    listed = model_list.parse_model_list(reply.body)
    name = model_list.model_of(profile, listed)
    if name is None:
        raise EngineError(
            f"The server of {profile.name} at {url} has {len(listed.models)} models: {_some(listed.models)}.",
            code="model_unclear",
            hint="Write one of them as `model_id` in the profile.",
        )
    return Attached(url, name)


def _unreachable(profile: Profile, url: str, why: str, *, refused: bool = False) -> EngineError:
    hint = "sparkdash does not start this engine. Start it, or correct `url` in the profile."
    if refused:
        hint = "A server that wants a key is a profile with `engine: remote`, its base URL and `key_env`."
    return EngineError(f"{profile.name} does not answer at {url}: {why}.", code="engine_unreachable", hint=hint)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


class Attachments:
    """Attached servers in use, kept in the store for the next daemon."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._store = tools.store
        self._kept = dict(tools.store.attached) if tools.store else {}
        self._asked_at: dict[str, float] = {}

    async def take_back(self) -> list[Profile]:
        """Register servers that an earlier daemon used and that answer; report the others."""
        profiles = self._tools.catalog.profiles
        known = [
            profiles[name]
            for name, kept in self._kept.items()
            if name in profiles and profiles[name].fingerprint == kept
        ]
        found = await asyncio.gather(*(self._found(profile) for profile in known))
        servers = {profile.name: server for profile, server in zip(known, found, strict=True) if server is not None}
        registry, now = self._tools.registry, self._tools.clock.now()
        for name, (url, model_id) in servers.items():
            registry.enter(profiles[name], EngineState.READY, url=url, adopted=True, ready_at=now, model_id=model_id)
        return [profiles[name] for name in servers]

    def keep(self) -> None:
        """Store the changes; called after every move."""
        engines = self._tools.registry.engines.values()
        now = {each.profile: each.fingerprint for each in engines if each.is_foreign and each.state.is_serving}
        if self._store is None or now == self._kept:
            return
        for name in self._kept.keys() | now:
            if now.get(name) != self._kept.get(name):
                self._store.record_attached(name, now.get(name))
        self._kept = now

    def ask_again(self, group: asyncio.TaskGroup, profile: Profile, answers: Callable[[], object]) -> None:
        """Ask a server that did not answer once more, at most every SERVER_AGAIN_S; call `answers` if it does now."""
        now = self._tools.clock.monotonic()
        if now >= self._asked_at.get(profile.name, 0.0) + SERVER_AGAIN_S:
            self._asked_at[profile.name] = now
            group.create_task(self._ask(profile, answers), name=f"ask {profile.name}")

    async def _ask(self, profile: Profile, answers: Callable[[], object]) -> None:
        with suppress(EngineError):
            await attach_server(self._tools, profile)
            answers()

    async def _found(self, profile: Profile) -> Attached | None:
        try:
            return await attach_server(self._tools, profile)
        except EngineError as error:
            text = f"{error.message} It was in use; the next request that names it uses it again."
            self._tools.registry.notice(Level.WARNING, error.code, text, profile.name)
            return None
