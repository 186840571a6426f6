"""The scheduler under random moves: what must hold whatever happens, in whatever order."""

from __future__ import annotations

from collections.abc import Iterable

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkdash.domain.swap import SwapCause
from sparkdash.errors import EngineError
from sparkdash.supervisor.moves import (
    Arrive,
    BeginSwap,
    Cancel,
    CancelSwap,
    CatalogRead,
    Cut,
    DrainOver,
    Effect,
    EngineDied,
    Evict,
    Evicted,
    Grant,
    Known,
    Leave,
    Move,
    Refuse,
    Release,
    Stop,
    SwapCancelled,
    SwapDone,
    SwapFailed,
    Use,
    Wait,
    WontStop,
)
from sparkdash.supervisor.scheduler import Scheduler

PROFILES = {
    "a": Known("fa"),
    "b": Known("fb"),
    "c": Known("fc"),
    "remote": Known("fr", managed=False),
    "broken": Known("fx", cannot_run="no such head"),
}
NAMES = st.sampled_from(sorted(PROFILES))
WANTED = st.sampled_from(["a", "b", "c", "a", "b", "c", "remote", "remote", "broken", None])
ERROR = EngineError("It died.", code="engine_crash")
LIMIT = 6


class Machine(RuleBasedStateMachine):
    """Plays the actor: carries effects out, and keeps books of its own to compare with."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(PROFILES, queue_limit=LIMIT)
        self.now = 0.0
        self.count = 0
        self.known = PROFILES
        self.waiting: dict[str, str | None] = {}
        """Ids in order of arrival, with what they asked for."""
        self.leased: dict[str, str] = {}
        self.running: set[str] = set()
        self.swap: BeginSwap | None = None
        self.may_stop = False
        self.cancelling = False
        self.wished: str | None = None

    # The actor's half.

    def send(self, move: Move) -> None:
        """Hand a move in and check each effect against the books."""
        batch = self.swap.target if isinstance(move, SwapDone) and self.swap else None
        if isinstance(move, SwapDone | SwapFailed) and self.swap and self.swap.target == self.wished:
            self.wished = None
        if isinstance(move, SwapDone | SwapFailed | SwapCancelled):
            self.swap, self.may_stop, self.cancelling = None, False, False
        for effect in self.scheduler.handle(move):
            self.carry_out(effect, batch)

    def carry_out(self, effect: Effect, batch: str | None) -> None:
        match effect:
            case Grant(id=id_, profile=profile):
                self.granted(id_, profile, batch)
            case Refuse(id=id_):
                assert id_ in self.waiting, "only one who waits is refused"
                del self.waiting[id_]
            case Wait(id=id_, position=position):
                assert id_ in self.waiting
                assert 1 <= position <= len(self.waiting)
            case BeginSwap():
                self.began(effect)
            case Evict(profiles=profiles):
                assert self.swap
                assert profiles == self.swap.evict
                assert not set(self.leased.values()) & set(profiles), "a leased engine is never evicted"
                self.may_stop = True
            case CancelSwap():
                assert self.swap
                assert not self.cancelling
                self.cancelling = True
            case Cut(ids=ids):
                for id_ in ids:
                    del self.leased[id_]

    def granted(self, id_: str, profile: str, batch: str | None) -> None:
        assert id_ in self.waiting, "only one who waits is granted, and once"
        assert profile in self.running, "only a running engine is granted"
        assert self.waiting[id_] in (profile, None)
        if profile != batch:
            for older in self.older_than(id_):
                wants = self.waiting[older]
                assert wants in (profile, None, "remote") or profile == "remote", "an older miss goes first"
        del self.waiting[id_]
        self.leased[id_] = profile

    def older_than(self, id_: str) -> Iterable[str]:
        for other in self.waiting:
            if other == id_:
                return
            yield other

    def began(self, swap: BeginSwap) -> None:
        assert self.swap is None, "never two swaps at once"
        assert swap.target in (None, *self.known), "nobody can start what is no longer there"
        wanted = {*self.waiting.values(), self.wished}
        follows = None in self.waiting.values()
        assert swap.target is None or swap.cause is SwapCause.FALLBACK or follows or swap.target in wanted, "for nobody"
        if swap.cause is SwapCause.REQUEST:
            oldest = next(w for w in self.waiting.values() if w not in self.running or w in swap.evict)
            assert oldest in (swap.target, None), "the oldest miss chooses"
        assert swap.target not in self.running or swap.target in swap.evict
        self.swap = swap

    # What clients, people and engines do.

    @rule(wanted=st.lists(WANTED, min_size=1, max_size=4), wait=st.sampled_from([0, 1, 40]))
    def arrive(self, wanted: list[str | None], wait: float) -> None:
        self.now += wait
        for profile in wanted:
            self.count += 1
            self.waiting[str(self.count)] = profile
            self.send(Arrive(str(self.count), profile, self.now))

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from([*self.leased]))
        del self.leased[id_]
        self.send(Leave(id_))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), all_of_them=st.booleans())
    def hang_up(self, data: st.DataObject, all_of_them: bool) -> None:
        gone = [*self.waiting] if all_of_them else [data.draw(st.sampled_from([*self.waiting]))]
        for id_ in gone:
            self.waiting.pop(id_, None)
            self.leased.pop(id_, None)  # granted because another hung up
            self.send(Leave(id_))

    @rule(profile=NAMES, cause=st.sampled_from([SwapCause.USER, SwapCause.BENCH]))
    def use(self, profile: str, cause: SwapCause) -> None:
        if profile != "broken" and profile in self.known:
            self.wished = profile
        self.send(Use(profile, cause))

    @rule(profile=st.one_of(NAMES, st.none()))
    def stop(self, profile: str | None) -> None:
        if profile in (None, self.wished):
            self.wished = None
        self.send(Stop(profile))

    @rule()
    def cancel(self) -> None:
        if self.swap and not self.cancelling and self.swap.target == self.wished:
            self.wished = None
        self.send(Cancel())

    @rule(profile=NAMES)
    def forgive(self, profile: str) -> None:
        self.send(Release(profile))

    @rule(changed=st.booleans(), gone=st.sampled_from(["a", "b", "c", None]))
    def read_catalog(self, changed: bool, gone: str | None) -> None:
        read = {**PROFILES, "a": Known("fa2")} if changed else PROFILES
        if gone == self.wished:
            self.wished = None
        self.known = {name: known for name, known in read.items() if name != gone}
        self.send(CatalogRead(self.known))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(name)
        self.send(EngineDied(name, ERROR, self.now))

    @precondition(lambda self: self.swap)
    @rule()
    def drain_over(self) -> None:
        self.send(DrainOver())

    # How the swap under way goes on.

    @precondition(lambda self: self.may_stop)
    @rule()
    def stopped(self) -> None:
        assert self.swap
        for name in self.swap.evict:
            self.running.discard(name)
            self.send(Evicted(name))

    @precondition(lambda self: self.may_stop)
    @rule()
    def wont_stop(self) -> None:
        assert self.swap
        for name in self.swap.evict:
            if name in self.running:
                self.send(WontStop(name))
                self.running.discard(name)
        self.send(SwapFailed(ERROR, self.now))

    @precondition(lambda self: self.may_stop and not set(self.swap.evict) & self.running)
    @rule()
    def succeed(self) -> None:
        assert self.swap
        if self.swap.target is not None:
            self.running.add(self.swap.target)
        self.send(SwapDone())

    @precondition(lambda self: self.swap)
    @rule()
    def fail(self) -> None:
        self.send(SwapFailed(ERROR, self.now))

    @precondition(lambda self: self.cancelling)
    @rule()
    def give_up(self) -> None:
        self.send(SwapCancelled())

    # What holds after every move.

    @invariant()
    def books_agree(self) -> None:
        assert self.scheduler.leases == self.leased
        assert {t for t in self.scheduler.queue if t != "(use)"} == set(self.waiting), "no ticket is lost"
        assert (self.scheduler.swap is None) == (self.swap is None)
        assert {n for n, r in self.scheduler.residents.items() if r.ready} == self.running

    @invariant()
    def one_managed_resident(self) -> None:
        assert len(self.running - {"remote"}) <= 1

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        assert not self.waiting or self.swap, "who waits, waits for a swap"

    @invariant()
    def a_drain_is_for_somebody(self) -> None:
        swap = self.swap
        if swap and not self.may_stop and not self.cancelling and swap.cause is not SwapCause.FALLBACK:
            wanted = {*self.waiting.values(), self.wished}
            assert swap.target is None or swap.target in wanted or None in self.waiting.values(), (
                "nobody wants it any more"
            )

    @invariant()
    def the_queue_is_bounded(self) -> None:
        assert len(self.waiting) <= LIMIT

    def teardown(self) -> None:
        """With well-behaved engines and clients that finish, everyone who waits is served within a few swaps."""
        for _ in range(4 * len(PROFILES)):
            for id_ in list(self.leased):
                del self.leased[id_]
                self.send(Leave(id_))
            if self.swap is None:
                break
            if self.cancelling:
                self.give_up()
            else:
                self.stopped()
                self.succeed()
        assert not self.waiting, "no ticket waits for ever"


Machine.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None, database=None)
TestScheduler = Machine.TestCase
