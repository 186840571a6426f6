"""The decision table, row by row: moves in, effects out; no loop, no clock."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.memory.need import Basis, Need, Term
from sparkdash.domain.swap import SwapCause
from sparkdash.domain.task import Task
from sparkdash.errors import AdmissionError, EngineError, SparkdashError
from sparkdash.supervisor.scheduling.breaker import REST_S
from sparkdash.supervisor.scheduling.fairness import Patience
from sparkdash.supervisor.scheduling.fit import BoxMemory
from sparkdash.supervisor.scheduling.moves import (
    Admitted,
    Adopted,
    Arrive,
    BeginSwap,
    Cancel,
    CancelSwap,
    CatalogRead,
    Cut,
    Decline,
    DrainOver,
    Effect,
    EngineDied,
    Evict,
    Evicted,
    Grant,
    Leave,
    Move,
    Preload,
    ProfileFacts,
    Refuse,
    Release,
    Stop,
    SwapCancelled,
    SwapDone,
    SwapFailed,
    Tick,
    Use,
    Wait,
)
from sparkdash.supervisor.scheduling.records import CLIENTS
from sparkdash.supervisor.scheduling.scheduler import Scheduler
from sparkdash.units import GIB

REQUEST = SwapCause.REQUEST
ERROR = EngineError("It died.", code="engine_crash")


class Rig:
    """A scheduler whose time stands still, on a box of which nothing is known: engines run alone."""

    def __init__(self, limit: int) -> None:
        profiles = {name: ProfileFacts(f"f-{name}") for name in "abc"}
        self.scheduler = Scheduler(
            {**profiles, "far": ProfileFacts("f-far", managed=False)},
            queue_limit=limit,
            facts=self,
            patience=Patience(),
        )
        self.records = self.scheduler.records
        self.now = 0.0
        self.shortage: SparkdashError | None = None
        self.able: dict[str, frozenset[Task]] = {}

    def handle(self, move: Move) -> list[Effect]:
        return self.scheduler.handle(move, self.now)

    @property
    def stopping(self) -> bool:
        return self.scheduler.stopping

    def box(self) -> BoxMemory:
        return BoxMemory()

    def need(self, profile: str) -> Need:
        return Need()

    def tasks(self, profile: str) -> frozenset[Task] | None:
        return self.able.get(profile)

    def reload_s(self, profile: str) -> float | None:
        return None

    def short(self, profile: str) -> SparkdashError | None:
        return self.shortage


def new(*, limit: int = 100) -> Rig:
    """Three managed profiles, one that is elsewhere, nothing running."""
    return Rig(limit)


def with_a(*, limit: int = 100) -> Rig:
    """`a` runs."""
    scheduler = new(limit=limit)
    scheduler.handle(Adopted("a", "f-a"))
    return scheduler


def arrive(id_: str, profile: str | None) -> Arrive:
    return Arrive(id_, profile)


def feed(scheduler: Rig, *moves: Move) -> list[Effect]:
    """The effects of all of them, places left out."""
    effects = [effect for move in moves for effect in scheduler.handle(move)]
    return [effect for effect in effects if not isinstance(effect, Wait)]


def test_a_hit_is_granted_at_once() -> None:
    """The engine runs and nobody older waits for another."""
    assert with_a().handle(arrive("1", "a")) == [Grant("1", "a")]


def test_a_miss_begins_a_swap_and_may_stop_at_once_what_nobody_holds() -> None:
    """The order and the leave to evict come together; the place is told."""
    assert with_a().handle(arrive("1", "b")) == [BeginSwap("b", ("a",), REQUEST), Evict("b", ("a",)), Wait("1", 1)]


def test_a_miss_joins_the_swap_in_flight_for_the_same_target() -> None:
    """One load for all."""
    scheduler = with_a()
    scheduler.handle(arrive("1", "b"))
    assert scheduler.handle(arrive("2", "b")) == [Wait("2", 2)]
    scheduler.handle(Evicted("a"))
    assert scheduler.handle(SwapDone("b")) == [Grant("1", "b"), Grant("2", "b")]


def test_a_leased_engine_is_evicted_only_when_its_last_lease_left() -> None:
    """Two leases, two leaves, one Evict."""
    scheduler = with_a()
    assert feed(scheduler, arrive("1", "a"), arrive("2", "a"), arrive("3", "b"))[-1] == BeginSwap("b", ("a",), REQUEST)
    assert feed(scheduler, Leave("1")) == []
    assert feed(scheduler, Leave("2")) == [Evict("b", ("a",))]


def test_an_older_miss_blocks_younger_hits_of_the_evicted_side() -> None:
    """Otherwise a busy profile would keep every other out for ever."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), arrive("2", "b"))
    assert feed(scheduler, arrive("3", "a")) == []


def test_those_who_wait_when_a_swap_is_done_go_together_and_then_the_oldest_miss_has_its_turn() -> None:
    """The batch is what arrived before the engine was ready; whoever comes later waits."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"), arrive("2", "a"), arrive("3", "b"), Evicted("a"))
    done = feed(scheduler, SwapDone("b"))
    assert done == [Grant("1", "b"), Grant("3", "b"), BeginSwap("a", ("b",), REQUEST)]
    assert feed(scheduler, arrive("4", "b"), Leave("1")) == []
    assert feed(scheduler, Leave("3")) == [Evict("a", ("b",))]


def test_an_engine_elsewhere_blocks_nobody() -> None:
    """It evicts nothing, so hits of the resident engine pass while it is probed."""
    scheduler = with_a()
    assert feed(scheduler, arrive("1", "far")) == [BeginSwap("far", (), REQUEST), Evict("far", ())]
    assert feed(scheduler, arrive("2", "a")) == [Grant("2", "a")]
    assert feed(scheduler, SwapDone("far"), arrive("3", "a")) == [Grant("1", "far"), Grant("3", "a")]


def test_no_swap_for_nobody() -> None:
    """Its only ticket left during the drain: called off, and the hits that it blocked go on."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), arrive("2", "b"), arrive("3", "a"))
    assert feed(scheduler, Leave("2")) == [CancelSwap("b")]
    assert feed(scheduler, SwapCancelled("b")) == [Grant("3", "a")]


def test_a_load_goes_on_when_its_client_left() -> None:
    """The retry is coming; the old engine is gone anyway."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"))
    assert feed(scheduler, Leave("1"), Evicted("a"), SwapDone("b")) == []
    assert feed(scheduler, arrive("2", "b")) == [Grant("2", "b")]


def test_after_the_drain_limit_leases_are_cut_and_the_eviction_goes_on() -> None:
    """Only those on the evicted side; a limit that comes too late does nothing."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), arrive("2", "b"))
    cut, evict = feed(scheduler, DrainOver("b"))
    assert isinstance(cut, Cut)
    assert cut.ids == ("1",)
    assert evict == Evict("b", ("a",))
    assert feed(scheduler, DrainOver("b"), Leave("1")) == []


def test_a_failed_swap_refuses_all_of_its_target_and_falls_back_once() -> None:
    """Then the one that ran before, with cause FALLBACK; if that fails too, nothing."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"), arrive("2", "b"), Evicted("a"))
    effects = feed(scheduler, SwapFailed("b", ERROR))
    assert effects[:2] == [Refuse("1", ERROR), Refuse("2", ERROR)]
    assert effects[2:] == [BeginSwap("a", (), SwapCause.FALLBACK), Evict("a", ())]
    assert feed(scheduler, SwapFailed("a", ERROR)) == []


def test_no_fall_back_when_nothing_was_evicted() -> None:
    """The old engine never left: it serves on."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"))
    assert feed(scheduler, SwapFailed("b", ERROR)) == [Refuse("1", ERROR)]
    assert feed(scheduler, arrive("2", "a")) == [Grant("2", "a")]


def test_who_waits_for_a_third_profile_goes_before_the_fall_back() -> None:
    """Bringing the old one up only to evict it again would cost a swap."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"), arrive("2", "c"), Evicted("a"))
    assert feed(scheduler, SwapFailed("b", ERROR))[1:] == [BeginSwap("c", (), REQUEST), Evict("c", ())]
    assert feed(scheduler, SwapFailed("c", ERROR))[1:] == [BeginSwap("a", (), SwapCause.FALLBACK), Evict("a", ())]


@pytest.mark.parametrize(
    ("release", "now"),
    [
        (Use("b", SwapCause.USER), 1.0),
        (Release("b"), 1.0),
        (CatalogRead({"b": ProfileFacts("f-b")}), 1.0),
        (Leave("x"), REST_S),
    ],
)
def test_a_failure_is_remembered_until_a_person_a_repair_a_catalog_or_its_rest(release: Move, now: float) -> None:
    """Before that a retry is refused with the cached reason, and no time that a client would obey."""
    scheduler = new()
    feed(scheduler, arrive("1", "b"), SwapFailed("b", ERROR))
    scheduler.now = 20.0
    (refused,) = feed(scheduler, arrive("2", "b"))
    assert isinstance(refused, Refuse)
    assert (refused.error.code, refused.error.retry_after) == ("engine_crash", None)
    scheduler.now = now
    feed(scheduler, release, arrive("3", "b"))
    assert scheduler.records.swaps
    assert "3" in scheduler.records.queue


def test_a_newer_wish_replaces_an_older_one() -> None:
    """B then C before anything was stopped: only C comes."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), Use("b", SwapCause.USER))
    assert feed(scheduler, Use("c", SwapCause.USER)) == [CancelSwap("b")]
    assert feed(scheduler, SwapCancelled("b")) == [BeginSwap("c", ("a",), SwapCause.USER)]


def test_a_wish_does_not_end_a_load_that_a_request_waits_for() -> None:
    """The person's turn comes after it."""
    scheduler = new()
    feed(scheduler, arrive("1", "b"))
    assert feed(scheduler, Use("c", SwapCause.USER)) == []
    assert feed(scheduler, SwapDone("b")) == [Grant("1", "b"), BeginSwap("c", ("b",), SwapCause.USER)]


def test_a_wish_for_what_runs_is_fulfilled() -> None:
    """Unless it runs from an older version of its file: then it is started again."""
    scheduler = with_a()
    assert feed(scheduler, Use("a", SwapCause.USER)) == []
    feed(scheduler, CatalogRead({"a": ProfileFacts("newer")}))
    assert feed(scheduler, arrive("1", "a"), Leave("1")) == [Grant("1", "a")]
    assert feed(scheduler, Use("a", SwapCause.USER)) == [BeginSwap("a", ("a",), SwapCause.USER), Evict("a", ("a",))]


def test_auto_never_swaps() -> None:
    """Refused when nothing is there; joins what loads; takes what became ready last, where none was used."""
    scheduler = new()
    (refused,) = feed(scheduler, arrive("1", None))
    assert isinstance(refused, Refuse)
    assert refused.error.code == "no_engine"
    feed(scheduler, arrive("2", "a"))
    assert feed(scheduler, arrive("3", None)) == []
    assert feed(scheduler, SwapDone("a")) == [Grant("2", "a"), Grant("3", "a")]
    feed(scheduler, arrive("4", "far"), SwapDone("far"))
    assert feed(scheduler, arrive("5", None)) == [Grant("5", "far")]


def ask(id_: str, profile: str | None, task: Task = Task.GENERATE, client: str = "agent") -> Arrive:
    return Arrive(id_, profile, False, task, client)


def test_auto_is_the_engine_that_was_last_used_for_the_task() -> None:
    """By this client, else by anybody; not the one that became ready last, nor one that was used for something else."""
    rig = small("a", "b", "c")
    rig.now = 1
    feed(rig, ask("1", "a"), Leave("1"))
    rig.now = 2
    feed(rig, ask("2", "c", Task.EMBED), Leave("2"))
    assert feed(rig, ask("3", None)) == [Grant("3", "a")]
    assert feed(rig, ask("4", None, Task.EMBED)) == [Grant("4", "c")]
    rig.now = 3
    feed(rig, ask("5", "b", client="other"))
    assert feed(rig, ask("6", None), ask("7", None, client="third")) == [Grant("6", "a"), Grant("7", "b")]
    feed(rig, EngineDied("a", ERROR))
    assert feed(rig, ask("8", None)) == [Grant("8", "b")], "its own is gone"


def test_auto_is_no_engine_that_cannot_do_what_is_asked() -> None:
    """Where nothing that runs or loads can, it is refused with the task."""
    rig = small("a")
    rig.able = {"a": frozenset({Task.EMBED}), "b": frozenset({Task.GENERATE})}
    (refused,) = feed(rig, ask("1", None))
    assert isinstance(refused, Refuse)
    assert (refused.error.code, "can generate" in refused.error.message) == ("no_engine", True)
    feed(rig, ask("2", "b"))
    assert feed(rig, ask("3", None)) == []
    assert feed(rig, SwapDone("b")) == [Grant("2", "b"), Grant("3", "b")]
    assert feed(rig, ask("4", None, Task.EMBED)) == [Grant("4", "a")]


def test_only_so_many_clients_are_remembered() -> None:
    """What they call themselves is theirs to choose."""
    rig = small("a")
    for number in range(CLIENTS + 5):
        feed(rig, ask(str(number), "a", client=f"client {number}"), Leave(str(number)))
    assert len(rig.records.clients) == CLIENTS
    assert next(iter(rig.records.clients)) == ("client 5", Task.GENERATE)


def test_auto_takes_what_runs_when_its_target_failed() -> None:
    """It did not ask for that profile, and need not pay for its failure."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"), arrive("2", None), Evicted("a"))
    assert feed(scheduler, SwapFailed("b", ERROR))[0] == Refuse("1", ERROR)
    assert feed(scheduler, SwapDone("a")) == [Grant("2", "a")]


def test_stop_comes_before_the_queue_and_refuses_those_who_wait() -> None:
    """Stop everything means everything."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), arrive("2", "b"))
    effects = feed(scheduler, Stop(None))
    assert effects[0] == CancelSwap("b")
    assert isinstance(effects[1], Refuse)
    assert effects[1].id == "2"
    assert feed(scheduler, SwapCancelled("b")) == [BeginSwap(None, ("a",), SwapCause.USER)]
    assert feed(scheduler, Leave("1")) == [Evict(None, ("a",))]
    assert scheduler.stopping
    assert feed(scheduler, Evicted("a"), SwapDone(None)) == []
    assert not scheduler.stopping


def test_a_died_engine_takes_its_leases_with_it() -> None:
    """Whoever waited for the drain goes on."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), arrive("2", "b"))
    assert feed(scheduler, EngineDied("a", ERROR)) == [Cut(("1",), ERROR), Evict("b", ("a",))]


def test_a_full_queue_refuses_misses_and_not_hits() -> None:
    """A hit does not wait."""
    scheduler = with_a(limit=1)
    feed(scheduler, arrive("1", "far"))
    (refused,) = feed(scheduler, arrive("2", "b"))
    assert isinstance(refused, Refuse)
    assert refused.error.code == "queue_full"
    assert feed(scheduler, arrive("3", "a")) == [Grant("3", "a")]


def test_leaving_twice_or_as_a_stranger_is_nothing() -> None:
    """One idempotent leave."""
    scheduler = with_a()
    assert feed(scheduler, arrive("1", "a"), Leave("1"), Leave("1"), Leave("x")) == [Grant("1", "a")]


def test_a_hundred_clients_in_turn_cost_as_many_swaps_as_there_are_profiles() -> None:
    """All arrive before the first load is done; each profile's go together, and nobody is refused."""
    scheduler = new()
    effects = feed(scheduler, *(arrive(str(n), "abc"[n % 3]) for n in range(100)))
    granted: list[str] = []
    swaps = 0
    while scheduler.records.swaps:
        swaps += 1
        ((target, swap),) = scheduler.records.swaps.items()
        for profile in swap.evict:
            effects = feed(scheduler, Evicted(profile))
        effects = feed(scheduler, SwapDone(target))
        batch = [effect.id for effect in effects if isinstance(effect, Grant)]
        granted += batch
        feed(scheduler, *map(Leave, batch))
    assert swaps == 3
    assert granted == [str(n) for first in range(3) for n in range(first, 100, 3)]


def test_no_fall_back_to_a_profile_that_went_away() -> None:
    """Its file was deleted while another load went before the fall back: there is nothing to go back to."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"), arrive("2", "c"), Evicted("a"), SwapFailed("b", ERROR), Cancel())
    feed(scheduler, CatalogRead({"b": ProfileFacts("f-b"), "c": ProfileFacts("f-c")}))
    assert feed(scheduler, SwapCancelled("c")) == []
    assert not scheduler.records.swaps


def test_a_stop_that_comes_as_the_load_succeeds_stops_what_came_up() -> None:
    """Cancelling was too late; the person still wanted it gone, and is told only when it is."""
    scheduler = new()
    feed(scheduler, Use("b", SwapCause.USER), Stop("b"))
    assert feed(scheduler, SwapDone("b")) == [BeginSwap(None, ("b",), SwapCause.USER), Evict(None, ("b",))]
    assert scheduler.stopping
    feed(scheduler, Evicted("b"), SwapDone(None))
    assert not scheduler.stopping
    assert scheduler.records.residents == {}


class Sized(Rig):
    """The same on a box of which everything is known; `gib` by profile."""

    def __init__(self, gib: dict[str, int], patience: Patience, **known: dict[str, Any]) -> None:
        super().__init__(100)
        self.gib = gib
        profiles = {name: ProfileFacts(f"f-{name}", **known.get(name, {})) for name in gib}
        self.scheduler = Scheduler(profiles, queue_limit=100, facts=self, patience=patience)
        self.records = self.scheduler.records

    def box(self) -> BoxMemory:
        held = sum(self.gib[name] for name in self.records.residents)
        return BoxMemory(128 * GIB, (120 - held) * GIB, 10 * GIB)

    def need(self, profile: str) -> Need:
        term = Term(name="steady", bytes=self.gib[profile] * GIB, source="test")
        return Need(basis=Basis.LEARNED, terms=(term,))


def beside(*running: str, **known: dict[str, Any]) -> Sized:
    """a and b fit together, c fits beside neither; a dwell of 30 s, and 900 s are the longest wait."""
    rig = Sized({"a": 40, "b": 50, "c": 90}, Patience(30, 900), **known)
    for name in running:
        rig.handle(Adopted(name, f"f-{name}"))
    return rig


def test_a_miss_that_waits_behind_a_load_keeps_nobody_from_the_engine_that_it_will_evict() -> None:
    """Until its turn comes that engine would only stand idle, for as long as another loads. From then on nobody overtakes it."""
    rig = beside("a")
    feed(rig, arrive("1", "b"), arrive("2", "c"))
    assert feed(rig, arrive("3", "a"), arrive("4", None)) == [Grant("3", "a"), Grant("4", "a")]
    assert feed(rig, Leave("4"), SwapDone("b")) == [Grant("1", "b")]
    rig.now = 60
    assert feed(rig, Leave("1"), Tick()) == [BeginSwap("c", ("a", "b"), REQUEST)]
    assert feed(rig, arrive("5", "a")) == []
    assert feed(rig, Leave("3")) == [Evict("c", ("a", "b"))]


def test_what_takes_no_memory_begins_while_another_loads_and_while_it_is_cancelled() -> None:
    """An engine elsewhere is only probed: neither a load, nor one that waits for its turn, holds that up."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "b"), arrive("2", "c"), Evicted("a"))
    assert feed(scheduler, arrive("3", "far")) == [BeginSwap("far", (), REQUEST), Evict("far", ())]
    assert feed(scheduler, SwapDone("far")) == [Grant("3", "far")]
    assert feed(scheduler, EngineDied("far", ERROR), Leave("3"), Cancel())[1:2] == [CancelSwap("b")]
    assert feed(scheduler, arrive("4", "far")) == [BeginSwap("far", (), REQUEST), Evict("far", ())]
    assert feed(scheduler, SwapCancelled("b")) == [BeginSwap("c", (), REQUEST), Evict("c", ())]
    assert feed(scheduler, SwapDone("far"), SwapDone("c")) == [Grant("4", "far"), Grant("2", "c")]


def test_the_end_of_one_swap_says_nothing_of_another() -> None:
    """Its drain goes on, and who left for it comes back when it fails."""
    scheduler = with_a()
    feed(scheduler, arrive("1", "a"), arrive("2", "b"), arrive("3", "far"))
    assert feed(scheduler, DrainOver("far"), SwapDone("far")) == [Grant("3", "far")]
    assert feed(scheduler, Leave("1")) == [Evict("b", ("a",))]
    feed(scheduler, Evicted("a"), EngineDied("far", ERROR), arrive("4", "far"), SwapFailed("far", ERROR))
    assert feed(scheduler, SwapFailed("b", ERROR))[1:] == [BeginSwap("a", (), SwapCause.FALLBACK), Evict("a", ())]


def test_a_stop_of_what_is_elsewhere_does_not_wait_for_a_load() -> None:
    """It gives no memory back. A stop of an engine of this box does wait: one that loads must not see memory come back."""
    scheduler = with_a()
    feed(scheduler, Adopted("far", "f-far"), arrive("1", "b"), Evicted("a"))
    assert feed(scheduler, Stop("far")) == [BeginSwap(None, ("far",), SwapCause.USER), Evict(None, ("far",))]
    assert feed(scheduler, Evicted("far"), SwapDone(None)) == []
    rig = beside("a")
    feed(rig, arrive("1", "b"))
    assert feed(rig, Stop("a")) == []
    assert rig.stopping
    assert feed(rig, arrive("2", "a")) == []
    assert feed(rig, SwapDone("b")) == [Grant("1", "b"), BeginSwap(None, ("a",), SwapCause.USER), Evict(None, ("a",))]


def test_one_that_fits_beside_the_others_comes_although_an_older_one_is_held_back() -> None:
    """c would interrupt a, which is in use; b interrupts nobody."""
    rig = beside("a")
    assert feed(rig, arrive("1", "a"), arrive("2", "c"), arrive("3", "b"))[1:] == [
        BeginSwap("b", (), REQUEST),
        Evict("b", ()),
    ]
    assert feed(rig, SwapDone("b")) == [Grant("3", "b")]


def small(*running: str, **known: dict[str, Any]) -> Sized:
    """All but `big` fit together."""
    rig = Sized({"a": 20, "b": 20, "c": 20, "big": 100}, Patience(), **known)
    for name in running:
        rig.handle(Adopted(name, f"f-{name}"))
    return rig


def test_a_load_begins_beside_another_once_that_has_its_room() -> None:
    """Not before: what leaves for the first, or is still on its way back, is not there for a second."""
    rig = small("a")
    assert feed(rig, arrive("1", "big")) == [BeginSwap("big", ("a",), REQUEST), Evict("big", ("a",))]
    assert feed(rig, arrive("2", "b"), Evicted("a"), Cancel())[0] == CancelSwap("big")
    assert feed(rig, SwapCancelled("big")) == [BeginSwap("b", (), REQUEST), Evict("b", ())]
    assert feed(rig, arrive("3", "c")) == []
    assert feed(rig, Admitted("b")) == [BeginSwap("c", (), REQUEST), Evict("c", ())]
    assert feed(rig, SwapDone("c"), SwapDone("b")) == [Grant("3", "c"), Grant("2", "b")]


def test_nobody_behind_one_who_waits_for_memory_takes_any_before_it() -> None:
    """The older one needs room that others must make: a stream of small loads would keep it out for ever."""
    rig = small()
    feed(rig, arrive("1", "a"), Admitted("a"), arrive("2", "big"))
    assert feed(rig, arrive("3", "b")) == []
    assert feed(rig, SwapDone("a")) == [Grant("1", "a"), BeginSwap("big", ("a",), REQUEST)]
    assert feed(rig, arrive("4", "a"), Leave("1")) == [Evict("big", ("a",))]


def test_no_load_begins_beside_another_while_a_stop_waits_for_its_end() -> None:
    """A person's word comes before the queue."""
    rig = small("a")
    feed(rig, arrive("1", "b"), Admitted("b"), Stop("a"))
    assert feed(rig, arrive("2", "c")) == []
    assert feed(rig, SwapDone("b")) == [Grant("1", "b"), BeginSwap(None, ("a",), SwapCause.USER), Evict(None, ("a",))]
    assert feed(rig, Evicted("a"), SwapDone(None)) == [BeginSwap("c", (), REQUEST), Evict("c", ())]


def test_who_sizes_itself_by_what_is_free_loads_alone() -> None:
    """Neither beside another, nor another beside it."""
    rig = small(b={"loads_alone": True})
    feed(rig, arrive("1", "a"), Admitted("a"))
    assert feed(rig, arrive("2", "b")) == []
    assert feed(rig, SwapDone("a"), Admitted("b")) == [Grant("1", "a"), BeginSwap("b", (), REQUEST), Evict("b", ())]
    assert feed(rig, arrive("3", "c")) == []


def test_a_wish_ends_a_load_that_nobody_waits_for_only_where_it_stands_in_its_way() -> None:
    """One that fits beside it comes beside it."""
    rig = small()
    feed(rig, Use("a", SwapCause.USER), Admitted("a"))
    assert feed(rig, Use("b", SwapCause.USER)) == [BeginSwap("b", (), SwapCause.USER), Evict("b", ())]
    assert feed(rig, Use("big", SwapCause.USER)) == [CancelSwap("a"), CancelSwap("b")]


def test_what_is_forecast_behind_several_loads_counts_each_once() -> None:
    """The box as it was before them, less what comes; one that fails gives its share back."""
    rig = small()
    feed(rig, arrive("1", "a"), Admitted("a"), arrive("2", "b"), Admitted("b"))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 20 - 10) * GIB
    feed(rig, SwapFailed("a", ERROR))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 10) * GIB
    feed(rig, SwapDone("b"))
    assert rig.scheduler.choice("c", 0.0).available == (120 - 20 - 10) * GIB


def test_a_preload_waits_for_its_turn_behind_those_who_ask() -> None:
    """It comes beside a load, and not while somebody waits for memory."""
    rig = small()
    feed(rig, arrive("1", "a"), Admitted("a"), arrive("2", "big"))
    assert feed(rig, Preload(("b",))) == []
    assert feed(rig, Leave("2")) == [BeginSwap("b", (), SwapCause.PRELOAD), Evict("b", ())]


def test_an_engine_in_use_is_not_interrupted_before_its_dwell_is_over() -> None:
    """Hits go on until then; the alarm is set to the end of the dwell, or of the pause of who used it last."""
    rig = beside("a")
    feed(rig, arrive("1", "a"), arrive("2", "c"))
    assert rig.scheduler.due == 30
    rig.now = 10
    assert feed(rig, Leave("1"), arrive("3", "a"), Leave("3")) == [Grant("3", "a")]
    assert rig.scheduler.due == 15
    rig.now = 15
    assert feed(rig, Tick()) == [BeginSwap("c", ("a",), REQUEST), Evict("c", ("a",))]


def test_a_person_and_whoever_has_waited_longest_interrupt_at_once() -> None:
    """The dwell is for requests, and ends with their patience."""
    rig = beside("a")
    feed(rig, arrive("1", "a"))
    assert feed(rig, Use("c", SwapCause.USER)) == [BeginSwap("c", ("a",), SwapCause.USER)]


def test_batch_waits_for_those_who_talk_and_not_for_ever() -> None:
    """It is behind them in the line, does not interrupt their engine, and goes first after the longest wait."""
    rig = beside("a")
    rig.now = 100  # the dwell is over
    feed(rig, arrive("1", "a"))
    assert feed(rig, Arrive("2", "c", batch=True)) == []
    assert rig.scheduler.due == 1000
    rig.now = 990
    assert feed(rig, Leave("1"), arrive("3", "a")) == [Grant("3", "a")]
    rig.now = 1000
    assert feed(rig, Tick(), arrive("4", "a")) == [BeginSwap("c", ("a",), REQUEST)]
    assert feed(rig, Leave("3")) == [Evict("c", ("a",))]


def test_batch_does_not_wait_for_batch() -> None:
    """Nobody talks to the engine that it interrupts."""
    rig = beside("a")
    rig.now = 100
    feed(rig, Arrive("1", "a", batch=True))
    assert feed(rig, Arrive("2", "c", batch=True)) == [BeginSwap("c", ("a",), REQUEST)]


def test_interactive_requests_are_before_batch_in_the_line() -> None:
    """Whatever loads first, the next swap is theirs."""
    rig = beside()
    feed(rig, arrive("1", "a"), Arrive("2", "c", batch=True), arrive("3", "b"))
    effects = rig.handle(SwapDone("a"))
    assert [e for e in effects if isinstance(e, BeginSwap)] == [BeginSwap("b", (), REQUEST)]


def test_a_fall_back_comes_only_where_it_fits_beside_what_runs() -> None:
    """c failed after a and b had left for it: both come back, one after the other."""
    rig = beside("a", "b")
    feed(rig, arrive("1", "c"), Evicted("a"), Evicted("b"))
    effects = feed(rig, SwapFailed("c", ERROR))
    assert effects[1:] == [BeginSwap("a", (), SwapCause.FALLBACK), Evict("a", ())]
    assert feed(rig, SwapDone("a")) == [BeginSwap("b", (), SwapCause.FALLBACK), Evict("b", ())]
    assert feed(rig, SwapDone("b")) == []


SHORT = AdmissionError("Memory is short.", code="memory_low", status=503, retry_after=10.0)


def test_while_memory_is_short_a_load_for_which_nobody_leaves_is_refused_on_arrival() -> None:
    """What runs goes on serving, what runs elsewhere takes nothing here, and a wish is declined."""
    rig = beside("a")
    rig.shortage = SHORT
    assert feed(rig, arrive("1", "b")) == [Refuse("1", SHORT)]
    assert feed(rig, Use("b", SwapCause.USER)) == [Decline("b", SHORT)]
    assert feed(rig, Preload(("b",))) == [Decline("b", SHORT)]
    assert feed(rig, arrive("2", "a")) == [Grant("2", "a")]
    assert feed(new_short(), arrive("1", "far")) == [BeginSwap("far", (), REQUEST), Evict("far", ())]


def test_while_memory_is_short_a_load_that_makes_room_first_may_begin() -> None:
    """Who leaves is what made it short; and who comes to wait for what loads already is not sent away for its memory."""
    rig = with_a()
    rig.shortage = SHORT
    assert feed(rig, arrive("1", "b"))[0] == BeginSwap("b", ("a",), REQUEST)
    feed(rig, Evicted("a"))
    assert feed(rig, arrive("2", "b")) == []


def new_short() -> Rig:
    """Nothing runs, and memory is short."""
    rig = new()
    rig.shortage = SHORT
    return rig


def test_a_server_that_is_not_ours_leaves_before_its_newer_file_is_used_and_a_stop_waits_for_that() -> None:
    """One change at a time has it, and none ends with a resident that nobody serves."""
    scheduler = new()
    feed(scheduler, Adopted("far", "f-old"))
    use = Use("far", SwapCause.USER)
    assert feed(scheduler, use) == [BeginSwap("far", ("far",), SwapCause.USER), Evict("far", ("far",))]
    assert feed(scheduler, Stop("far")) == [CancelSwap("far")]
    assert feed(scheduler, Evicted("far"), SwapCancelled("far")) == []
    assert (scheduler.records.residents, scheduler.records.stops, scheduler.stopping) == ({}, set(), False)


def test_an_engine_of_ours_that_leaves_for_a_server_that_is_not_ours_gives_memory_back() -> None:
    """Its file names such a server by now: no load begins before that swap is over."""
    scheduler = with_a()
    scheduler.handle(CatalogRead({"a": ProfileFacts("f-new", managed=False), "b": ProfileFacts("f-b")}))
    assert feed(scheduler, Use("a", SwapCause.USER)) == [BeginSwap("a", ("a",), SwapCause.USER), Evict("a", ("a",))]
    assert feed(scheduler, arrive("1", "b"), Evicted("a")) == []
    assert feed(scheduler, SwapDone("a"))[0] == BeginSwap("b", (), REQUEST)
