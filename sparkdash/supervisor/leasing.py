"""One request's way: it asks, waits, holds the engine, leaves.

Owns: the claims of those who wait and of those who are served. Must not decide who is served: the scheduler does.

Rule: leaving is a post, not a wait: no cancellation can come between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.errors import UpstreamError
from sparkdash.supervisor import refusals
from sparkdash.supervisor.claim import Claim, Claims, Lease
from sparkdash.supervisor.moves import Arrive, Cut, Grant, Leave, Move, Refuse, Wait
from sparkdash.supervisor.remotes import Remotes
from sparkdash.supervisor.tools import Tools
from sparkdash.supervisor.watch import Watch


class Leasing:
    """One for the supervisor's life. `profiles` are those that the scheduler knows."""

    def __init__(
        self, tools: Tools, profiles: Callable[[], Mapping[str, Profile]], post: Callable[[Move], None], watch: Watch
    ) -> None:
        self._tools = tools
        self._profiles = profiles
        self._post = post
        self._watch = watch
        self._claims = Claims(self._granted)
        self._remotes = Remotes(lambda: tools.settings, tools.clock.now)
        self.over = False
        """The daemon ends: who comes is refused."""

    @asynccontextmanager
    async def lease(
        self, profile: Profile | None, *, request_id: str, on_wait: Callable[[int], object], batch: bool
    ) -> AsyncIterator[Lease]:
        """See Supervisor.lease; without a profile it is for what runs."""
        if self.over:
            raise refusals.shutting_down()
        claim = self._claims.new(request_id, on_wait)
        if profile is not None and profile.engine is EngineKind.REMOTE:
            try:
                with self._remotes.lease(profile, claim.lost) as lease:
                    yield lease
            finally:
                self._claims.leave(claim)
            return
        self._post(Arrive(claim.ticket, profile.name if profile else None, batch))
        try:
            lease = await claim.granted
            try:
                yield lease
            except UpstreamError:
                self._leave(claim)
                if killed := self._tools.wards.reason(lease.engine.container):
                    raise copy(killed) from None  # that is why it broke off, and no second try would help
                await self._watch.confirm(lease.profile, lease.engine)
                raise
        finally:
            self._leave(claim)

    def carry_out(self, effect: Grant | Wait | Refuse | Cut) -> None:
        """Tell those whom it concerns."""
        self._claims.carry_out(effect)

    def retire(self, *, cut: bool) -> None:
        """The daemon ends: refuse whoever waits or comes; with `cut` also whoever is served. Idempotent."""
        self.over = True
        self._claims.retire(refusals.shutting_down(), cut=cut)

    def _leave(self, claim: Claim) -> None:
        if self._claims.leave(claim):
            self._post(Leave(claim.ticket))

    def _granted(self, name: str, claim: Claim) -> Lease:
        engine, started = self._tools.books.engines[name], self._tools.books.started[name]
        now = self._profiles().get(name, started)
        return Lease(
            # request defaults may be newer than the engine; what it was started with may not
            profile=now if now is started or now.fingerprint == started.fingerprint else started,
            engine=engine,
            url=engine.url or "",
            names=tuple(self._tools.adapter(engine.kind).served_names(started)),
            lost=claim.lost,
        )
