"""Leasing: the way of one request, from its arrival over waiting and holding an engine to its end.

Owns: the claims of waiting and served requests. Must not decide who is served: the scheduler does.

Rule: leaving is a post, not a wait: no cancellation can come between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from types import TracebackType

from sparkdash.domain.engine import Engine
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.task import Task
from sparkdash.errors import UpstreamError
from sparkdash.supervisor.claim import NO_HEADERS, AnswerProgress, HeldRequests, Lease, LeaseClaim, LeaseClaims
from sparkdash.supervisor.external.remotes import Remotes
from sparkdash.supervisor.memory import guard_words
from sparkdash.supervisor.repair.watch import EngineWatch
from sparkdash.supervisor.scheduling import refusals
from sparkdash.supervisor.scheduling.moves import STUCK, Arrive, Cut, Grant, Refuse, Wait
from sparkdash.supervisor.tools import Tools


class Leasing:
    """Leases of all requests. `profiles` are those that the scheduler knows.

    `arrive` returns the profile that a request may use at once; None: it waits for the effects. `leave` ends the
    request of a ticket.
    """

    def __init__(
        self,
        tools: Tools,
        profiles: Callable[[], Mapping[str, Profile]],
        watch: EngineWatch,
        *,
        arrive: Callable[[Arrive], str | None],
        leave: Callable[[str], None],
    ) -> None:
        self._tools = tools
        self._profiles = profiles
        self._watch = watch
        self._arrive = arrive
        self._leave = leave
        self._claims = LeaseClaims(self._granted)
        self._remotes = Remotes(lambda: tools.settings, tools.clock.now)
        self._names: dict[str, tuple[Profile, tuple[str, ...]]] = {}
        """Profile that each engine was started from, and the model names that it accepts, by profile."""
        self._relayed_at: dict[str, float] = {}
        """Time of the last byte of ended answers, by profile."""
        self.over = False
        """Whether the daemon ends, so that new requests are refused."""

    def lease(
        self,
        profile: Profile | None,
        request_id: str,
        on_wait: Callable[[int], object],
        batch: bool,
        task: Task | None,
        client: str | None,
        progress: AnswerProgress | None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Lease an engine as described at Supervisor.lease; without a profile, one that runs."""
        if profile is None:
            return _EngineLease(self, None, request_id, on_wait, batch, task, client, progress)
        if profile.engine is EngineKind.REMOTE:
            return self._remote_lease(profile, request_id, on_wait)
        return _EngineLease(self, profile.name, request_id, on_wait, batch, task, client, progress)

    def held(self, engine: Engine) -> HeldRequests:
        """Count the requests that this incarnation holds, and find out when a byte of any answer last came."""
        stays = [claim for claim in self._claims if isinstance(claim, _EngineLease) and claim.is_on(engine)]
        heard = [at for stay in stays if (at := stay.heard_at) is not None]
        if (over := self._relayed_at.get(engine.profile)) is not None:
            heard.append(over)
        return HeldRequests(len(stays), sum(stay.is_held_up for stay in stays), max(heard, default=None))

    @asynccontextmanager
    async def _remote_lease(
        self, profile: Profile, request_id: str, on_wait: Callable[[int], object]
    ) -> AsyncIterator[Lease]:
        claim = LeaseClaim(request_id, on_wait)
        self.add_claim(claim)
        try:
            with self._remotes.lease(profile, claim.lost) as lease:
                yield lease
        finally:
            self._claims.leave(claim)

    def add_claim(self, claim: LeaseClaim) -> None:
        """Add the claim of a new request. Raises DaemonError when the daemon ends."""
        if self.over:
            raise refusals.shutting_down()
        self._claims.add_claim(claim)

    def at_once(self, claim: LeaseClaim, move: Arrive) -> Lease | None:
        """Return a lease if it is granted at once. None: the claim waits for it."""
        name = self._arrive(move)
        return None if name is None else self._granted(name, claim)

    def leave(self, claim: LeaseClaim) -> None:
        """End the request's stay. Idempotent."""
        if self._claims.leave(claim):
            self._leave(claim.ticket)

    def heard(self, profile: str, at: float) -> None:
        """Note that an answer of this profile's engine ended, and when its last byte came."""
        if at > self._relayed_at.get(profile, 0.0):
            self._relayed_at[profile] = at

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._tools.clock.monotonic()

    async def broke_off(self, lease: Lease, trouble: UpstreamError) -> None:
        """Examine an engine that gave a request no answer; return if it is not dead.

        Raises:
            EngineError: the guard killed it, and no second try would help.
            UpstreamError: it died, with the reason.
        """
        if killed := self._tools.guarded.reason(lease.engine.container):
            raise copy(killed) from None
        if trouble.code in (STUCK, refusals.CUT):
            return  # the cause is known, and a stuck or leaving engine would not answer a probe
        died = await self._watch.confirm(lease.profile, lease.engine, trouble)
        if died is None:
            return
        if died.code in guard_words.CODES:
            raise copy(died) from None
        raise UpstreamError(died.message, code=died.code, hint=died.hint) from None

    def carry_out(self, effect: Grant | Wait | Refuse | Cut) -> None:
        """Tell those whom it concerns."""
        self._claims.carry_out(effect)

    def retire(self, *, cut: bool) -> None:
        """Refuse new and waiting requests, as the daemon ends; with `cut` end every lease too. Idempotent."""
        self.over = True
        self._claims.retire(refusals.shutting_down(), cut=cut)

    def _granted(self, name: str, claim: LeaseClaim) -> Lease:
        engine, started = self._tools.books.engines[name], self._tools.books.started[name]
        now = self._profiles().get(name, started)
        # request defaults may be newer than the engine; its launch arguments may not
        profile = now if now is started or now.fingerprint == started.fingerprint else started
        if engine.model_id is not None:
            return Lease(profile, engine, engine.url or "", (engine.model_id,), claim.lost, NO_HEADERS)
        named = self._names.get(name)
        if named is None or named[0] is not started:
            named = self._names[name] = started, tuple(self._tools.adapter(started).served_names(started))
        return Lease(profile, engine, engine.url or "", named[1], claim.lost, NO_HEADERS)


class _EngineLease(LeaseClaim):
    """Lease of one request on an engine of this box, from its arrival on."""

    __slots__ = ("_arrival", "_lease", "_leasing", "_progress", "_since")

    _lease: Lease

    def __init__(
        self,
        leasing: Leasing,
        profile: str | None,
        request_id: str,
        on_wait: Callable[[int], object],
        batch: bool,
        task: Task | None,
        client: str | None,
        progress: AnswerProgress | None,
    ) -> None:
        super().__init__(request_id, on_wait)
        self._leasing = leasing
        self._progress = progress
        self._since: float | None = None
        """Time of the grant; None before."""
        self._arrival = Arrive(self.ticket, profile, batch, task, client)

    async def __aenter__(self) -> Lease:
        leasing = self._leasing
        leasing.add_claim(self)
        try:
            lease = leasing.at_once(self, self._arrival) or await self.waits()
        except BaseException:
            leasing.leave(self)
            raise
        self._lease = lease
        self._since = leasing.now()
        return lease

    def is_on(self, engine: Engine) -> bool:
        """Whether this request is on that incarnation of an engine."""
        if self._since is None:
            return False
        granted = self._lease.engine
        return granted.profile == engine.profile and granted.ready_at == engine.ready_at

    @property
    def heard_at(self) -> float | None:
        """Time of the answer's last byte; None before the first that came under this lease."""
        at, since = None if self._progress is None else self._progress.heard_at, self._since
        return at if at is not None and since is not None and at >= since else None

    @property
    def is_held_up(self) -> bool:
        """Whether the answer waits for a slow client."""
        return self._progress is not None and self._progress.is_held_up

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._leasing.leave(self)
        if (at := self.heard_at) is not None:
            self._leasing.heard(self._lease.profile.name, at)
        if isinstance(error, UpstreamError):
            await self._leasing.broke_off(self._lease, error)
