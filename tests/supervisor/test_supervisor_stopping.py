"""A stop that is verified: what it leaves behind is ended and told, and its memory is waited for before anything starts."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from logs import capture_logs
from surroundings.box import Behaviour
from surroundings.house import House, SecondNode, make_profile

from sparkdash.api.requests import MarkQuery
from sparkdash.domain.container import ENV_MARK, Leftovers
from sparkdash.domain.event import Level, SwapChanged
from sparkdash.domain.metric import Memory
from sparkdash.domain.node import LOCAL, NodeStatus
from sparkdash.domain.profile import Published
from sparkdash.domain.swap import Swap, SwapCause, SwapPhase
from sparkdash.errors import AdmissionError, HostError
from sparkdash.store import Store
from sparkdash.supervisor.memory.footprint import read_memory
from sparkdash.supervisor.state.registry import HeldMemory, MemoryDebts
from sparkdash.units import GIB


async def test_a_second_engine_that_does_not_fit_beside_the_first_comes_to_the_other_node(house: House) -> None:
    supervisor = await house.open(make_profile("a"), make_profile("b"), nodes=SecondNode(house))
    await house.leased("a")
    plan = await house.clock.drive(supervisor.plan("b"))
    assert (plan.nodes, plan.evict, plan.fits) == (("spark2",), (), True)
    assert plan.verdict == "It fits now on spark2."
    assert [(row.node, row.now_bytes) for row in plan.on_nodes] == [("spark2", 120 * GIB)]
    await house.leased("b")
    assert {name: engine.nodes for name, engine in supervisor.engines.items()} == {"a": (LOCAL,), "b": ("spark2",)}
    assert [(swap.target, swap.nodes) for swap in house.swaps()] == [("a", (LOCAL,)), ("b", ("spark2",))]


@pytest.mark.parametrize(("status", "code"), [(None, "needs_two_nodes"), (NodeStatus.UNREACHABLE, "node_unreachable")])
async def test_a_profile_for_two_nodes_is_refused_and_nobody_leaves_where_there_is_no_second(
    house: House, status: NodeStatus | None, code: str
) -> None:
    nodes = {"nodes": SecondNode(house, status)} if status else {}
    supervisor = await house.open(make_profile("a"), make_profile("wide", nodes=2), **nodes)
    await house.leased("a")
    with pytest.raises(AdmissionError) as refused:
        await house.clock.drive(supervisor.use("wide", cause=SwapCause.USER))
    assert refused.value.code == code
    assert "spark2: spark2" not in refused.value.message
    assert list(supervisor.engines) == ["a"]


async def test_a_box_that_came_back_otherwise_is_for_no_engine_over_several_and_the_refusal_says_what_differs(
    house: House,
) -> None:
    nodes = SecondNode(house)
    nodes.states["spark2"] = nodes.states["spark2"].replace(differs="driver 590.1 instead of 580.95")
    wide = make_profile("wide", nodes=2, fallbacks=("b",))
    supervisor = await house.open(make_profile("a"), make_profile("b"), wide, nodes=nodes)
    await house.leased("a")
    with pytest.raises(AdmissionError) as refused:
        await house.clock.drive(supervisor.use("wide", cause=SwapCause.USER))
    assert (refused.value.code, refused.value.status) == ("node_unreachable", 503)
    assert "spark2 is back with driver 590.1 instead of 580.95. Mend it, or" in refused.value.message
    assert (refused.value.hint or "").startswith("`sparkdash use b` starts its fallback.")
    await house.leased("b")
    assert supervisor.engines["b"].nodes == ("spark2",), "an engine on that box alone may come there"


class LateNode(SecondNode):
    """A node that is too busy to answer `late` times; `late` counts down."""

    late = 0
    asked = 0

    async def fresh_memory(self, node: str) -> Memory:
        self.asked += 1
        if self.asked <= self.late:
            raise HostError("spark2 does not answer: no figures for 3.0s.", code="node_unreachable")
        return await super().fresh_memory(node)


@pytest.mark.parametrize(
    ("late", "status", "asked"),
    [(2, NodeStatus.REACHABLE, 3), (1000, NodeStatus.UNREACHABLE, 1), (1000, NodeStatus.REACHABLE, 31)],
)
async def test_a_node_that_is_too_busy_to_tell_its_memory_is_asked_again_for_a_while(
    house: House, late: int, status: NodeStatus, asked: int
) -> None:
    nodes = LateNode(house, status)
    nodes.late = late
    reading = read_memory(cast("Any", SimpleNamespace(nodes=nodes, clock=house.clock, reader=house.reader)), "spark2")
    if late == 2:
        assert (await house.clock.drive(reading)).available == 120 * GIB
    else:
        with pytest.raises(HostError, match="does not answer"):
            await house.clock.drive(reading)
    assert nodes.asked == asked


async def test_a_published_start_is_expected_until_one_was_measured(house: House) -> None:
    row = Published(workload="start", start_s=900, source="test")
    supervisor = await house.open(make_profile("a", published=(row,)))
    assert (await house.clock.drive(supervisor.plan("a"))).expected_s == 900


@pytest.mark.parametrize("taken", [2, 3])
async def test_a_port_that_another_nodes_program_has_is_passed_over(
    house: House, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.open(make_profile("a"), nodes=SecondNode(house))
    start_container, tried = house.runtime.start, []

    async def refused_first(spec: Any) -> Any:
        tried.append(spec.port)
        if len(tried) <= taken:
            raise HostError(f"A program listens on port {spec.port} of spark2 already.", code="port_in_use")
        return await start_container(spec)

    monkeypatch.setattr(house.runtime, "start", refused_first)
    if taken == 3:
        with pytest.raises(HostError, match="listens on port") as refused:
            await house.leased("a")
        assert str(tried[-1]) in refused.value.message
    else:
        assert (await house.leased("a")).url == f"http://127.0.0.1:{tried[-1]}"
    assert len(set(tried)) == len(tried) == 3


async def test_every_process_of_an_engine_can_tell_whose_it_is(house: Any) -> None:
    """The environment names owner and container, so that an orphan is known when its container is gone."""
    await house.served(make_profile("a"))
    assert house.runtime.of("a").spec.env[ENV_MARK] == "us/sparkdash-a"


@pytest.mark.parametrize("name", ["a", None], ids=["one", "all"])
async def test_a_stop_is_in_the_past_before_anybody_is_told_that_it_ended(
    house: Any, tmp_path: Path, name: str | None
) -> None:
    async with Store.opened(tmp_path / "sparkdash.db", lambda _: None) as store:
        recorded: list[Swap] = []

        def record_swap(swap: Swap, *_: object, **__: object) -> None:
            assert not any(isinstance(fact, SwapChanged) and fact.swap == swap for fact in house.facts)
            recorded.append(swap)
            Store.record_swap(store, swap, "")

        with patch.object(store, "record_swap", record_swap):
            await house.served(make_profile("a"), store=store)
            await house.stopped(name)
            await house.close()
        marks = (await store.history.marks(MarkQuery(profile="a", limit=9), (0, 2**40))).marks
    assert [(swap.target, swap.evict) for swap in recorded] == [("a", ()), (None, ("a",))]
    assert (marks[1].code, marks[1].profile) == ("done", "a")
    assert marks[1].text.startswith("Stop of a, user: ")


IN_THE_KERNEL = "4712 (python3) waits in the kernel (state D), where no signal reaches it, in uvm_spin_loop"
SILENT = "`podman rm` gave no answer for 60 s."


@pytest.mark.parametrize(
    ("left", "code", "level", "words"),
    [
        (Leftovers(ended=(4711,)), "orphan_ended", Level.WARNING, "orphan pid 4711"),
        (Leftovers(stuck=(4712, 4713)), "orphan_stuck", Level.ERROR, "4712, 4713"),
        (Leftovers(stuck=(4712,), stuck_how=(IN_THE_KERNEL,)), "orphan_stuck", Level.ERROR, f"end: {IN_THE_KERNEL}."),
        (Leftovers(unremoved=SILENT), "container_left", Level.WARNING, f"its container is still listed: {SILENT}"),
    ],
)
async def test_what_a_stop_left_behind_is_told(
    house: Any, left: Leftovers, code: str, level: Level, words: str
) -> None:
    house.runtime.zoo["a"] = Behaviour(leftovers=left)
    await house.served(make_profile("a"))
    await house.stopped("a")
    (told,) = house.notices()
    assert (told.code, told.level, told.profile, words in told.text) == (code, level, "a", True), told.text
    assert not house.supervisor.engines


async def test_what_the_end_of_a_daemon_could_not_stop_is_in_its_log(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(wont_stop=True)
    await house.open(make_profile("a", gib=20), make_profile("b", gib=20))
    for name in ("a", "b"):
        await house.leased(name)
    with capture_logs() as logs:
        await house.clock.drive(house.supervisor.close(stop_engines=True))
    (said,) = [line for line in logs if line["log_level"] == "error"]
    assert (said["event"], said["container"]) == ("an engine was not stopped", "sparkdash-a")
    assert said["code"] == "unkillable"


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        (Behaviour(leftovers=Leftovers(ended=(4711,))), "orphan_ended", "orphan pid 4711"),
        (Behaviour(wont_stop=True), "unkillable", "sparkdash-a has ended and could not be cleared away"),
    ],
)
async def test_what_an_engine_that_died_leaves_behind_is_told(
    house: Any, does: Behaviour, code: str, said: str
) -> None:
    house.runtime.zoo["a"] = does
    await house.served(make_profile("a"))
    await house.runtime.kill("a", "Segmentation fault")
    await house.clock.rest()
    left, died = house.notices()
    assert (left.code, left.level, died.code) == (code, Level.WARNING, "engine_crash")
    assert said in left.text


async def test_without_a_need_a_start_into_missing_memory_is_not_risked(house: Any) -> None:
    await house.served(make_profile("leaky", gib=60), make_profile("unknown", gib=None))
    house.reader.leaks["leaky"] = 20 * GIB
    error = await house.refused("unknown")
    assert (error.code, error.status) == ("memory_not_returned", 503)
    assert "20.0 GiB of 60.0 GiB not returned by leaky" in error.message
    assert "need that is not known" in error.message
    assert error.hint is not None
    assert ("start", "unknown") not in house.runtime.calls


async def test_what_fits_without_the_missing_memory_starts_after_a_short_wait(house: Any) -> None:
    await house.served(make_profile("leaky", gib=95), make_profile("small", gib=20), reclaim_s=300)
    house.reader.leaks["leaky"] = int(12.4 * GIB)
    began = house.clock.time
    await house.leased("small")
    assert 10 <= house.swaps()[-1].stage_s[SwapPhase.RECLAIM] < 12
    assert house.clock.time - began < 20
    assert "12.4 GiB of memory to come back" in [f.swap.waits_for for f in house.facts if isinstance(f, SwapChanged)]
    (notice,) = house.notices()
    assert notice.code == "memory_not_returned"
    assert "12.4 GiB of 95.0 GiB not returned by leaky" in notice.text


@pytest.mark.parametrize(("first", "second", "args", "leaks", "blind", "from_s", "to_s"), [
    (80, 80, {}, 0, False, 0.01, 0.5), (80, 80, {}, 5, True, 0.5, 2),
    (60, 2, {"kv-cache-memory-bytes": "1G"}, 40, False, 0.0, 0.5),
], ids=["nothing is owed", "nobody can tell what it held", "a load that takes what it was told to take"])  # fmt: skip
async def test_memory_that_a_load_does_not_miss_is_not_waited_for_long(
    house: Any, first: float, second: float, args: Any, leaks: int, blind: bool, from_s: float, to_s: float
) -> None:
    house.reader.blind = blind
    await house.served(make_profile("a", gib=first), make_profile("b", gib=second, args=args), side_by_side=False)
    house.reader.leaks["a"] = leaks * GIB
    await house.leased("b")
    before, waited_s = (swap.stage_s[SwapPhase.RECLAIM] for swap in house.swaps())
    assert before == 0
    assert from_s <= waited_s < to_s
    assert house.notices() == []


async def test_a_debt_outlives_the_refusal(house: Any) -> None:
    await house.served(make_profile("leaky", gib=60), make_profile("big", gib=90), reclaim_s=30)
    house.reader.leaks["leaky"] = 55 * GIB
    began = house.clock.time
    await house.stopped("leaky")
    assert 5 <= house.clock.time - began < 7
    assert "55.0 GiB of 60.0 GiB not returned by leaky 5.0s after the stop" in house.notices()[-1].text
    began = house.clock.time
    error = await house.refused("big")
    assert house.clock.time - began >= 20, "it was waited for"
    assert error.code == "memory_not_returned"
    for figure in ("55.0 GiB of 60.0 GiB not returned by leaky", "90.0 GiB", "10.0 GiB kept", "65.0 GiB available"):
        assert figure in error.message
    assert ("start", "big") not in house.runtime.calls
    began = house.clock.time
    await house.used("big")
    assert house.swaps()[-1].failure.code == "memory_not_returned"
    assert house.clock.time - began < 5
    house.reader.leaks.clear()
    await house.used("big")
    assert house.runtime.running() == ["big"]


@pytest.mark.parametrize(("held", "available", "missing"), [
    ([HeldMemory(40 * GIB, 60 * GIB)], 100 * GIB, 0), ([HeldMemory(40 * GIB, 60 * GIB)], 97 * GIB, 0),
    ([HeldMemory(40 * GIB, 60 * GIB)], 90 * GIB, 10 * GIB),
    ([HeldMemory(40 * GIB, 60 * GIB), HeldMemory(20 * GIB, 61 * GIB)], 100 * GIB, 20 * GIB),
    ([HeldMemory(40 * GIB, 60 * GIB), None], 70 * GIB, None), ([None], 70 * GIB, None), ([], 70 * GIB, 0),
    ([HeldMemory(GIB // 2, 60 * GIB)], 60 * GIB, 0), ([HeldMemory(2 * GIB, 60 * GIB)], 57 * GIB, 2 * GIB),
])  # fmt: skip
def test_what_is_missing(held: list[HeldMemory | None], available: int, missing: int | None) -> None:
    debts = MemoryDebts()
    for number, each in enumerate(held):
        debts.left(f"engine-{number}", 1.0, each)
    assert debts.missing(available) == missing
    debts.settle()
    assert debts.missing(0) == 0


async def test_those_who_leave_are_stopped_at_the_same_time(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    both, stop = asyncio.Barrier(2), house.runtime.stop

    async def together(name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        await both.wait()
        left: Leftovers = await stop(name, grace_s, before_removal)
        return left

    await house.served(make_profile("a", gib=40), make_profile("b", gib=40), make_profile("c", gib=100), reclaim_s=30)
    await house.leased("b")
    house.reader.leaks["b"] = 20 * GIB
    monkeypatch.setattr(house.runtime, "stop", together)
    async with asyncio.timeout(60):
        error = await house.clock.drive(house.ask("c").refusal())
    assert error.code == "memory_not_returned"
    assert error.message.startswith(
        ("20.0 GiB of 80.0 GiB not returned by a, b", "20.0 GiB of 80.0 GiB not returned by b, a")
    )
    assert house.runtime.running() == []


@pytest.mark.parametrize("name", ["a", None])
async def test_a_stop_is_recorded_with_who_ordered_it(house: House, name: str | None) -> None:
    """A bench stops what runs before it measures; the history must not call it a person's."""
    supervisor = await house.open(make_profile("a"))
    for cause, reason in ((SwapCause.BENCH, "a bench run stopped it"), (SwapCause.USER, "a person stopped it")):
        await house.leased("a")
        await house.clock.drive(supervisor.stop(name, cause=cause))
        last = house.swaps()[-1]
        assert (last.target, last.cause, last.reasons) == (None, cause, {"a": reason})
