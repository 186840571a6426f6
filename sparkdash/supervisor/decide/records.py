"""Records of the scheduler: tickets, leases, residents and pending swaps, with small questions about them. Pure."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from sparkdash.domain.base import per_request
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Candidate, Task, meant_by_auto
from sparkdash.domain.swap import SwapCause
from sparkdash.supervisor.decide.fit import Choice
from sparkdash.supervisor.decide.moves import ProfileFacts

CLIENTS = 1000
"""Most clients that are remembered. A client chooses its own name, and so how many there are."""
USE = "(use)"
"""Id of the one ticket that stands for a person's wish; no request has it."""


class Stage(Enum):
    """Stage of a swap, as far as decisions need it."""

    COPYING = auto()
    """The evicted engines still serve for minutes, until other nodes have what the target lacks. A stop cancels it."""
    DRAINING = auto()
    """The swap waits for leases on evicted engines, and has stopped nothing."""
    GOING = auto()
    LOADING = auto()
    """Evicted engines have given back their memory, and none leaves any more."""
    CANCELLING = auto()
    """Given up; the actor cleans up."""


@dataclass(slots=True)
class PendingSwap:
    """A swap under way, as the scheduler records it."""

    target: str | None
    choice: Choice
    cause: SwapCause
    fingerprint: str | None
    moves_memory: bool = True
    """False: neither the target nor the evicted profiles are engines of our nodes."""
    stage: Stage = Stage.DRAINING
    nodes: frozenset[str] = frozenset()
    """Nodes whose memory the swap moves, set when it begins."""
    as_before: bool = False
    """Whether the target starts as it ran before its profile was edited."""
    interrupts: bool = False
    """Whether an engine that leaves was in use."""
    loads_since: float | None = None
    unwanted_since: float | None = None
    """Time since which nobody waits for the target; None while somebody does."""
    given_up: bool = False
    """Whether it was cancelled because nobody waits for it any more, so that who left for it comes back."""
    takes: int = 0
    """Bytes that the target will hold on each of its nodes, as known at the beginning."""
    frees: dict[str, int] = field(default_factory=dict)
    """Bytes that the evicted engines hold on each node, as known at the beginning."""

    @property
    def evict(self) -> tuple[str, ...]:
        return self.choice.names


@dataclass(frozen=True, slots=True)
class Ticket:
    """A waiting request, or a person's wish."""

    id: str
    profile: str
    cause: SwapCause = SwapCause.REQUEST
    follows: bool = False
    """Whether the request asked for `auto`: when its target fails, it takes whatever runs then."""
    batch: bool = False
    since: float = 0.0
    task: Task | None = None
    client: str | None = None
    autocomplete: bool = False


@per_request
class HeldLease:
    """A granted right to use an engine."""

    profile: str
    batch: bool


@dataclass(slots=True)
class Resident:
    """An engine that is there."""

    fingerprint: str | None
    managed: bool
    ready_at: float
    nodes: tuple[str, ...] = (LOCAL,)
    load_s: float = 0.0
    """Time that its load took; 0 of an engine that was adopted."""
    ready: bool = True
    """False: it would not stop, and serves nobody."""
    stuck: bool = False
    """Whether the engine makes no progress. It serves nobody, and requests for it wait for its repair."""
    used_at: float | None = None
    """Time when a request was last granted or over; None: none was."""
    talked_at: float | None = None
    """The same for requests that are not batch."""
    asked_at: dict[Task, float] = field(default_factory=dict)

    def touch(self, now: float, batch: bool) -> None:
        self.used_at = now
        if not batch:
            self.talked_at = now


@dataclass(slots=True)
class SchedulerRecords:
    """All records of the scheduler."""

    profiles: dict[str, ProfileFacts]
    queue: dict[str, Ticket] = field(default_factory=dict)
    leases: dict[str, HeldLease] = field(default_factory=dict)
    residents: dict[str, Resident] = field(default_factory=dict)
    ran_on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stops: set[str] = field(default_factory=set)
    """Profiles whose engines a person wants stopped."""
    clients: dict[tuple[str, Task], str] = field(default_factory=dict)
    """Profile that each client was last given for each task, the longest unused first; at most CLIENTS."""
    swaps: dict[str | None, PendingSwap] = field(default_factory=dict)
    """Swaps under way by target, in the order in which they began; None is the swap that only stops."""

    def managed(self, profile: str) -> bool:
        """Whether sparkdash starts this profile's engine, also when the profile's file is gone."""
        known = self.profiles.get(profile)
        return known is None or known.managed

    def waiting_for(self, profile: str | None) -> int:
        return sum(t.profile == profile for t in self.queue.values() if t.id != USE)

    def in_flight(self, profile: str) -> int:
        return sum(held.profile == profile for held in self.leases.values())

    def talking(self, profile: str) -> bool:
        return any(held.profile == profile and not held.batch for held in self.leases.values())

    def leaving(self) -> set[str]:
        return self.stops.union(*(swap.evict for swap in self.swaps.values()))

    def _refusing(self) -> set[str]:
        """Return those of them whose engines take no new requests any more."""
        return self.stops.union(*(swap.evict for swap in self.swaps.values() if swap.stage is not Stage.COPYING))

    @property
    def at_rest(self) -> bool:
        return not any(swap.moves_memory for swap in self.swaps.values())

    def moving_on(self, nodes: Iterable[str]) -> list[PendingSwap]:
        """Return the swaps under way that take or give back memory of these nodes."""
        return [swap for swap in self.swaps.values() if not swap.nodes.isdisjoint(nodes)]

    def touched(self, choice: Choice) -> frozenset[str]:
        """Return the nodes whose memory a swap with this choice would move."""
        there = (self.residents[name].nodes for name in choice.names if name in self.residents)
        return frozenset(choice.nodes).union(*there)

    def coming(self, profile: str) -> PendingSwap | None:
        """Return the swap that brings this profile, unless it was cancelled."""
        swap = self.swaps.get(profile)
        return None if swap is None or swap.stage is Stage.CANCELLING else swap

    def runs(self, profile: str) -> bool:
        """Whether the profile's engine serves whoever comes."""
        resident = self.residents.get(profile)
        return resident is not None and resident.ready and not resident.stuck and profile not in self._refusing()

    def awaits_repair(self, profile: str) -> bool:
        """Whether the profile's engine is stuck, and nothing else is decided about it."""
        resident = self.residents.get(profile)
        return resident is not None and resident.ready and resident.stuck and profile not in self.leaving()

    def as_written(self, profile: str) -> bool:
        """Whether the engine runs from the present version of its file, or that file is gone."""
        known = self.profiles.get(profile)
        return self.runs(profile) and (known is None or self.residents[profile].fingerprint == known.fingerprint)

    def misses(self, ticket: Ticket) -> bool:
        """A person's wish also misses when the engine that runs was started from an older version of the profile."""
        return not (self.as_written(ticket.profile) if ticket.id == USE else self.runs(ticket.profile))

    def note_use(self, profile: str, task: Task | None, client: str | None, now: float) -> None:
        if task is None or (resident := self.residents.get(profile)) is None:
            return
        resident.asked_at[task] = now
        if client is not None:
            self.clients.pop((client, task), None)
            self.clients[client, task] = profile
            if len(self.clients) > CLIENTS:
                del self.clients[next(iter(self.clients))]

    def auto(self, task: Task | None, client: str | None, tasks: Callable[[str], frozenset[Task] | None]) -> str | None:
        """Choose the profile that `auto` means: the one last used for the task, else one that loads or is stuck."""
        own = self.clients.get((client, task)) if client is not None and task is not None else None
        running = [
            Candidate(name, tasks(name), each.asked_at, each.ready_at)
            for name, each in self.residents.items()
            if self.runs(name)
        ]
        return meant_by_auto(task, reversed(running), own) or next(
            (name for name in self._coming_or_stuck() if Candidate(name, tasks(name), {}, 0.0).suits(task)), None
        )

    def _coming_or_stuck(self) -> list[str]:
        coming = [name for name in self.swaps if name is not None and self.coming(name)]
        return coming + [name for name in reversed(self.residents) if self.awaits_repair(name)]


def _is_other_launch(facts: ProfileFacts, was: Resident) -> bool:
    """Whether the profile's file now says another launch of ours, on as many nodes."""
    return facts.managed and len(was.nodes) in facts.counts and facts.fingerprint != was.fingerprint


OFFERED = frozenset({SwapCause.REPAIR, SwapCause.FALLBACK, SwapCause.PRELOAD, SwapCause.DEFAULT})
"""Causes of the swaps that nobody waits for."""


class Offers:
    """Engines that come when no request waits and none must leave: repairs, then fallbacks, then preloads."""

    def __init__(self) -> None:
        self._evicted: dict[str, dict[str, Resident]] = {}
        """Evicted engines by profile, by the targets of swaps that have not succeeded yet."""
        self.former: dict[str, str] = {}
        """Fingerprints of offered engines as they ran before their profiles were edited."""
        self._repairs: deque[str] = deque()
        self.fallbacks: deque[str] = deque()
        self._preloads: dict[str, SwapCause] = {}
        """Profiles to preload in their order, with the cause of each."""

    def repair(self, profile: str) -> None:
        if profile not in self._repairs:
            self._repairs.append(profile)

    def repairs(self, profile: str) -> bool:
        """Whether an engine of this profile is to come in the place of a stuck one."""
        return profile in self._repairs

    def preload(self, profiles: tuple[str, ...], cause: SwapCause) -> None:
        for profile in profiles:
            self._preloads.setdefault(profile, cause)

    def next(self) -> tuple[str, SwapCause] | None:
        if self._repairs:
            return self._repairs[0], SwapCause.REPAIR
        if self.fallbacks:
            return self.fallbacks[0], SwapCause.FALLBACK
        return next(iter(self._preloads.items()), None)

    def take(self) -> None:
        if offers := self._repairs or self.fallbacks:
            offers.popleft()
        else:
            self._preloads.pop(next(iter(self._preloads)))

    def evicted(self, profile: str, target: str, resident: Resident) -> None:
        self._evicted.setdefault(target, {})[profile] = resident

    def failed(self, target: str, facts: ProfileFacts | None) -> bool:
        """Offer the profiles again that left for a swap that failed; return whether any had left.

        The target's own engine comes back as it ran before its profile's edit. A server that is not ours does not: its
        owner has said that it is elsewhere.
        """
        left = self._evicted.pop(target, {})
        was = left.get(target)
        if was and was.fingerprint and facts and _is_other_launch(facts, was):
            self.former[target] = was.fingerprint
        self.fallbacks.extend(name for name in left if name != target or name in self.former)
        return bool(left)

    def succeeded(self, target: str) -> None:
        """Drop the profiles that were evicted for this swap: they are not offered again."""
        self._evicted.pop(target, None)

    def begun(self, target: str) -> None:
        """A swap to `target` begins, offered or asked for: there is nothing to offer any more."""
        for offers in (self._repairs, self.fallbacks):
            if target in offers:
                offers.remove(target)
        self._preloads.pop(target, None)
        self.former.pop(target, None)

    def stopped(self, profile: str | None) -> None:
        """Drop the offers of what a person stopped (None: everything), and every fallback."""
        self._repairs = deque(name for name in self._repairs if profile not in (None, name))
        self.fallbacks.clear()
        self.former.clear()
        for evicted in self._evicted.values():
            for name in [*evicted] if profile is None else [profile]:
                evicted.pop(name, None)
        self._preloads = {name: cause for name, cause in self._preloads.items() if profile not in (None, name)}
