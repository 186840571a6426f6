"""Attached servers that are in use, remembered from one daemon to the next.

Owns: the exchange between the books and the store, and asking for servers that an earlier daemon used. Must not know
how a server is asked.
"""

from __future__ import annotations

import asyncio

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.errors import EngineError
from sparkdash.supervisor.external.attach import Attached, attach_server
from sparkdash.supervisor.tools import Tools

USED = frozenset({EngineState.READY, EngineState.DRAINING})


class Attachments:
    """Attached servers in use, over the supervisor's life.

    Without a store, the next daemon attaches a server at its first request.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._store = tools.store
        self._kept = dict(tools.store.attached) if tools.store else {}
        """Fingerprints by profile, as the store has them."""

    async def take_back(self) -> list[Profile]:
        """Put servers that an earlier daemon used into the books again; report those that do not answer.

        A server counts if it answers and its profile is the same.
        """
        profiles = self._tools.catalog.profiles
        known = [
            profiles[name]
            for name, kept in self._kept.items()
            if name in profiles and profiles[name].fingerprint == kept
        ]
        found = await asyncio.gather(*(self._found(profile) for profile in known))
        servers = {profile.name: server for profile, server in zip(known, found, strict=True) if server is not None}
        books, now = self._tools.books, self._tools.clock.now()
        for name, server in servers.items():
            books.adopt(profiles[name], url=server.url, model_id=server.model_id, ready_at=now)
        return [profiles[name] for name in servers]

    def keep(self) -> None:
        """Store the changes; called after every move."""
        engines = self._tools.books.engines.values()
        now = {each.profile: each.fingerprint for each in engines if each.is_foreign and each.state in USED}
        if self._store is None or now == self._kept:
            return
        for name in self._kept.keys() | now:
            if now.get(name) != self._kept.get(name):
                self._store.record_attached(name, now.get(name))
        self._kept = now

    async def _found(self, profile: Profile) -> Attached | None:
        try:
            return await attach_server(self._tools, profile)
        except EngineError as error:
            text = f"{error.message} It was in use; the next request that names it uses it again."
            self._tools.books.notice(Level.WARNING, error.code, text, profile.name)
            return None
