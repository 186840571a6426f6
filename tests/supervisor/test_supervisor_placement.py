"""Where an engine comes, who leaves for it, and whether it fits, in plain figures: GiB, nodes of 128 with 10 in reserve."""

import json
import struct
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from surroundings.house import make_profile
from surroundings.rig import engine, need
from thorough import tries

from sparkdash.catalog.checkpoint import weights
from sparkdash.domain.cluster import Topology
from sparkdash.domain.memory import Basis, Footprint, Measure
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import ModelRef
from sparkdash.store import Store
from sparkdash.supervisor.decide.fit import BoxMemory, Choice, Leaving, Occupant, choose, must_be_free
from sparkdash.supervisor.decide.moves import ProfileFacts
from sparkdash.supervisor.decide.occupancy import place, placements
from sparkdash.supervisor.decide.refusals import unplaced
from sparkdash.supervisor.planner import verdict
from sparkdash.supervisor.tools import Needs
from sparkdash.units import GIB

NODES = (LOCAL, "b", "c")
BOTH = (LOCAL, "b")


def boxes(**available: int) -> dict[str, BoxMemory]:
    return {name: BoxMemory(128 * GIB, free * GIB, 10 * GIB) for name, free in available.items()}


def ask(gib: int | None, there: list[Occupant], free: dict[str, BoxMemory], *, count: int = 1, **where: Any) -> Choice:
    """`new` needs so much on each of `count` nodes."""
    places = placements([*free], count=count, **{"pinned": None, **where})
    return place(Occupant("new", need(gib)), there, free, places, person=False)


def test_on_a_tie_this_box_is_preferred_unless_the_profile_ran_elsewhere_last() -> None:
    free = boxes(local=120, b=120)
    assert ask(60, [], free).nodes == (LOCAL,)
    assert ask(60, [], free, last=("b",)).nodes == ("b",)
    assert ask(60, [engine("a", 80, "b")], boxes(local=120, b=40), last=("b",)).nodes == (LOCAL,)


def test_a_node_on_which_nothing_is_under_way_is_preferred() -> None:
    assert placements(BOTH, count=1, pinned=None, last=(LOCAL,), moving={LOCAL}) == [("b",), (LOCAL,)]


def test_where_somebody_must_leave_the_cheapest_eviction_decides() -> None:
    busy, idle = engine("busy", 80, busy=2), engine("idle", 80, "b", idle_s=900)
    choice = ask(60, [busy, idle], boxes(local=40, b=40))
    assert (choice.nodes, choice.names) == (("b",), ("idle",))


def test_a_profile_for_two_nodes_evicts_what_must_leave_on_each() -> None:
    there = [engine("a", 80), engine("small", 10, idle_s=9000), engine("b-one", 80, "b"), engine("far", 80, "c")]
    choice = ask(70, there, boxes(local=30, b=40, c=40), count=2, last=BOTH)
    assert (choice.nodes, choice.names, choice.fits) == (BOTH, ("a", "b-one"), True)
    assert {room.node: room.available for room in choice.rooms} == {LOCAL: 100 * GIB, "b": 110 * GIB}
    assert (choice.tightest, choice.available) == (LOCAL, 100 * GIB)


def test_one_engine_over_both_nodes_leaves_rather_than_one_on_each() -> None:
    there = [engine("a", 30, idle_s=900), engine("b", 30, "b", idle_s=900), engine("wide", 30, LOCAL, "b", idle_s=70)]
    assert ask(40, there, boxes(local=30, b=30), count=2).names == ("wide",)


def test_a_cluster_of_four_runs_two_models_on_its_halves() -> None:
    free = boxes(local=40, b=40, c=120, d=120)
    choice = ask(60, [engine("first", 80, LOCAL, "b")], free, count=2)
    assert (choice.nodes, choice.names) == (("c", "d"), ())
    assert ask(60, [], boxes(d=120, b=120, local=120), count=3).nodes == (LOCAL, "d", "b")
    assert ask(60, [engine("first", 80, LOCAL, "b")], free, count=4).names == ("first",)


def test_of_several_numbers_the_largest_is_taken_that_needs_nobody_to_leave_else_the_largest_that_stops_no_busy_one() -> (
    None
):
    needs = {4: need(40), 2: need(70)}

    def chosen(there: list[Occupant], **free: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        places = [some for count in needs for some in placements([*free], count=count, pinned=None)]
        choice = place(Occupant("new", needs[4]), there, boxes(**free), places, person=False, needs=needs)
        return choice.nodes, choice.names

    assert chosen([], local=120, b=120, c=120, d=120) == (("local", "b", "c", "d"), ())
    first = engine("first", 100, LOCAL, idle_s=900)
    assert chosen([first], local=20, b=120, c=120, d=120) == (("b", "c"), ())
    assert chosen([first], local=20, b=120, c=60, d=60) == (("local", "b", "c", "d"), ("first",))
    assert chosen([first, engine("busy", 70, "d", busy=1)], local=20, b=120, c=60, d=40) == (("local", "b"), ("first",))
    assert chosen([], local=120, b=120, c=120) == (("local", "b"), ()), "a box is gone"
    assert chosen([], local=60, b=60, c=60, d=60) == (("local", "b", "c", "d"), ()), "on two it would not fit"


def test_on_a_ring_two_models_run_on_its_halves_and_a_third_names_whom_it_stops_on_each_box() -> None:
    order = (LOCAL, "b", "c", "d")
    ring = in_a_ring(*order)
    assert ask(60, [], boxes(local=40, b=120, c=40, d=120), count=2, cables=ring).fits is False
    half = ask(60, [engine("first", 80, LOCAL, "b")], boxes(local=40, b=40, c=120, d=120), count=2, cables=ring)
    assert (half.nodes, half.names) == (("c", "d"), ())
    there = [engine("first", 80, LOCAL, "b"), engine("second", 80, "c", "d")]
    full = boxes(local=40, b=40, c=40, d=40)
    whole = ask(100, there, full, count=4, cables=ring)
    assert (whole.nodes, whole.names) == (order, ("first", "second"))
    across = ask(100, [*there, engine("small", 10, "b")], full, count=2, cables=ring, last=("b", "c"))
    assert across.names == ("first",), "one half is stopped, and not one box of each"


def in_a_ring(*order: str) -> dict[str, frozenset[str]]:
    after = (*order[1:], order[0])
    return {name: frozenset({order[place - 1], after[place]}) for place, name in enumerate(order)}


def test_a_refusal_tells_wrong_cables_from_a_silent_box() -> None:
    order = (LOCAL, "b", "c", "d")
    row = in_a_ring(*order) | {LOCAL: frozenset("b"), "d": frozenset("c")}
    three = unplaced("new", ProfileFacts("f", counts=(3,)), [*order], {}, row)
    assert (three.code, three.message) == (
        "nodes_apart",
        "new needs 3 boxes in a ring or behind a switch. There are the cables b-c, b-this box, c-d.",
    )
    assert "`topologies: [line]`" in (three.hint or "")
    lost = unplaced("new", ProfileFacts("f", counts=(4,)), [*order[:3]], {"d": "It is silent."}, in_a_ring(*order))
    assert (lost.code, lost.status) == ("node_unreachable", 503)
    alone = unplaced("new", ProfileFacts("f", counts=(2,), topologies=(Topology.RING,)), ["a", "b"], {}, {})
    assert alone.message == "new needs 2 boxes in a ring. There are no cables from box to box."


def test_a_node_that_the_profile_names_is_the_only_one() -> None:
    choice = ask(60, [engine("a", 80, "b")], boxes(local=120, b=40), pinned="b")
    assert (choice.nodes, choice.names) == (("b",), ("a",))
    assert placements(["b", LOCAL], count=1, pinned="c") == []


@pytest.mark.parametrize(
    ("comes", "there"), [(None, engine("a", 10)), (20, engine("a", None)), (20, engine("a", 10, unstopped=True))]
)
def test_what_must_run_alone_is_alone_on_its_node_only(comes: int | None, there: Occupant) -> None:
    free = boxes(local=100, b=120)
    assert ask(comes, [there], free).nodes == ("b",)
    assert ask(comes, [there], free, pinned=LOCAL).names == ("a",)


def test_one_engine_at_a_time_is_meant_of_each_node() -> None:
    free = {name: BoxMemory(128 * GIB, 100 * GIB, 10 * GIB, side_by_side=False) for name in BOTH}
    assert ask(20, [engine("a", 10)], free).nodes == ("b",)
    assert ask(20, [engine("a", 10), engine("b", 10, "b", idle_s=99)], free).names == ("b",)


def test_what_fits_nowhere_is_refused_with_the_figures_of_the_roomiest_node() -> None:
    choice = ask(110, [engine("a", 60), engine("b", 60, "b")], boxes(local=20, b=45))
    assert choice.refused
    assert (choice.tightest, choice.available) == ("b", 95 * GIB)


def test_a_restart_stays_where_the_engine_ran_and_takes_its_older_engine_along() -> None:
    old = engine("new", 60, "b")
    assert ask(60, [old], boxes(local=120, b=60), last=("b",)).nodes == ("b",)
    moved = ask(60, [old], boxes(local=120, b=60), pinned=LOCAL)
    assert (moved.nodes, moved.names) == ((LOCAL,), ("new",))


# Whatever there is.

SIZES = st.one_of(st.none(), st.integers(1, 90))
BASES = st.sampled_from([Basis.LEARNED, Basis.DECLARED, Basis.ESTIMATED])


@st.composite
def rooms(draw: st.DrawFn, nodes: tuple[str, ...]) -> dict[str, BoxMemory]:
    def box() -> BoxMemory:
        free = draw(st.one_of(st.none(), st.integers(0, 125)))
        return BoxMemory(
            total=draw(st.sampled_from([128 * GIB, 128 * GIB, None])),
            available=None if free is None else free * GIB,
            reserve=draw(st.sampled_from([0, 10])) * GIB,
            more_is_coming=draw(st.booleans()),
            side_by_side=draw(st.sampled_from([True, True, True, False])),
        )

    return {node: box() for node in nodes}


@st.composite
def engines(draw: st.DrawFn, nodes: tuple[str, ...], name: str) -> Occupant:
    on = draw(st.lists(st.sampled_from(nodes), min_size=1, unique=True))
    gib = draw(SIZES)
    return Occupant(
        name,
        need(gib, draw(BASES)),
        tuple(on),
        managed=draw(st.sampled_from([True] * 5 + [False])),
        pinned=draw(st.sampled_from([False, False, False, True])),
        unstopped=draw(st.sampled_from([False] * 7 + [True])),
        stuck=draw(st.sampled_from([False] * 7 + [True])),
        busy=draw(st.integers(0, 2)),
        idle_s=float(draw(st.sampled_from([0, 30, 90, 900]))),
        reload_s=draw(st.sampled_from([None, 30.0, 600.0])),
    )


@st.composite
def questions(draw: st.DrawFn, most: int = 3) -> tuple[Occupant, list[Occupant], dict[str, BoxMemory], int, bool]:
    nodes = NODES[: draw(st.integers(1, most))]
    names = draw(st.lists(st.sampled_from(["a", "b", "c", "d", "e", "new"]), max_size=5, unique=True))
    there = [draw(engines(nodes, name)) for name in names]
    gib = draw(SIZES)
    peak = None if gib is None else draw(st.one_of(st.none(), st.integers(gib, gib + 30)))
    comer = Occupant("new", need(gib, draw(BASES), peak), (), managed=draw(st.sampled_from([True] * 7 + [False])))
    return comer, there, draw(rooms(nodes)), draw(st.integers(1, len(nodes))), draw(st.booleans())


MANY = settings(max_examples=tries(300), deadline=None)


def decided(question: Any) -> tuple[Choice, list[Occupant], list[Occupant]]:
    comer, there, free, count, person = question
    choice = place(comer, there, free, placements([*free], count=count, pinned=None), person=person)
    gone = [one for one in there if one.profile in choice.names]
    return choice, gone, [one for one in there if one not in gone and one.managed]


def held(engines: list[Occupant], node: str) -> int:
    return sum(one.need.total_bytes or 0 for one in engines if node in one.nodes)


@MANY
@given(questions())
def test_no_node_is_ever_overcommitted(question: Any) -> None:
    comer, _, free, _, _ = question
    choice, gone, stay = decided(question)
    needs = comer.need.room_bytes
    if not comer.managed or choice.refused or not choice.fits:
        return
    assert needs is not None
    for node in choice.nodes:
        box, beside = free[node], [one for one in stay if node in one.nodes]
        assert box.available is not None
        reserve = box.reserve if beside else 0  # one that runs alone, as it did before, may use it
        assert needs + reserve <= box.available + held(gone, node)
        assert box.total is None or needs + reserve + held(beside, node) <= box.total


@MANY
@given(questions())
def test_nobody_leaves_on_a_node_that_does_not_need_it(question: Any) -> None:
    comer, there, free, _, person = question
    choice, gone, _ = decided(question)
    if not comer.managed or choice.refused:
        return
    others = [one for one in gone if one.profile != comer.profile]
    assert all(set(one.nodes) & set(choice.nodes) for one in others)
    if not person:
        assert not any(one.pinned for one in others)
    for one in others if choice.fits else ():
        spared = choose_without(one, comer, there, free, choice)
        assert not spared, f"{one.profile} need not have left"


def choose_without(
    one: Occupant, comer: Occupant, there: list[Occupant], free: dict[str, BoxMemory], choice: Choice
) -> bool:
    """Whether there is room for the newcomer beside this one too, by figures that are all known."""
    stay = [each for each in there if each.managed and each.profile not in choice.names] + [one]
    gone = [each for each in there if each.profile in choice.names and each is not one]
    needs = comer.need.room_bytes or 0
    if one.unstopped or one.need.total_bytes is None:
        return False
    for node in set(one.nodes) & set(choice.nodes):
        box, beside = free[node], [each for each in stay if node in each.nodes]
        if not box.side_by_side or any(each.need.total_bytes is None for each in beside):
            return False
        room = (box.available or 0) + held(gone, node)
        if needs + box.reserve > room or (box.total and needs + box.reserve + held(beside, node) > box.total):
            return False
    return True


@MANY
@given(questions())
def test_where_a_place_needs_nobody_to_leave_nobody_leaves(question: Any) -> None:
    comer, there, free, count, person = question
    _, gone, _ = decided(question)
    names = [LOCAL, *[name for name in free if name != LOCAL]]
    for place_ in combinations(names, count):
        if count > 1 and place_[0] != LOCAL:
            continue
        here = choose(Occupant("new", comer.need, place_, comer.managed), there, free, person=person)
        if comer.managed and not here.refused and not set(here.names) - {"new"}:
            assert not [one for one in gone if one.profile != "new"]


def model(folder: Path) -> ModelRef:
    """A model of one tensor of 2 MiB."""
    head = json.dumps({"w": {"dtype": "BF16", "shape": [1024, 1024], "data_offsets": [0, 2097152]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(2097152))
    (folder / "config.json").write_text("{}")
    return ModelRef(path=str(folder))


async def test_what_was_learned_goes_before_the_estimate_and_that_knows_the_weights_once_they_are_read(
    tmp_path: Path,
) -> None:
    learned: dict[str, Footprint] = {}
    needs = Needs(learned.get, tmp_path, lambda: 128 * GIB)
    profile = make_profile("a", gib=None, models={"target": model(tmp_path)}, args={"kv-cache-memory-bytes": "1G"})
    before = {term.name: term.bytes for term in needs(profile).terms}
    assert (needs(profile).basis, before["weights"], needs.target(profile)) == (Basis.UNKNOWN, None, None)
    await needs.read([profile])
    after = {term.name: term.bytes for term in needs(profile).terms}
    assert (needs(profile).basis, after["weights"]) == (Basis.ESTIMATED, 2097152)
    assert (target := needs.target(profile)) is not None
    assert (target.bytes.total, target.sees) == (2097152, False)
    learned[profile.fingerprint] = Footprint(
        loads=1, steady_bytes=3 * GIB, peak_bytes=4 * GIB, at=0.0, measure=Measure.AVAILABLE
    )
    assert (needs(profile).basis, needs(profile).room_bytes) == (Basis.LEARNED, 4 * GIB)


async def test_weights_that_break_the_reader_are_not_known_and_harm_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(weights, "read_profile_weights", broken)
    needs = Needs(lambda _: None, tmp_path, lambda: None)
    profile = make_profile("a", gib=None)
    await needs.read([profile])
    assert needs(profile).total_bytes is None


async def test_the_ceiling_of_a_launch_is_known_once_its_weights_are_read(tmp_path: Path) -> None:
    """2 MiB a step at 273 GB/s; states and keys are none at an empty context."""
    needs = Needs(lambda _: None, tmp_path, lambda: 128 * GIB)
    profile = make_profile("a", gib=None, models={"target": model(tmp_path)})
    shape = {"num_hidden_layers": 1, "num_attention_heads": 8, "hidden_size": 1024}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    assert needs.most_steps_s(profile) is None
    await needs.read([profile])
    assert needs.most_steps_s(profile) == pytest.approx(273e9 / 2097152)


async def test_a_first_load_tells_the_least_time_that_reading_its_weights_takes(
    house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the disk's measured rate: 2 MiB at 1 MiB/s. Later loads know better."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    (tmp_path / "disk.json").write_text('{"bytes_per_s": 1048576}')
    await house.open(make_profile("a", models={"target": model(tmp_path)}), store=Store(lambda _: None))
    await house.clock.rest()
    await house.leased("a")
    await house.supervisor.stop("a")
    await house.leased("a")
    assert [swap.reads_s for swap in house.swaps() if swap.target == "a"] == [2.0, None]


BOX = BoxMemory(128 * GIB, 100 * GIB, 10 * GIB)
LEFT = (Leaving("old", "idle"),)
FITS = Choice((), 40 * GIB, 90 * GIB, True)
TIGHT = Choice(LEFT, 40 * GIB, 35 * GIB)
WITHIN = "It fits once old has left, within the reserve, as it did here before."
NEVER = "It does not fit, whichever engines leave: 35.0 GiB can be freed beyond the reserve of 10.0 GiB."
UNCERTAIN = (
    "Whether it fits is uncertain: its need is estimated, or the memory of an engine that leaves was never measured."
    " It is tried once old has left."
)
ALONE = "Whether it fits is unknown, because its need is unknown. It runs alone, and is tried once old has left."


@pytest.mark.parametrize(("basis", "choice", "beside", "said"), [
    (Basis.LEARNED, FITS, (), "It fits now."), (Basis.LEARNED, FITS, ("a", "b"), "It fits now, beside a and b."),
    (Basis.LEARNED, replace(FITS, leaving=LEFT), ("a",), "It fits once old has left, beside a."),
    (Basis.LEARNED, replace(TIGHT, fits=True), (), WITHIN), (Basis.DECLARED, replace(TIGHT, fits=False), (), NEVER),
    (Basis.ESTIMATED, TIGHT, (), UNCERTAIN), (Basis.UNKNOWN, replace(TIGHT, needs=None), (), ALONE),
    (Basis.DECLARED, Choice(fits=True), (), "It runs elsewhere and takes nothing here."),
])  # fmt: skip
def test_one_sentence_tells_what_to_expect(basis: Basis, choice: Choice, beside: tuple[str, ...], said: str) -> None:
    assert verdict(need(40, basis), choice, BOX, beside) == said


def fits(
    gib: float | None,
    available: float | None,
    *there: Occupant,
    basis: Basis = Basis.LEARNED,
    person: bool = False,
    **box: Any,
) -> Choice:
    free = None if available is None else int(available * GIB)
    given = {"total": 128 * GIB, "available": free, "reserve": 10 * GIB, **box}
    return choose(Occupant("new", need(gib, basis)), there, {LOCAL: BoxMemory(**given)}, person=person)


def test_a_byte_less_and_somebody_leaves() -> None:
    box = {LOCAL: BoxMemory(total=128 * GIB, available=30 * GIB - 1, reserve=10 * GIB)}
    choice = choose(Occupant("new", need(20)), [engine("a", 40)], box, person=False)
    assert choice.names == ("a",)


@pytest.mark.parametrize(
    ("there", "leaves"),
    [
        ([engine("old", 40, idle_s=900), engine("new-ish", 40, idle_s=60)], ("old",)),
        ([engine("small", 10, idle_s=900), engine("large", 40, idle_s=60)], ("large",)),
        ([engine("old", 40, idle_s=900, busy=1), engine("idle", 40, idle_s=60)], ("idle",)),
        ([engine("x", 20, idle_s=900), engine("y", 20, idle_s=800), engine("busy", 40, busy=1)], ("x", "y")),
        ([engine("slow", 40, idle_s=70, reload_s=600), engine("fast", 40, idle_s=65, reload_s=30)], ("fast",)),
        ([engine("one", 40, busy=3), engine("two", 20, busy=1)], ("one",)),
        ([engine("a", 20, idle_s=9), engine("b", 20, idle_s=8)], ("a", "b")),
        ([engine("far", None, managed=False), engine("a", 40)], ("a",)),
    ],
)
def test_the_smallest_set_that_makes_room_leaves_idle_first_then_oldest_then_quickest_back(
    there: list[Occupant], leaves: tuple[str, ...]
) -> None:
    assert fits(40, 20, *there).names == leaves


PINNED, BUSY = engine("pinned", 60, pinned=True, idle_s=9000), engine("busy", 40, busy=1)


@pytest.mark.parametrize(("gib", "available", "there", "person", "leaves", "pinned"), [
    (20, 30, [engine("a", 60), engine("b", 30)], False, "", ""), (40, 10, [PINNED, BUSY], False, "busy", ""),
    (60, 10, [PINNED, BUSY], False, "", "pinned"), (40, 10, [PINNED, BUSY], True, "busy", ""),
    (60, 10, [PINNED, BUSY], True, "pinned", ""), (None, 100, [engine("a", 10), BUSY], False, "a busy", ""),
    (None, 100, [PINNED], False, "", "pinned"), (10, None, [engine("a", 10)], False, "a", ""),
    (10, 100, [engine("a", 10), engine("who", None)], False, "who", ""),
    (10, 100, [engine("new", 10), engine("stuck", 10, unstopped=True)], True, "new stuck", ""),
])  # fmt: skip
def test_a_pinned_engine_leaves_for_a_person_alone_and_what_is_not_known_shares_with_nobody(
    gib: float | None, available: float | None, there: list[Occupant], person: bool, leaves: str, pinned: str
) -> None:
    choice = fits(gib, available, *there, person=person)
    assert (" ".join(choice.names), " ".join(choice.pinned)) == (leaves, pinned)


def test_each_who_leaves_is_told_why() -> None:
    (idle,) = fits(40, 20, engine("a", 40, idle_s=754)).leaving
    assert idle.reason == "idle for 12m34s; it frees 40.0 GiB"
    (busy,) = fits(40, 20, engine("a", 40, busy=2)).leaving
    assert busy.reason == "no idle engine frees enough; its 2 requests may finish; it frees 40.0 GiB"
    (alone,) = fits(10, 100, engine("a", 10), side_by_side=False).leaving
    assert "side_by_side" in alone.reason
    (pinned,) = fits(40, 20, engine("a", 40, pinned=True, idle_s=5), person=True).leaving
    assert pinned.reason == "pinned, and nothing else frees enough; idle for 5.0s; it frees 40.0 GiB"


def test_what_engines_hold_in_the_page_cache_is_not_given_away_twice() -> None:
    """100 seem available, since the kernel could drop the weights of a mapped file: together they still must fit."""
    assert fits(60, 100, engine("mapped", 70)).names == ("mapped",)


def test_a_peak_is_what_must_be_free_and_the_sum_what_stays() -> None:
    comer = Occupant("new", need(20, peak=35))
    choice = choose(comer, [engine("a", 20)], {LOCAL: BoxMemory(128 * GIB, 40 * GIB, 10 * GIB)}, person=False)
    assert choice.names == ("a",)
    assert choice.needs == 35 * GIB


L, D, E = Basis.LEARNED, Basis.DECLARED, Basis.ESTIMATED


@pytest.mark.parametrize(("gib", "basis", "available", "there", "told"), [
    (119, D, 120, [], False), (118, D, 128, [], True), (60, D, 50, [], False), (60, D, 65, [], False),
    (60, L, 65, [], True), (60, L, 50, [], False), (60, D, 20, [engine("a", 30)], False),
    (60, L, 35, [engine("a", 30)], True), (60, L, 20, [engine("a", 30)], False),
    (60, L, 20, [engine("a", 30, basis=D)], None), (129, L, 20, [engine("a", 30, basis=D)], False),
    (60, L, 20, [engine("who", None)], None), (60, L, None, [engine("a", 30)], None), (119, D, None, [], False),
    (119, E, 120, [], None), (60, E, 120, [], True), (None, L, 50, [], None),
])  # fmt: skip
def test_never_is_said_only_when_it_is_known(
    gib: float | None, basis: Basis, available: float | None, there: list[Occupant], told: bool | None
) -> None:
    """An estimate refuses nobody; what was seen to run here alone may use the reserve; an engine of which it was never
    measured what it holds may give back more than it declares."""
    assert fits(gib, available, *there, basis=basis).fits is told


def test_memory_that_is_still_coming_back_is_no_reason_to_refuse() -> None:
    assert fits(60, 50).fits is False
    assert fits(60, 50, more_is_coming=True).fits is None


@pytest.mark.parametrize(("gib", "basis", "alone", "expected"), [
    (40, D, True, 50), (40, D, False, 50), (40, L, True, 40), (40, L, False, 50), (40, E, True, None),
    (40, E, False, 50),
])  # fmt: skip
def test_beside_others_the_reserve_is_always_kept(gib: float, basis: Basis, alone: bool, expected: int | None) -> None:
    """The last look before a start, 10 in reserve."""
    asked = must_be_free(need(gib, basis), 10 * GIB, alone=alone)
    assert asked == (None if expected is None else expected * GIB)
