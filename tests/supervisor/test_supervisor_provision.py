"""What a start lacks on another node is copied there before anything is stopped, and told as a phase."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest
from surroundings.house import House, profile
from test_supervisor_nodes import SecondNode

from sparkdash.domain.event import Notice, SwapChanged
from sparkdash.domain.local_files import CopyItem, CopyKind, CopyPlan, CopyProgress, CopyStep
from sparkdash.domain.phrases import progress_text
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import Swap, SwapPhase, phases_of
from sparkdash.errors import HostError


class ScriptedShipper:
    """Finds one item missing on a node, and copies it in three steps; `fails` in the middle."""

    def __init__(self, item: CopyItem | None, fails: HostError | None = None) -> None:
        self.item = item
        self.fails = fails
        self.asked: list[tuple[str, str, bool]] = []

    async def plan(
        self,
        profile: Profile,
        node: str,
        *,
        alike: bool = True,
        trust_names: bool = False,
        on_progress: Callable[[CopyProgress], object],
    ) -> CopyPlan:
        self.asked.append((profile.name, node, alike))
        return CopyPlan(profile=profile.name, node=node, items=(self.item,) if self.item else ())

    async def copy(self, profile: Profile, plan: CopyPlan) -> AsyncGenerator[CopyProgress, None]:
        yield report(CopyStep.CHECK, 0)
        if self.fails:
            raise self.fails
        yield report(CopyStep.SEND, 1 << 30, rate=512 << 20, eta_s=2.0)
        yield report(CopyStep.LOAD, 0)


def report(step: CopyStep, came: int, *, rate: float | None = None, eta_s: float | None = None) -> CopyProgress:
    return CopyProgress(
        kind=CopyKind.WEIGHTS, name="m", node="spark2", step=step, came_bytes=came, total_bytes=2 << 30 if came else 0,
        bytes_per_s=rate, eta_s=eta_s,
    )  # fmt: skip


MISSING = CopyItem(kind=CopyKind.WEIGHTS, name="m", bytes=2 << 30, missing_bytes=2 << 30)


def told(house: House, phase: SwapPhase) -> list[Swap]:
    return [f.swap for f in house.facts if isinstance(f, SwapChanged) and f.swap.phase is phase]


async def test_a_copy_is_a_phase_with_bytes_and_time_left_before_the_start(house: House) -> None:
    """Then the start goes on as ever."""
    shipper = ScriptedShipper(MISSING)
    await house.open(profile("b", node="spark2"), nodes=SecondNode(house), shipper=shipper)
    await house.leased("b")
    copying = told(house, SwapPhase.COPY)
    words = [swap.waits_for for swap in copying]
    assert "weights m to reach spark2: 1.0 GiB of 2.0 GiB, 512 MiB/s, 2.0s left" in words
    assert "weights m to be loaded on spark2" in words
    assert any(progress_text(swap, swap.started_at).startswith("copy 50 %") for swap in copying)
    await house.settled()
    assert phases_of(house.swaps()[-1])[0] is SwapPhase.COPY
    assert shipper.asked == [("b", "spark2", False)]


async def test_without_anything_to_copy_no_phase_is_shown(house: House) -> None:
    """A node that has everything costs one look."""
    await house.open(profile("b", node="spark2"), nodes=SecondNode(house), shipper=ScriptedShipper(None))
    await house.leased("b")
    assert told(house, SwapPhase.COPY) == []


async def test_a_start_on_this_box_alone_asks_no_node(house: House) -> None:
    """The local box is looked at by preflight."""
    shipper = ScriptedShipper(MISSING)
    await house.open(profile("a", node="local"), nodes=SecondNode(house), shipper=shipper)
    await house.leased("a")
    assert shipper.asked == []


async def test_a_copy_that_fails_starts_nothing_and_its_reason_reaches_the_client(house: House) -> None:
    """What ran goes on running."""
    full = HostError("2 GiB are to be written to /m on spark2, and its disk has 1 GiB free.", code="disk_full")
    supervisor = await house.open(
        profile("a"), profile("b", node="spark2"), nodes=SecondNode(house), shipper=ScriptedShipper(MISSING, full)
    )
    await house.leased("a")
    with pytest.raises(HostError) as refused:
        await house.leased("b")
    assert refused.value.code == "disk_full"
    assert supervisor.engines["a"].state == "ready"


async def test_a_replaced_image_is_told_as_a_notice(house: House) -> None:
    """By its id, so that nobody wonders where another one went."""
    item = CopyItem(kind=CopyKind.IMAGE, name="img:1", bytes=1, missing_bytes=1, replaces="abcdef012345678")
    await house.open(profile("b", node="spark2"), nodes=SecondNode(house), shipper=ScriptedShipper(item))
    await house.leased("b")
    notices = [fact for fact in house.facts if isinstance(fact, Notice) and fact.code == "image_replaced"]
    assert len(notices) == 1
    assert "abcdef012345" in notices[0].text


class HeldShipper(ScriptedShipper):
    """A copy that goes on until it is told to end."""

    def __init__(self) -> None:
        super().__init__(MISSING)
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def copy(self, profile: Profile, plan: CopyPlan) -> AsyncGenerator[CopyProgress, None]:
        yield report(CopyStep.SEND, 1 << 30)
        self.began.set()
        await self.go_on.wait()


async def test_an_engine_that_is_to_leave_serves_while_its_place_on_another_node_is_prepared(house: House) -> None:
    """A copy takes minutes: only after it is nobody new let in, and who is in may finish."""
    shipper = HeldShipper()
    names = [profile("a"), profile("wide", nodes=2, args={"tensor-parallel-size": 2})]
    supervisor = await house.open(*names, nodes=SecondNode(house), shipper=shipper)
    await house.leased("a")
    wide = house.ask("wide")
    await house.clock.drive(shipper.began.wait())
    assert supervisor.engines["a"].state == "ready"
    late = house.ask("a")
    await house.clock.drive(late.granted())
    shipper.go_on.set()
    await house.clock.rest()
    assert house.state("a") == "draining"
    newcomer = house.ask("a")
    await house.clock.rest()
    assert not newcomer.has_lease
    assert not wide.has_lease
    await newcomer.vanish()
    await late.leave()
    await house.clock.drive(wide.granted())
    assert list(supervisor.engines) == ["wide"]
    await wide.leave()


async def test_a_copy_that_fails_leaves_the_engine_that_was_to_leave_as_it_was(house: House) -> None:
    """It never stopped serving."""
    full = HostError("Its disk is full.", code="disk_full")
    shipper = ScriptedShipper(MISSING, full)
    await house.open(
        profile("a"),
        profile("wide", nodes=2, args={"tensor-parallel-size": 2}),
        nodes=SecondNode(house),
        shipper=shipper,
    )
    await house.leased("a")
    with pytest.raises(HostError):
        await house.leased("wide")
    assert "draining" not in house.states("a")
    await house.leased("a")


@pytest.mark.parametrize("gib", [80, 20], ids=["evicted for it", "beside it"])
async def test_a_persons_stop_does_not_wait_for_a_copy(house: House, gib: int) -> None:
    """The copy ends, the engine stops, and the start that copied begins anew for whoever waits for it."""
    shipper = HeldShipper()
    names = [profile("a", gib=gib), profile("wide", nodes=2, args={"tensor-parallel-size": 2})]
    supervisor = await house.open(*names, nodes=SecondNode(house), shipper=shipper)
    await house.leased("a")
    wide = house.ask("wide")
    await house.clock.drive(shipper.began.wait())
    shipper.began.clear()
    await house.clock.drive(supervisor.stop("a"))
    assert house.runtime.calls == [("start", "a"), ("stop", "a")]
    await house.clock.drive(shipper.began.wait())
    shipper.go_on.set()
    await house.clock.drive(wide.granted())
    assert list(supervisor.engines) == ["wide"]
    await wide.leave()
