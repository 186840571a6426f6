"""Whether a stuck engine works again once its requests are cancelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer, Recovery, RecoveryOutlook, Thresholds

LEFT = EngineSignals(
    at=0.0, held=0, health=HealthAnswer.WELL, answers=True, running=0.0, waiting=0.0, progress=(5.0,), processes=3
)
STILL = replace(LEFT, running=2.0)


def outlooks(look: EngineSignals, *, works_from: float | None = None) -> list[tuple[float, RecoveryOutlook]]:
    """Every look's outlook, 5 s apart, until a try succeeds or nothing more is expected."""
    recovery, found, at = Recovery(0.0, Thresholds()), [], 0.0
    while True:
        outlook = recovery.see(replace(look, at=at))
        found.append((at, outlook))
        if outlook is RecoveryOutlook.HOPELESS:
            return found
        if outlook is RecoveryOutlook.TRY:
            if works_from is not None and at >= works_from:
                return found
            recovery.tried(at)
        at += 5.0


@pytest.mark.parametrize("frees_s", [0.0, 20.0, 94.0, 105.0, 118.0])
def test_an_engine_that_is_free_again_within_two_minutes_is_found_to_work(frees_s: float) -> None:
    at, outlook = outlooks(LEFT, works_from=frees_s)[-1]
    assert outlook is RecoveryOutlook.TRY
    assert frees_s <= at <= Thresholds().recovery_s


def test_one_that_never_works_is_given_up_after_two_minutes_and_a_last_try() -> None:
    found = outlooks(LEFT)
    assert [at for at, outlook in found if outlook is RecoveryOutlook.TRY] == [0.0, 30.0, 60.0, 90.0, 120.0]
    assert found[-1] == (125.0, RecoveryOutlook.HOPELESS)


def test_one_that_still_holds_its_requests_and_does_not_move_is_not_tried() -> None:
    found = outlooks(STILL)
    assert {outlook for _, outlook in found[:-1]} == {RecoveryOutlook.WAIT}
    assert found[-1] == (120.0, RecoveryOutlook.HOPELESS)


def test_one_without_fresh_figures_is_tried_once_at_the_end() -> None:
    found = outlooks(replace(STILL, answers=False, held=1))
    assert [at for at, outlook in found if outlook is RecoveryOutlook.TRY] == [120.0]


def test_stopped_processes_and_a_server_that_answers_nothing_are_not_waited_for() -> None:
    assert outlooks(replace(STILL, stopped=3))[-1] == (0.0, RecoveryOutlook.HOPELESS)
    assert outlooks(replace(STILL, stopped=1))[-1] == (20.0, RecoveryOutlook.HOPELESS)
    assert outlooks(replace(STILL, health=HealthAnswer.SILENT))[-1] == (20.0, RecoveryOutlook.HOPELESS)
