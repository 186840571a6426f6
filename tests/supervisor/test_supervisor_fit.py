"""Evictions and fit in plain figures. All in GiB; a box of 128 with 10 in reserve."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from surroundings.house import make_profile

from sparkdash.catalog.checkpoint import weights
from sparkdash.domain.memory import Basis, Footprint, Measure, Need, Term
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import ModelRef
from sparkdash.store import Store
from sparkdash.supervisor.decide.fit import BoxMemory, Choice, Leaving, Occupant, choose, must_be_free
from sparkdash.supervisor.planner import verdict
from sparkdash.supervisor.tools import Needs
from sparkdash.units import GIB


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


def verdict_need(basis: Basis) -> Need:
    return Need(basis=basis, terms=(Term(name="steady", bytes=40 * GIB, source="test"),))


@pytest.mark.parametrize(
    ("basis", "choice", "beside", "said"),
    [
        (Basis.LEARNED, Choice((), 40 * GIB, 90 * GIB, True), (), "It fits now."),
        (Basis.LEARNED, Choice((), 40 * GIB, 90 * GIB, True), ("a", "b"), "It fits now, beside a and b."),
        (Basis.LEARNED, Choice(LEFT, 40 * GIB, 90 * GIB, True), ("a",), "It fits once old has left, beside a."),
        (
            Basis.LEARNED,
            Choice(LEFT, 40 * GIB, 35 * GIB, True),
            (),
            "It fits once old has left, within the reserve, as it did here before.",
        ),
        (
            Basis.DECLARED,
            Choice(LEFT, 40 * GIB, 35 * GIB, False),
            (),
            "It does not fit, whichever engines leave: 35.0 GiB can be freed beyond the reserve of 10.0 GiB.",
        ),
        (
            Basis.ESTIMATED,
            Choice(LEFT, 40 * GIB, 35 * GIB, None),
            (),
            "Whether it fits is uncertain: its need is estimated, or the memory of an engine that leaves was never measured. It is tried once old has left.",
        ),
        (
            Basis.UNKNOWN,
            Choice(LEFT, None, 35 * GIB, None),
            (),
            "Whether it fits is unknown, because its need is unknown. It runs alone, and is tried once old has left.",
        ),
        (Basis.DECLARED, Choice(fits=True), (), "It runs elsewhere and takes nothing here."),
    ],
)
def test_one_sentence_tells_what_to_expect(basis: Basis, choice: Choice, beside: tuple[str, ...], said: str) -> None:
    assert verdict(verdict_need(basis), choice, BOX, beside) == said


def need(gib: float | None, basis: Basis = Basis.LEARNED, peak: float | None = None) -> Need:
    if gib is None:
        return Need()
    term = Term(name="steady", bytes=int(gib * GIB), source="test")
    return Need(basis=basis, terms=(term,), peak_bytes=None if peak is None else int(peak * GIB))


def engine(name: str, gib: float | None, *, basis: Basis = Basis.LEARNED, **facts: Any) -> Occupant:
    return Occupant(name, need(gib, basis), **facts)


def ask(
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


def test_what_fits_beside_the_others_evicts_nobody() -> None:
    choice = ask(20, 30, engine("a", 60), engine("b", 30))
    assert (choice.leaving, choice.fits, choice.available) == ((), True, 20 * GIB)


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
    assert ask(40, 20, *there).names == leaves


def test_each_who_leaves_is_told_why() -> None:
    (idle,) = ask(40, 20, engine("a", 40, idle_s=754)).leaving
    assert idle.reason == "idle for 12m34s; it frees 40.0 GiB"
    (busy,) = ask(40, 20, engine("a", 40, busy=2)).leaving
    assert busy.reason == "no idle engine frees enough; its 2 requests may finish; it frees 40.0 GiB"
    (pinned,) = ask(40, 20, engine("a", 40, pinned=True, idle_s=5), person=True).leaving
    assert pinned.reason == "pinned, and nothing else frees enough; idle for 5.0s; it frees 40.0 GiB"


def test_a_pinned_engine_leaves_for_a_person_and_for_no_request() -> None:
    both = engine("pinned", 60, pinned=True, idle_s=9000), engine("busy", 40, busy=1)
    assert ask(40, 10, *both).names == ("busy",)
    assert ask(60, 10, *both).pinned == ("pinned",)
    assert ask(60, 10, *both).refused
    assert ask(40, 10, *both, person=True).names == ("busy",)
    assert ask(60, 10, *both, person=True).names == ("pinned",)


def test_an_engine_whose_need_is_not_known_runs_alone() -> None:
    alone = ask(None, 100, engine("a", 10), engine("b", 10))
    assert alone.names == ("a", "b")
    assert alone.fits is None
    assert "new" in alone.leaving[0].reason
    assert ask(10, 100, engine("a", 10), engine("who", None)).names == ("who",)
    assert ask(None, 100, engine("a", 10, pinned=True)).pinned == ("a",)
    assert ask(10, None, engine("a", 10)).names == ("a",)


def test_an_owner_may_want_one_engine_at_a_time() -> None:
    choice = ask(10, 100, engine("a", 10), side_by_side=False)
    assert choice.names == ("a",)
    assert "side_by_side" in choice.leaving[0].reason


def test_a_restart_and_one_that_would_not_stop_always_leave() -> None:
    stuck = engine("stuck", 10, unstopped=True)
    choice = choose(engine("a", 10), [engine("a", 10), stuck], {LOCAL: BoxMemory(128 * GIB, 100 * GIB)}, person=True)
    assert choice.names == ("a", "stuck")


def test_what_engines_hold_in_the_page_cache_is_not_given_away_twice() -> None:
    """100 seem available, since the kernel could drop the weights of a mapped file: together they still must fit."""
    assert ask(60, 100, engine("mapped", 70)).names == ("mapped",)


def test_a_peak_is_what_must_be_free_and_the_sum_what_stays() -> None:
    comer = Occupant("new", need(20, peak=35))
    choice = choose(comer, [engine("a", 20)], {LOCAL: BoxMemory(128 * GIB, 40 * GIB, 10 * GIB)}, person=False)
    assert choice.names == ("a",)
    assert choice.needs == 35 * GIB


L, D, E = Basis.LEARNED, Basis.DECLARED, Basis.ESTIMATED


@pytest.mark.parametrize(
    ("gib", "basis", "available", "there", "fits"),
    [
        (119, D, 120, [], False),
        (118, D, 128, [], True),
        (60, D, 50, [], False),
        (60, D, 65, [], False),
        (60, L, 65, [], True),
        (60, L, 50, [], False),
        (60, D, 20, [engine("a", 30)], False),
        (60, L, 35, [engine("a", 30)], True),
        (60, L, 20, [engine("a", 30)], False),
        (60, L, 20, [engine("a", 30, basis=D)], None),
        (129, L, 20, [engine("a", 30, basis=D)], False),
        (60, L, 20, [engine("who", None)], None),
        (60, L, None, [engine("a", 30)], None),
        (119, D, None, [], False),
        (119, E, 120, [], None),
        (60, E, 120, [], True),
        (None, L, 50, [], None),
    ],
)
def test_never_is_said_only_when_it_is_known(
    gib: float | None, basis: Basis, available: float | None, there: list[Occupant], fits: bool | None
) -> None:
    """An estimate refuses nobody; what was seen to run here alone may use the reserve; an engine of which it was never
    measured what it holds may give back more than it declares."""
    assert ask(gib, available, *there, basis=basis).fits is fits


def test_memory_that_is_still_coming_back_is_no_reason_to_refuse() -> None:
    assert ask(60, 50).fits is False
    assert ask(60, 50, more_is_coming=True).fits is None


@pytest.mark.parametrize(
    ("gib", "basis", "alone", "expected"),
    [
        (40, D, True, 50),
        (40, D, False, 50),
        (40, L, True, 40),
        (40, L, False, 50),
        (40, E, True, None),
        (40, E, False, 50),
    ],
)
def test_beside_others_the_reserve_is_always_kept(gib: float, basis: Basis, alone: bool, expected: int | None) -> None:
    """The last look before a start, 10 in reserve."""
    asked = must_be_free(need(gib, basis), 10 * GIB, alone=alone)
    assert asked == (None if expected is None else expected * GIB)
