"""Leasing: the way of one request, from its arrival over waiting and holding an engine to its end.

Leaving is a post, not a wait: no cancellation can come between. A service elsewhere has no engine, no turn and no
memory: its lease is granted at once, apart from the scheduler.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from functools import cached_property
from itertools import count
from math import isfinite
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from sparkdash.domain.base import per_request
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.profile import Profile
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError, HostError, SparkdashError, UpstreamError
from sparkdash.supervisor.decide import refusals
from sparkdash.supervisor.decide.moves import STUCK, Arrive, Cut, Grant, Refuse, Wait
from sparkdash.supervisor.probe import HeldRequests
from sparkdash.supervisor.repair import EngineWatch
from sparkdash.supervisor.state import guarded
from sparkdash.supervisor.tools import Tools

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_NUMBERS = count(1)


@per_request
class Lease:
    """Right to use an engine until the context is left."""

    profile: Profile
    engine: Engine
    url: str
    names: tuple[str, ...]
    """Model names that the engine accepts; the first replaces any other."""
    lost: asyncio.Future[SparkdashError]
    """Done when the engine died, or the lease was cut after the drain limit; its result says why."""
    headers: Mapping[str, str]


class AnswerProgress(Protocol):
    """Progress of the answer to a request; asked only when somebody looks."""

    @property
    def heard_at(self) -> float | None:
        """Monotonic time of the answer's last piece, keep-alives left out; None before the first."""
        ...

    @property
    def is_held_up(self) -> bool: ...


class QueuePlace(NamedTuple):
    """Place in the queue, 1 is next; engines in use that the request waits for, until then at the latest."""

    position: int
    held_by: str | None = None
    held_until: float | None = None
    """Unix seconds."""


class LeaseClaim:
    """Hand-over of a lease between the actor and one request. Every method may be called after its end."""

    __slots__ = ("_granted", "_leasing", "_on_wait", "_progress", "_since", "lost", "ticket")

    def __init__(
        self,
        leasing: "Leasing",
        request_id: str,
        on_wait: Callable[[QueuePlace], object],
        progress: AnswerProgress | None = None,
    ) -> None:
        self.ticket = f"{request_id}#{next(_NUMBERS)}"  # a retried request gets another ticket
        self._leasing = leasing
        self._on_wait = on_wait
        self._progress = progress
        self._since: float | None = None
        self._granted: asyncio.Future[Lease] | None = None
        self.lost: asyncio.Future[SparkdashError] = leasing.loop.create_future()

    def waits(self) -> asyncio.Future[Lease]:
        """Done with the lease, or with the error why there is none."""
        self._granted = self._leasing.loop.create_future()
        return self._granted

    def grant(self, lease: Lease) -> None:
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(lease)

    def refuse(self, error: SparkdashError) -> None:
        """End the wait with an error. Each waiter gets a copy: a traceback belongs to one."""
        if self._granted is not None and not self._granted.done():
            self._granted.set_exception(copy(error))

    def cut(self, error: SparkdashError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    def wait(self, place: QueuePlace) -> None:
        """Tell the place in the queue; later and apart, so that a listener's fault is not the actor's."""
        self._leasing.loop.call_soon(self._on_wait, place)


class Leasing:
    """Leases of all requests. `arrive` returns the profile that a request may use at once; None: it waits."""

    def __init__(
        self,
        tools: Tools,
        profiles: Mapping[str, Profile],
        watch: EngineWatch,
        *,
        arrive: Callable[[Arrive, float], str | None],
        leave: Callable[[str, float], None],
    ) -> None:
        """`arrive` and `leave` take the monotonic time as well."""
        self._tools = tools
        self.profiles = profiles
        """Profiles as they are now."""
        self._watch = watch
        self._arrive = arrive
        self._leave = leave
        self._claims: dict[str, LeaseClaim] = {}
        self._busy_remotes: Counter[str] = Counter()
        self._names: dict[str, tuple[Profile, tuple[str, ...]]] = {}
        """Profile that each engine was started from, and the model names that it accepts, by profile."""
        self.relayed_at: dict[str, float] = {}
        """Time of the last byte of ended answers, by profile."""
        self.monotonic = tools.clock.monotonic
        self.over = False

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def held(self, engine: Engine) -> HeldRequests:
        """Count the requests that this incarnation holds, and find out when a byte of any answer last came."""
        stays = [claim for claim in self._claims.values() if isinstance(claim, EngineLease) and claim.is_on(engine)]
        heard = [at for stay in stays if (at := stay.heard_at) is not None]
        if (over := self.relayed_at.get(engine.profile)) is not None:
            heard.append(over)
        return HeldRequests(len(stays), sum(stay.is_held_up for stay in stays), max(heard, default=None))

    @asynccontextmanager
    async def remote_lease(
        self, profile: Profile, request_id: str, on_wait: Callable[[QueuePlace], object]
    ) -> AsyncIterator[Lease]:
        """Lease a service elsewhere. Raises AdmissionError (in use, unusable) and HostError `key_missing`."""
        if self.over:
            raise refusals.shutting_down()
        claim = LeaseClaim(self, request_id, on_wait)
        self._claims[claim.ticket] = claim
        try:
            lease = self._remote(profile, claim)
            self._busy_remotes[profile.name] += 1
            try:
                yield lease
            except UpstreamError as error:
                raise _as_remote_error(profile, error) from None
            finally:
                self._busy_remotes[profile.name] -= 1
        finally:
            self._claims.pop(claim.ticket, None)

    def _remote(self, profile: Profile, claim: LeaseClaim) -> Lease:
        if profile.cannot_run:
            raise AdmissionError(f"{profile.name} cannot run here: {profile.cannot_run}.", code="cannot_run")
        limit = self._tools.settings.policy_of(profile.name).max_concurrency
        if limit is not None and self._busy_remotes[profile.name] >= limit:
            raise refusals.too_many(profile.name, limit)
        url = profile.url or ""
        engine = Engine(
            profile=profile.name,
            kind=profile.engine,
            state=EngineState.READY,
            since=self._tools.clock.now(),
            fingerprint=profile.fingerprint,
            url=url,
        )
        names = adapter_of(profile).served_names(profile)
        return Lease(profile, engine, url, names, claim.lost, remote_headers(profile))

    def arrive(self, claim: LeaseClaim, move: Arrive, now: float) -> Lease | None:
        """Return a lease if it is granted at once. None: the claim waits. Raises DaemonError when the daemon ends."""
        if self.over:
            raise refusals.shutting_down()
        self._claims[claim.ticket] = claim
        name = self._arrive(move, now)
        return None if name is None else self._granted(name, claim)

    def leave(self, claim: LeaseClaim) -> None:
        if self._claims.pop(claim.ticket, None) is not None:
            self._leave(claim.ticket, self.monotonic())

    async def broke_off(self, lease: Lease, trouble: UpstreamError) -> None:
        """Examine an engine that gave a request no answer. Raises EngineError (killed) or UpstreamError (it died)."""
        if killed := self._tools.guarded.reason(lease.engine.container):
            raise copy(killed) from None
        if trouble.code in (STUCK, refusals.CUT):
            return  # the cause is known, and a stuck or leaving engine would not answer a probe
        died = await self._watch.confirm(lease.profile, lease.engine, trouble)
        if died is None:
            return
        if died.code in guarded.CODES:
            raise copy(died) from None
        raise UpstreamError(died.message, code=died.code, hint=died.hint) from None

    def carry_out(self, effect: Grant | Wait | Refuse | Cut) -> None:
        """Tell those whom it concerns; who left meanwhile is not there, and its Leave is in the inbox."""
        ids = effect.ids if isinstance(effect, Cut) else (effect.id,)
        for claim in filter(None, map(self._claims.get, ids)):
            match effect:
                case Grant(profile=profile):
                    claim.grant(self._granted(profile, claim))
                case Wait():
                    claim.wait(self._place(effect))
                case Refuse(error=error):
                    claim.refuse(error)
                case Cut(error=error):
                    claim.cut(error)

    def _place(self, wait: Wait) -> QueuePlace:
        if (hold := wait.hold) is None:
            return QueuePlace(wait.position)
        clock = self._tools.clock
        until = clock.now() + hold.until - clock.monotonic()
        return QueuePlace(wait.position, ", ".join(hold.by), until if isfinite(until) else None)

    def retire(self, *, cut: bool) -> None:
        """Refuse new and waiting requests, as the daemon ends; with `cut` end every lease too. Idempotent."""
        self.over = True
        error = refusals.shutting_down()
        for claim in list(self._claims.values()):
            claim.refuse(error)
            if cut:
                claim.cut(error)

    def _granted(self, name: str, claim: LeaseClaim) -> Lease:
        engine, started = self._tools.registry.engines[name], self._tools.registry.started[name]
        profile = self.profiles.get(name, started)
        if profile is not started:
            now = profile.on(started.nodes)
            # request defaults may be newer than the engine; its launch arguments may not
            profile = now if now is started or now.fingerprint == started.fingerprint else started
        if engine.model_id is not None:
            return Lease(profile, engine, engine.url or "", (engine.model_id,), claim.lost, NO_HEADERS)
        named = self._names.get(name)
        if named is None or named[0] is not started:
            named = self._names[name] = started, tuple(self._tools.adapter(started).served_names(started))
        return Lease(profile, engine, engine.url or "", named[1], claim.lost, NO_HEADERS)


class EngineLease(LeaseClaim):
    """Lease of one request on an engine of this box, from its `arrival` on."""

    __slots__ = ("_lease", "arrival")

    arrival: Arrive
    _lease: Lease

    async def __aenter__(self) -> Lease:
        leasing = self._leasing
        now = leasing.monotonic()
        try:
            lease = leasing.arrive(self, self.arrival, now)
            if lease is None:
                lease, now = await self.waits(), leasing.monotonic()
        except BaseException:
            leasing.leave(self)
            raise
        self._lease, self._since = lease, now
        return lease

    def is_on(self, engine: Engine) -> bool:
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
        return self._progress is not None and self._progress.is_held_up

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._leasing.leave(self)
        if (at := self.heard_at) is not None:
            name, relayed_at = self._lease.profile.name, self._leasing.relayed_at
            relayed_at[name] = max(at, relayed_at.get(name, at))
        if isinstance(error, UpstreamError):
            await self._leasing.broke_off(self._lease, error)


def remote_headers(profile: Profile) -> dict[str, str]:
    """Return the headers with the key out of our environment. Raises HostError `key_missing`: none is usable."""
    name = profile.key_env
    if name is None:
        return {}
    if not (key := os.environ.get(name, "").strip()):
        raise HostError(
            f"{profile.name} needs the key of {host(profile)}, and the daemon's environment has no {name}.",
            code="key_missing",
            hint=f"Set {name} where the daemon is started, and start it again.",
        )
    if not key.isascii() or not key.isprintable():
        raise HostError(
            f"The key of {host(profile)} in {name} holds a character that no HTTP header takes.",
            code="key_missing",
            hint="Most often a quote or a dash of a word processor, or a second line. "
            f"Set {name} anew where the daemon is started.",
        )
    return {"Authorization": f"Bearer {key}"}


def host(profile: Profile) -> str:
    return urlsplit(profile.url or "").netloc.rpartition("@")[2] or profile.name


def not_started(profile: Profile) -> AdmissionError:
    return AdmissionError(
        f"{profile.name} is a service elsewhere, at {host(profile)}: nothing of it starts or stops here.",
        code="not_managed",
        hint="Requests that name it go there.",
    )


def _as_remote_error(profile: Profile, error: UpstreamError) -> UpstreamError:
    """Reword an engine's error for a remote service: its log is not on this box."""
    if error.code in ("engine_unreachable", "engine_timeout"):
        text, code = f"{profile.name} cannot be reached: {error.message}", "remote_unreachable"
    elif error.code == "engine_died":
        text, code = f"{profile.name}, a service at {host(profile)}, ended its answer too soon.", "remote_died"
    else:
        return error
    return UpstreamError(text, code=code, hint="Is its `url` right, and this box online?")
