"""Evidence of an engine that stands still, and engines that are only told of."""

from __future__ import annotations

from typing import Any

import pytest
from surroundings.stuck import (
    FOLDER,
    Box,
    codes,
    held,
    held_by_old,
    incidents,
    liveness,
    old,
    passes,
    step,
    until,
)

from sparkdash.domain.engine import EngineState, LivenessState, RepairStep
from sparkdash.domain.incident import Evidence, EvidenceRequest, IncidentEnd
from sparkdash.host.kernel_log.lines import KernelFindings, findings, read_line
from sparkdash.supervisor.liveness import engine_end


async def test_evidence_that_hangs_or_fails_holds_no_repair_up(
    house: Any, box: Box, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, lease = await held_by_old(house, box, opened)
    box.evidence_hangs = box.of("a").holds = True
    await until(house, lambda: step(house) is RepairStep.EVIDENCE)
    began = house.clock.time
    await until(house, lease.lost.done)
    assert house.clock.time - began <= engine_end.EVIDENCE_S + 5
    await asking.leave()


async def test_a_fault_of_the_gpu_that_the_kernel_reported_is_in_the_reason(house: Any, box: Box, opened: Any) -> None:
    """Since the engine last moved: the reason, and what to do about it."""

    class Kernel:
        async def since(self, unix_s: float) -> KernelFindings:
            line = read_line("NVRM: Xid (PCI:000f:01:00): 119, Timeout of the GSP", unix_s + 1)
            return findings([line] if line else [])

    await opened(kernel_log=Kernel())
    await old(house)
    _, lease = await held(house, box)
    box.of("a").holds = True
    await until(house, lambda: house.state("a") is EngineState.FAILED)
    failure = house.supervisor.engines["a"].failure
    assert failure.message.endswith("Xid 119 (the GPU's system processor (GSP) did not answer in time).")
    assert (failure.hint, failure.evidence) == ("Reboot the box.", FOLDER)
    await until(house, lease.lost.done)


async def test_evidence_that_cannot_be_kept_is_told_and_holds_no_repair_up(house: Any, box: Box, opened: Any) -> None:
    """A full disk: the notice says so, and the engine is repaired all the same."""
    problem = "No evidence was kept: /state/incidents cannot be written: No space left on device."

    async def full(_request: EvidenceRequest) -> Evidence:
        return Evidence(None, problem)

    await opened(take_evidence=full)
    await old(house)
    asking, lease = await held(house, box)
    await until(house, lease.lost.done)
    assert [notice.text for notice in house.notices() if notice.code == "evidence_incomplete"] == [problem]
    await asking.leave()


async def test_evidence_that_raises_holds_no_repair_up(house: Any, box: Box, opened: Any) -> None:
    async def broken(_request: EvidenceRequest) -> Evidence:
        raise RuntimeError("a fault of ours")

    await opened(take_evidence=broken)
    await old(house)
    asking, lease = await held(house, box)
    await until(house, lease.lost.done)
    await asking.leave()


async def test_an_excuse_that_comes_once_it_is_stuck_undoes_nothing(house: Any, box: Box, opened: Any) -> None:
    """Only progress does: evidence itself uses the CPU, and each look could begin another incident."""
    asking, lease = await held_by_old(house, box, opened)
    box.of("a").holds, box.seen_by_evidence = True, ("ptxas",)
    await until(house, lambda: step(house) is RepairStep.CANCEL)
    assert lease.lost.done()
    await asking.leave()
    await until(house, lambda: incidents(house)[0].ended_at is not None)
    assert [one.end for one in incidents(house)] == [IncidentEnd.RESTARTED]


async def test_an_engine_that_is_only_told_of_is_told_once_whatever_excuses_come_and_go(
    house: Any, box: Box, opened: Any, make_profile: Any
) -> None:
    await opened(make_profile("a", on_stuck="tell"))
    await old(house)
    asking, _ = await held(house, box)
    await until(house, lambda: step(house) is RepairStep.WATCH)
    for compilers in (("ptxas",), (), ("ptxas",), ()):
        box.of("a").compilers = compilers
        await passes(house, 60)
        assert (step(house), liveness(house).state) == (RepairStep.WATCH, LivenessState.STUCK)
    assert codes(house) == ["engine_stuck"]
    await asking.leave()


@pytest.mark.parametrize("foreign", [False, True])
async def test_an_engine_that_is_only_told_of_is_not_touched(
    house: Any, box: Box, opened: Any, make_profile: Any, behaviour: Any, serve_engine: Any, foreign: bool
) -> None:
    """`on_stuck: tell`, or a server that is not ours: told once, and once more when it moves."""
    server = await serve_engine("a", 0, does=behaviour())
    url = f"http://127.0.0.1:{server.addresses[0][1]}"
    facts = {"engine": "openai", "image": None, "url": url, "model_id": "a", "gib": None} if foreign else {}
    await opened(make_profile("a", **({} if foreign else {"on_stuck": "tell"}), **facts))
    await old(house)
    asking, lease = await held(house, box)
    await until(house, lambda: step(house) is RepairStep.WATCH, 3000)
    await passes(house, 3000)
    assert (liveness(house).state, step(house)) == (LivenessState.STUCK, RepairStep.WATCH)
    assert not lease.lost.done()
    assert codes(house) == ["engine_stuck"]
    assert incidents(house)[0].evidence == (None if foreign else FOLDER)
    assert [taken.step for taken in incidents(house)[0].steps] == [RepairStep.WATCH]
    if foreign:
        for _ in range(3):  # clients that retry
            await asking.leave()
            await passes(house, 20)
            asking = house.ask("a")
            await passes(house, 100)
        assert codes(house) == ["engine_stuck"]
        await asking.leave()
        await passes(house, 20)
        assert liveness(house) is None
        box.of("a").moves = True
        asking = house.ask("a")
        await passes(house, 20)
        await asking.leave()
        assert incidents(house)[0].end is IncidentEnd.TOLD
    else:
        box.of("a").moves = True
        await passes(house, 20)
        assert incidents(house)[0].end is IncidentEnd.MOVED
        assert codes(house) == ["engine_stuck", "stuck_moved"]
        await asking.leave()
    assert incidents(house)[0].repaired_s is None
    await server.cleanup()


async def test_two_engines_that_are_stuck_at_once_are_repaired_apart(
    house: Any, box: Box, opened: Any, make_profile: Any
) -> None:
    await opened(make_profile("a", gib=20), make_profile("b", gib=20))
    await old(house)
    await old(house, "b")
    asks = [await held(house, box, name) for name in ("a", "b")]
    box.of("a").holds = box.of("b").holds = True
    for asking, lease in asks:
        await until(house, lease.lost.done)
        await asking.leave()
    box.of("b").holds, box.of("b").moves = False, True
    await until(house, lambda: all(one.ended_at is not None for one in incidents(house)))
    assert {one.profile: one.end for one in incidents(house)} == {
        "a": IncidentEnd.RESTARTED,
        "b": IncidentEnd.RECOVERED,
    }
