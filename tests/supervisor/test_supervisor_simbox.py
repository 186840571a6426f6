"""Random swap sequences on a simulated box: the real decisions against a swapper that does not look at memory."""

from __future__ import annotations

import os

import pytest
from surroundings.simulated_box import (
    FLOORS,
    PACE,
    TOTAL,
    Blind,
    Box,
    holds_now,
    sequence,
)
from surroundings.simulated_supervisor import Aware
from thorough import tries

from sparkdash.host.memory import guard_decisions
from sparkdash.supervisor.swap import stopping
from sparkdash.units import gib

SEQUENCES = int(os.environ.get("SPARKDASH_SIMBOX", tries(1500)))
"""10,000 take a minute or three: SPARKDASH_SIMBOX=10000, with --timeout=0."""


@pytest.mark.parametrize("quick", [False, pytest.param(True, marks=pytest.mark.full)])
def test_random_swap_sequences_never_freeze_the_box_that_a_blind_swapper_freezes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    """Also with read-ahead and kept conversations (`quick`)."""
    monkeypatch.setattr(stopping, "SAMPLE_S", 2.0)  # ten times fewer looks; only the waits grow
    monkeypatch.setattr(stopping, "measure_held_memory", holds_now)
    frozen = kills = swaps = beside = together = 0
    longest, lowest, read = 0.0, TOTAL, 0.0
    for seed in range(SEQUENCES):
        plan = sequence(seed)
        blind = Blind(Box(seed), plan)
        blind.run()
        frozen += blind.frozen
        aware = Aware(Box(seed), plan, quick)
        aware.run()
        assert "waits" not in aware.answered.values(), f"seed {seed}: a ticket is not answered"
        assert len(aware.answered) == len(plan.asks)
        assert set(aware.scheduler.records.residents) == set(aware.running), f"seed {seed}: an engine is forgotten"
        assert not aware.scheduler.records.swaps
        kills += aware.kills
        swaps += aware.begun
        together += aware.together
        beside += len(aware.running) > 1
        read += aware.read_gib
        longest, lowest = max(longest, *aware.waits, 0.0), min(lowest, aware.box.lowest)
    assert longest < 3600, "somebody starved"
    assert together > SEQUENCES / 100, "loads do not go on at the same time"
    assert (read > SEQUENCES) is quick
    assert frozen > SEQUENCES / 100, "the model is too kind to prove anything"
    with capsys.disabled():
        print(
            f"\nSIMULATED box, {SEQUENCES} sequences, {swaps} swaps, {together} loads at the same time as another, falls of up to {PACE} GiB a second. sparkdash: frozen (under"
            f" {gib(guard_decisions.FROZEN)}) 0 times, under the guard's floor ({gib(FLOORS.kill)}) 0 times, lowest available"
            f" {gib(lowest, 2)}, {kills} kills by the guard, longest wait {longest:.0f} s, {beside} ended with engines side by"
            f" side, {read:.0f} GiB read ahead. A swapper that does not look at memory: frozen {frozen} times."
        )
