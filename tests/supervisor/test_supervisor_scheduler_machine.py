"""The scheduler under random moves: what must hold whatever happens, in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from thorough import FULL, tries

from sparkdash.domain.cluster import Cables, Topology, topology_of
from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Task
from sparkdash.domain.swap import DefaultProfile, SwapCause
from sparkdash.errors import AdmissionError, EngineError, SparkdashError, UpstreamError
from sparkdash.supervisor.decide import moves
from sparkdash.supervisor.decide.fit import BoxMemory
from sparkdash.supervisor.decide.queue import Patience
from sparkdash.supervisor.decide.records import OFFERED, USE
from sparkdash.supervisor.decide.refusals import CUT
from sparkdash.supervisor.decide.scheduler import Scheduler
from sparkdash.units import GIB

RESERVE = 10 * GIB
TOTAL = 128 * GIB
MINE = 120 * GIB
"""Available memory while no engine runs and others take their usual share."""
SPARK2 = "spark2"
SIZES = {
    "a": 80, "b": 60, "c": 40, "pinned": 60, "d": 15, "alone": 20, "wide": 50, "there": 30, "half": 45, "whole": 70,
    "either": 60,
}  # fmt: skip
"""GiB, as learned; what is not here is not known."""
PROFILES = {
    "a": moves.ProfileFacts("fa", idle_ttl_s=600),
    "b": moves.ProfileFacts("fb", limit=4),
    "c": moves.ProfileFacts("fc"),
    "d": moves.ProfileFacts("fd"),
    "alone": moves.ProfileFacts("fl", loads_alone=True),
    "pinned": moves.ProfileFacts("fp", pinned=True),
    "wide": moves.ProfileFacts("fw", counts=(2,)),
    "half": moves.ProfileFacts("fh", counts=(4,), topologies=(Topology.LINE,)),
    "whole": moves.ProfileFacts("fo", counts=(8,)),
    "either": moves.ProfileFacts("fe", counts=(4, 2), topologies=(Topology.DIRECT, Topology.LINE)),
    "there": moves.ProfileFacts("ft", node=SPARK2),
    "unknown": moves.ProfileFacts("fu"),
    "remote": moves.ProfileFacts("fr", managed=False),
    "broken": moves.ProfileFacts("fx", cannot_run="no such head"),
}
NAMES = st.sampled_from(sorted(PROFILES))
WANTED = st.sampled_from([*"abcd", *PROFILES, None])
"""The engines of one box come up twice as often as the others."""
ERROR = EngineError("It died.", code="engine_crash")
FROZEN = EngineError("It is stuck.", code=moves.STUCK)
SHORT = AdmissionError("Memory is short.", code="memory_low", status=503, retry_after=10.0)
HOLD = 8 * GIB
"""Less available than this, and no load begins that nobody leaves for."""
LIMIT = 6
PATIENCE = Patience(min_dwell_s=30, max_wait_s=300, min_dwell_share=1)
PERSON = (SwapCause.USER, SwapCause.BENCH)


def one_of(targets: Callable[[Any], Iterable[str | None]], **more: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """A rule that is handed one of these, where there are any."""

    def decorate(step: Callable[..., None]) -> Any:
        def drawn(self: Machine, data: st.DataObject, **given: Any) -> None:
            step(self, data.draw(st.sampled_from(sorted(targets(self), key=str))), **given)

        drawn.__name__ = step.__name__
        return precondition(lambda self: bool([*targets(self)]))(rule(data=st.data(), **more)(drawn))

    return decorate


class Machine(RuleBasedStateMachine):
    """Plays the actor: carries effects out, and keeps records of its own to compare with. It is the nodes, too."""

    nodes: tuple[str, ...] = (LOCAL,)
    ring: Cables = {}

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(PROFILES, queue_limit=LIMIT, facts=self, patience=PATIENCE)
        self.twin = Scheduler(PROFILES, queue_limit=LIMIT, facts=self, patience=PATIENCE)
        """Gets the same moves, and knows no short way."""
        self.now = 0.0
        self.count = 0
        self.known = PROFILES
        self.waiting: dict[str, str | None] = {}
        """Ids in order of arrival, with what they asked for."""
        self.since: dict[str, float] = {}
        self.leased: dict[str, str] = {}
        self.may_return: Counter[str] = Counter()
        """Requests that lost their engine, by profile, less those that came back beyond the queue's limit."""
        self.returned: set[str] = set()
        """Ids that came back beyond the queue's limit."""
        self.running: set[str] = set()
        self.unstopped: set[str] = set()
        self.stuck: set[str] = set()
        self.silent: set[str] = set()
        self.where: dict[str, tuple[str, ...]] = {}
        self.touched: dict[str | None, set[str]] = {}
        """Nodes of each swap under way, and of those who leave for it."""
        self.others = dict.fromkeys(self.nodes, 0)
        self.others_then = dict.fromkeys(self.nodes, 0)
        """Bytes that strangers took beyond their usual share: now, and when the first load under way there began."""
        self.swaps: dict[str | None, moves.BeginSwap] = {}
        self.copying: set[str | None] = set()
        """Engines that copy to other nodes, while those that they evict serve on."""
        self.may_stop: set[str | None] = set()
        self.cancelling: set[str | None] = set()
        self.admitted: set[str | None] = set()
        """Engines that take memory: all of it, from then on."""
        self.wished: str | None = None

    # The box.

    def boxes(self) -> dict[str, BoxMemory]:
        return {node: self.box(node) for node in self.nodes if node not in self.silent}

    def differing(self) -> dict[str, str]:
        return {}

    def cables(self) -> Cables:
        return self.ring

    def unusable(self) -> dict[str, str]:
        return dict.fromkeys(self.silent, "It does not answer.")

    def box(self, node: str) -> BoxMemory:
        there = [name for name in self.running | self.unstopped if node in self.where[name]]
        there += [name for name in self.admitted if name is not None and node in self.swaps[name].nodes]
        return BoxMemory(TOTAL, MINE - self.total(there) - self.others[node], RESERVE)

    def total(self, names: Iterable[str]) -> int:
        """Bytes of those of them whose size is known, on each of their nodes."""
        return sum(self.size(name) or 0 for name in names)

    def need(self, profile: str, count: int | None = None) -> Need:
        size = self.size(profile)
        terms = (Term(name="steady", bytes=size, source="test"),)
        return Need() if size is None else Need(basis=Basis.LEARNED, terms=terms)

    def tasks(self, profile: str) -> frozenset[Task] | None:
        return frozenset({Task.EMBED}) if profile == "d" else None

    def reload_s(self, profile: str) -> float | None:
        return float(SIZES.get(profile, 0)) or None

    def short(self, profile: str) -> SparkdashError | None:
        available = self.box(LOCAL).available
        return SHORT if available is not None and available < HOLD else None

    def size(self, profile: str) -> int | None:
        """Bytes; None: not known. What is elsewhere takes nothing."""
        if profile == "remote":
            return 0
        return SIZES[profile] * GIB if profile in SIZES else None

    # The actor's half.

    def send(self, move: moves.Move) -> None:
        """Hand a move in and check each effect against the records."""
        batch = move.target if isinstance(move, moves.SwapDone) else None
        busy = self.memory_moves()
        if isinstance(move, moves.SwapDone | moves.SwapFailed) and move.target == self.wished:
            self.wished = None
        if isinstance(move, moves.SwapDone | moves.SwapFailed | moves.SwapCancelled):
            del self.swaps[move.target], self.touched[move.target]
            self.copying.discard(move.target)
            self.may_stop.discard(move.target)
            self.cancelling.discard(move.target)
            self.admitted.discard(move.target)
            busy = False
        effects = self.handled(move)
        assert repr(effects) == repr(self.twin.handle(move, self.now))  # each makes errors of its own
        assert self.scheduler.due == self.twin.due
        assert self.scheduler.records == self.twin.records
        for effect in effects:
            self.carry_out(effect)
        for effect in effects:
            if isinstance(effect, moves.Grant) and effect.profile != batch and not busy:
                self.nobody_was_overtaken(effect)

    def handled(self, move: moves.Move) -> list[moves.Effect]:
        """By the short way where there is one, as the actor does it."""
        match move:
            case moves.Arrive(id=id_):
                granted = self.scheduler.grant_at_once(move, self.now)
                return self.scheduler.handle(move, self.now) if granted is None else [moves.Grant(id_, granted)]
            case moves.Leave(id=id_) if self.scheduler.end_at_once(id_, self.now):
                return []
        return self.scheduler.handle(move, self.now)

    def carry_out(self, effect: moves.Effect) -> None:
        match effect:
            case moves.Grant(id=id_, profile=profile):
                self.granted(id_, profile)
            case moves.Decline(profile=profile) if (
                USE not in self.scheduler.records.queue
            ):  # else a preload was declined
                self.wished = None if self.wished == profile else self.wished
            case moves.Decline():
                pass
            case moves.Refuse(id=id_):
                assert id_ in self.waiting, "only one who waits is refused"
                del self.waiting[id_]
            case moves.Wait(id=id_, position=position):
                assert id_ in self.waiting
                assert 1 <= position <= len(self.waiting)
            case moves.BeginSwap():
                self.began(effect)
            case moves.Evict(target=target, profiles=profiles):
                assert profiles == self.swaps[target].evict
                assert target not in self.copying, "nobody leaves before the other nodes have what is needed there"
                assert not set(self.leased.values()) & set(profiles), "a leased engine is never evicted"
                self.may_stop.add(target)
            case moves.CancelSwap(target=target):
                assert target in self.swaps
                assert target not in self.cancelling
                self.cancelling.add(target)
            case moves.Cut(ids=ids, error=error):
                for_good = error.code == CUT and not isinstance(error, UpstreamError)  # a person stopped the engine
                for id_ in ids:
                    self.may_return[self.leased.pop(id_)] += not for_good

    def granted(self, id_: str, profile: str) -> None:
        assert id_ in self.waiting, "only one who waits is granted, and once"
        assert profile in self.running - self.stuck, "only an engine that runs and moves is granted"
        assert self.waiting[id_] in (profile, None)
        del self.waiting[id_]
        self.leased[id_] = profile

    def nobody_was_overtaken(self, grant: moves.Grant) -> None:
        """The engine of a request that waited its full time, came first and could have its turn is left alone."""
        for id_, wants in self.waiting.items():
            overdue = self.since[id_] <= self.since[grant.id] and self.now - self.since[id_] >= PATIENCE.max_wait_s
            # An older one's swap begins, and its own comes after it; or its own copies, and all serve on meanwhile.
            later = wants in self.copying or (self.memory_moves() and wants not in self.swaps)
            if overdue and not later and wants is not None and wants not in self.running and int(id_) < int(grant.id):
                choice = self.scheduler.choice(wants, self.now, person=False)
                assert choice.refused or grant.profile not in choice.names, "its turn was over"

    def began(self, swap: moves.BeginSwap) -> None:
        assert swap.target not in self.swaps, "never two swaps to the same end"
        there = (self.where[name] for name in swap.evict)
        touched = set(swap.nodes).union(*there) if self.moves_memory(swap) else set()
        if self.moves_memory(swap) and self.moving_on(touched):
            self.is_beside(swap)
        assert not self.silent & set(swap.nodes), "a silent node offers no room"
        self.on_its_nodes(swap)
        assert swap.target in (None, *self.known), "nobody can start what is no longer there"
        assert set(swap.reasons) == set(swap.evict), "nobody leaves without a reason"
        wanted = {*self.waiting.values(), self.wished}
        offered = swap.cause in OFFERED and swap.target not in wanted
        follows = None in self.waiting.values()
        if swap.target in self.stuck:
            assert swap.cause in PERSON, "no request restarts an engine that is stuck"
        assert swap.target is None or offered or follows or swap.target in wanted, "for nobody"
        assert swap.target not in self.running or swap.target in swap.evict
        if swap.cause not in PERSON:
            others = set(swap.evict) & set(self.known) - {swap.target}
            assert not any(self.known[name].pinned for name in others), "pinned is pinned"
        if swap.cause in OFFERED and swap.cause is not SwapCause.DEFAULT:
            assert not swap.evict, "an offer evicts nobody"
        if swap.cause in (SwapCause.IDLE, SwapCause.DEFAULT):
            assert not set(swap.evict) & {*self.leased.values(), *self.waiting.values()}, "somebody uses it"
        if swap.cause is SwapCause.REQUEST and swap.target != "remote":
            overdue = [w for i, w in self.waiting.items() if self.now - self.since[i] >= PATIENCE.max_wait_s]
            there = self.running | {"remote", *self.swaps}
            missed = [w for w in overdue if w is not None and w not in there]
            if len(self.nodes) == 1:  # elsewhere another may come first
                assert not missed or follows or swap.target == missed[0], "who has waited longest goes first"
        for node in touched:
            if not self.moving_on({node}):
                self.others_then[node] = self.others[node]
        if swap.target not in (None, "remote"):
            for node in swap.nodes:
                self.there_is_room(swap, node)
        self.swaps[swap.target] = swap
        self.touched[swap.target] = touched
        if swap.copies:
            assert set(swap.nodes) - {LOCAL}
            self.copying.add(swap.target)

    def on_its_nodes(self, swap: moves.BeginSwap) -> None:
        """As many as the profile asks for, and nobody leaves for it who is on none of them."""
        if swap.target is None or not (known := self.known[swap.target]).managed:
            return
        assert len(set(swap.nodes)) in known.counts
        assert known.node in (None, *swap.nodes)
        for name in set(swap.evict) - {swap.target}:
            assert set(self.where[name]) & set(swap.nodes), "it is on none of these nodes"

    def is_beside(self, swap: moves.BeginSwap) -> None:
        """One that only takes memory may begin beside others that only take some, if each is known to take what it takes."""
        others = set(self.moving_on(set(swap.nodes)))
        assert swap.target is not None
        assert not swap.evict
        assert others <= self.admitted - self.cancelling, "nobody leaves, and nothing is on its way back"
        assert not (others | {swap.target}) & {"alone", "unknown"}, "it must not see others take memory"

    def moves_memory(self, swap: moves.BeginSwap) -> bool:
        return bool({swap.target, *swap.evict} - {None, "remote"})

    def memory_moves(self) -> bool:
        return any(map(self.moves_memory, self.swaps.values()))

    def moving_on(self, nodes: set[str]) -> list[str | None]:
        """Targets of the swaps that move memory of these nodes."""
        return [target for target, touched in self.touched.items() if touched & nodes]

    def there_is_room(self, swap: moves.BeginSwap, node: str) -> None:
        """A start fits into what will be available on the node, and with all that stays into it."""
        assert swap.target is not None
        there = {name for name in self.running | self.unstopped if node in self.where[name]}
        coming_here = {name for name, each in self.swaps.items() if name is not None and node in each.nodes}
        stay = (there | coming_here) - set(swap.evict) - {"remote"}
        sizes = [self.size(name) for name in (*stay, swap.target)]
        if None in sizes:
            assert not stay, "an unknown need runs alone"
            return
        freed = self.total(name for name in swap.evict if node in self.where[name])
        available = self.box(node).available
        assert available is not None
        reserve = RESERVE if stay else 0  # one that runs alone, as it did before, may use it
        if self.others[node] == self.others_then[node]:  # they came after it was looked
            coming = self.total(stay - there - self.admitted)
            assert available + freed - coming - (self.size(swap.target) or 0) >= reserve or "unknown" in swap.evict
        assert sum(size or 0 for size in sizes) <= TOTAL - reserve

    # What clients, people and engines do.

    @rule(wanted=st.lists(WANTED, min_size=1, max_size=4), wait=st.sampled_from([0, 1, 40, 400]), batch=st.booleans())
    def arrive(self, wanted: list[str | None], wait: float, batch: bool) -> None:
        self.now += wait
        for profile in wanted:
            self.count += 1
            self.waiting[str(self.count)] = profile
            self.since[str(self.count)] = self.now
            task = Task.EMBED if profile == "d" else Task.GENERATE
            was_full = len(self.scheduler.records.queue) >= LIMIT
            self.send(moves.Arrive(str(self.count), profile, batch, task, "one" if wait else "other"))
            if was_full and str(self.count) in self.waiting:
                self.came_back(str(self.count))

    @rule(profile=WANTED)
    def complete(self, profile: str | None) -> None:
        """Autocomplete is served by what runs, or refused at once, and stops nobody."""
        self.count += 1
        self.waiting[str(self.count)] = profile
        self.since[str(self.count)] = self.now
        others = {*list(self.waiting.values())[:-1], self.wished, None}
        before = set(self.swaps)
        self.send(moves.Arrive(str(self.count), profile, autocomplete=True))
        assert str(self.count) not in self.waiting, "it never waits"
        for target in self.swaps.keys() - before - others:
            assert not self.swaps[target].evict or self.swaps[target].cause is not SwapCause.REQUEST, "it stops nobody"

    def came_back(self, id_: str) -> None:
        """A request that waits beyond the limit takes the place of one that was cut from the same profile's engine."""
        profile = self.scheduler.records.queue[id_].profile
        assert self.may_return[profile] > 0, "a new request never waits beyond the limit"
        self.may_return[profile] -= 1
        self.returned.add(id_)

    @precondition(lambda self: self.scheduler.due is not None)
    @rule()
    def tick(self) -> None:
        assert self.scheduler.due is not None
        assert self.scheduler.due > self.now, "time that has come is not waited for"
        self.now = self.scheduler.due
        self.send(moves.Tick())

    @rule(names=st.lists(NAMES, max_size=3))
    def preload(self, names: list[str]) -> None:
        self.send(moves.Preload(tuple(names)))

    @rule(name=st.none() | NAMES)
    def default(self, name: str | None) -> None:
        found = None if name is None else DefaultProfile(profile=name, after_s=5)
        self.send(moves.PolicyRead(PATIENCE, LIMIT, found))

    @rule(gib=st.sampled_from([0, 5, 40]), which=st.integers(0, 1))
    def strangers(self, gib: int, which: int) -> None:
        self.others[self.nodes[which % len(self.nodes)]] = gib * GIB

    @one_of(lambda self: self.leased)
    def finish(self, id_: str) -> None:
        del self.leased[id_]
        self.send(moves.Leave(id_))

    @one_of(lambda self: self.waiting, all_of_them=st.booleans())
    def hang_up(self, one: str, all_of_them: bool) -> None:
        for id_ in [*self.waiting] if all_of_them else [one]:
            self.waiting.pop(id_, None)
            self.leased.pop(id_, None)  # granted because another hung up
            self.send(moves.Leave(id_))

    @rule(profile=NAMES, cause=st.sampled_from([SwapCause.USER, SwapCause.BENCH]))
    def use(self, profile: str, cause: SwapCause) -> None:
        if profile != "broken" and profile in self.known:
            self.wished = profile
        self.send(moves.Use(profile, cause))

    @rule(profile=st.one_of(NAMES, st.none()))
    def stop(self, profile: str | None) -> None:
        if profile in (None, self.wished):
            self.wished = None
        self.send(moves.Stop(profile))

    @rule()
    def cancel(self) -> None:
        if self.wished in self.swaps.keys() - self.cancelling:
            self.wished = None
        self.send(moves.Cancel())

    @rule(profile=NAMES)
    def forgive(self, profile: str) -> None:
        self.send(moves.Release(profile))

    @rule(changed=st.booleans(), gone=st.sampled_from(["a", "b", "c", None]))
    def read_catalog(self, changed: bool, gone: str | None) -> None:
        read = {**PROFILES, "a": moves.ProfileFacts("fa2")} if changed else PROFILES
        if gone == self.wished:
            self.wished = None
        self.known = {name: known for name, known in read.items() if name != gone}
        self.send(moves.CatalogRead(self.known))

    @one_of(lambda self: self.running)
    def die(self, name: str) -> None:
        self.gone(name)
        self.send(moves.EngineDied(name, ERROR))

    @one_of(lambda self: self.running, wait=st.sampled_from([1, 130]))
    def stand_still(self, name: str, wait: float) -> None:
        self.now += wait
        self.stuck.add(name)
        self.send(moves.EngineHeld(name, FROZEN))

    @one_of(lambda self: self.stuck)
    def recover(self, name: str) -> None:
        self.stuck.discard(name)
        self.send(moves.EngineRecovered(name))

    @one_of(lambda self: self.stuck)
    def be_ended(self, name: str) -> None:
        self.end_stuck(name)

    def end_stuck(self, name: str) -> None:
        """A repair ended it: if it is not parked, and nobody wanted it gone, nobody who waits for it is refused."""
        waiting = {id_ for id_, wants in self.waiting.items() if wants == name}
        self.gone(name)
        self.send(moves.EngineDied(name, FROZEN))
        if self.scheduler.breaker.refusal(name, self.now) is None and name in self.known:
            assert waiting <= {*self.waiting, *self.leased}, "who waits for a repair gets the new engine"

    def gone(self, name: str) -> None:
        self.running.discard(name)
        self.stuck.discard(name)

    @one_of(lambda self: self.swaps)
    def drain_over(self, target: str | None) -> None:
        self.send(moves.DrainOver(target))

    # How a swap under way goes on.

    @one_of(lambda self: self.copying)
    def copied(self, target: str | None) -> None:
        self.end_copy(target)

    def end_copy(self, target: str | None) -> None:
        assert target is not None
        self.copying.discard(target)
        self.send(moves.Copied(target))

    def there(self, target: str | None) -> set[str]:
        return set(self.swaps[target].evict) & (self.running | self.unstopped)

    def stop_those(self, target: str | None) -> None:
        for name in self.swaps[target].evict:
            self.gone(name)
            self.unstopped.discard(name)
            self.send(moves.Evicted(name))

    def come_up(self, target: str | None) -> None:
        if target is not None:
            self.running.add(target)
            self.unstopped.discard(target)
            self.stuck.discard(target)
            self.where[target] = self.swaps[target].nodes
        self.send(moves.SwapDone(target))

    @one_of(lambda self: self.may_stop)
    def stopped(self, target: str | None) -> None:
        self.stop_those(target)

    @one_of(lambda self: self.may_stop)
    def wont_stop(self, target: str | None) -> None:
        for name in self.swaps[target].evict:
            if name in self.running:
                self.gone(name)
                self.unstopped.add(name)
                self.send(moves.WontStop(name))
        self.send(moves.SwapFailed(target, ERROR))

    def on_its_way(self, *, admitted: bool) -> list[str | None]:
        """Transitions whose drain and stops are over."""
        mere = (None, "remote")
        return [
            target
            for target in self.may_stop
            if not self.there(target) and ((target in self.admitted) is admitted or (admitted and target in mere))
        ]

    @one_of(lambda self: set(self.on_its_way(admitted=False)) - {None, "remote"})
    def admit(self, target: str) -> None:
        self.take_memory(target)

    def take_memory(self, target: str | None) -> None:
        assert target is not None
        self.admitted.add(target)
        self.send(moves.Admitted(target))

    @one_of(lambda self: self.on_its_way(admitted=True))
    def succeed(self, target: str | None) -> None:
        self.come_up(target)

    @one_of(lambda self: self.swaps)
    def fail(self, target: str | None) -> None:
        self.send(moves.SwapFailed(target, ERROR))

    @one_of(lambda self: self.cancelling)
    def give_up(self, target: str | None) -> None:
        self.send(moves.SwapCancelled(target))

    # What holds after every move.

    @invariant()
    def records_agree(self) -> None:
        records = self.scheduler.records
        assert {id_: held.profile for id_, held in records.leases.items()} == self.leased
        assert {t for t in records.queue if t != "(use)"} == set(self.waiting), "no ticket is lost"
        assert list(records.swaps) == list(self.swaps), "no swap is forgotten"
        assert {n for n, r in records.residents.items() if r.ready} == self.running
        assert {n for n, r in records.residents.items() if not r.ready} == self.unstopped, "no engine is forgotten"

    @invariant()
    def nobody_holds_an_engine_that_is_stuck(self) -> None:
        assert not self.stuck & set(self.leased.values())
        assert {n for n, r in self.scheduler.records.residents.items() if r.ready and r.stuck} == self.stuck

    @invariant()
    def a_drain_does_not_wait_for_an_engine_that_is_stuck(self) -> None:
        for target in self.swaps.keys() - self.may_stop - self.cancelling - self.copying:
            assert not set(self.swaps[target].evict) <= self.stuck, "nobody is on them"

    @invariant()
    def all_of_them_fit(self) -> None:
        for node in self.nodes:
            sizes = [self.size(name) for name in self.running - {"remote"} if node in self.where[name]]
            assert len(sizes) <= 1 or None not in sizes, "an unknown need runs alone"
            assert sum(size or 0 for size in sizes) <= TOTAL - RESERVE

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        repaired = {*self.waiting.values()} <= {*self.stuck, None} and self.stuck
        assert not self.waiting or self.swaps or self.scheduler.due or repaired, "who waits, waits for a swap or a time"

    @invariant()
    def who_waits_for_an_engine_that_runs_waits_for_its_end(self) -> None:
        ending = self.swaps.keys() - (self.copying - self.cancelling)
        going = {name for target in ending for name in self.swaps[target].evict} | self.scheduler.records.stops
        assert not set(self.waiting.values()) & (self.running - self.stuck - going), (
            "an idle engine keeps its requests waiting"
        )

    @invariant()
    def what_takes_no_memory_is_on_its_way(self) -> None:
        if None not in self.swaps:
            assert not set(self.waiting.values()) & {"remote"} - self.swaps.keys() - self.stuck, (
                "it waits for another's load"
            )

    @invariant()
    def a_drain_is_for_somebody(self) -> None:
        wanted = {*self.waiting.values(), self.wished}
        for target in self.swaps.keys() - self.may_stop - self.cancelling - {None}:
            offered = self.swaps[target].cause in OFFERED
            assert offered or target in wanted or None in self.waiting.values(), "nobody wants it any more"

    @invariant()
    def the_queue_is_bounded(self) -> None:
        beyond = self.returned & self.waiting.keys()
        assert len(self.waiting) <= LIMIT + len(beyond), "only requests that came back wait beyond the limit"

    def teardown(self) -> None:
        """With well-behaved engines and clients that finish, everyone who waits is served within a few swaps."""
        self.silent.clear()
        for _ in range(4 * len(PROFILES)):
            for id_ in list(self.leased):
                del self.leased[id_]
                self.send(moves.Leave(id_))
            for name in list(self.stuck):
                self.end_stuck(name)
            if not self.swaps:
                if not self.waiting:
                    break
                self.tick()
            for target in list(self.swaps):
                if target in self.cancelling:
                    self.send(moves.SwapCancelled(target))
                elif target in self.copying:
                    self.end_copy(target)
                elif target in self.may_stop:
                    self.stop_those(target)
                    if target not in (None, "remote"):
                        self.take_memory(target)
                    self.come_up(target)
        assert not self.waiting, "no ticket waits for ever"


class SeveralNodesMachine(Machine):
    """The same with more nodes, which fall silent and come back."""

    @rule(which=st.integers(0, 6))
    def fall_silent(self, which: int) -> None:
        self.silent.add(self.nodes[1 + which % (len(self.nodes) - 1)])

    @precondition(lambda self: self.silent)
    @rule()
    def come_back(self) -> None:
        self.silent.clear()


class TwoNodeMachine(SeveralNodesMachine):
    nodes = (LOCAL, SPARK2)

    @invariant()
    def an_engine_for_two_nodes_is_on_both(self) -> None:
        assert "wide" not in self.running or self.where["wide"] == self.nodes
        assert "there" not in self.running or self.where["there"] == (SPARK2,)


EIGHT = (LOCAL, SPARK2, *(f"spark{number}" for number in range(3, 9)))


class RingMachine(SeveralNodesMachine):
    """Eight boxes in a ring, any of which falls silent: engines of two, four and eight beside those of one."""

    nodes = EIGHT
    ring = {name: frozenset({EIGHT[place - 1], EIGHT[(place + 1) % 8]}) for place, name in enumerate(EIGHT)}

    @invariant()
    def ranks_follow_the_cables(self) -> None:
        wanted = {"wide": Topology.DIRECT, "half": Topology.LINE, "whole": Topology.RING}
        for name in wanted.keys() & self.running:
            assert topology_of(self.where[name], self.ring) is wanted[name], self.where[name]


PLAYED = settings(max_examples=tries(200), stateful_step_count=50, deadline=None, database=None)
Machine.TestCase.settings = PLAYED
TwoNodeMachine.TestCase.settings = PLAYED
RingMachine.TestCase.settings = settings(PLAYED, max_examples=5000 if FULL else 60, stateful_step_count=30)
TestScheduler = Machine.TestCase
TestSchedulerOfTwoNodes = TwoNodeMachine.TestCase
TestSchedulerOfARing = RingMachine.TestCase
TestSchedulerOfARing.pytestmark = [pytest.mark.timeout(1800)]  # 5,000 histories
