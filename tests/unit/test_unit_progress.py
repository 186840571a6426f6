"""A swap in words: what is known, and no more."""

from __future__ import annotations

import pytest

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.phrases import TimeLeft, estimate_text, progress_text, time_left, wait_text, waiting_text
from sparkdash.domain.swap import Swap, SwapCause, SwapPhase

SWAP = Swap(
    id="s", target="new", evict=("old",), cause=SwapCause.USER, phase=SwapPhase.LOAD, started_at=100, phase_at=110,
    progress=LoadProgress(stage="weights", fraction=0.62),
)  # fmt: skip
LEARNED = SWAP.model_copy(update={"eta_s": 100.0, "eta_low_s": 80.0, "eta_high_s": 130.0, "eta_at": 140.0})


def with_(swap: Swap, **facts: object) -> Swap:
    return swap.model_copy(update=facts)


def test_what_is_left_is_counted_on_from_when_it_was_told() -> None:
    assert time_left(SWAP, 150) is None
    assert time_left(LEARNED, 150) == TimeLeft(90, 70, 120)
    assert time_left(LEARNED, 130) == TimeLeft(100, 80, 130)
    assert time_left(LEARNED, 230) == TimeLeft(10, 0, 40)
    assert time_left(with_(LEARNED, phase=SwapPhase.DRAIN), 200) == TimeLeft(100, 80, 130)
    assert time_left(with_(LEARNED, eta_low_s=None, eta_high_s=None), 150) == TimeLeft(90, None, None)


@pytest.mark.parametrize(
    ("swap", "now", "words"),
    [
        (LEARNED, 140, "weights 62 % · about 1m40s left (1m20s to 2m10s)"),
        (with_(LEARNED, eta_low_s=None, eta_high_s=None), 235, "weights 62 % · about 5s left"),
        (LEARNED, 255, "weights 62 % · about 0s left (0s to 15s)"),
        (LEARNED, 400, "weights 62 % · longer than usual"),
        (SWAP, 143, "weights 62 % · first load here, 43s so far"),
        (with_(SWAP, reads_s=31.0), 143, "weights 62 % · first load here, 31s or more to read its weights, 43s so far"),
        (with_(SWAP, progress=LoadProgress(stage="compile")), 143, "compile · first load here, 43s so far"),
        (with_(LEARNED, phase=SwapPhase.DRAIN, progress=None), 150, "drain · about 1m40s left after the drain (1m20s to 2m10s)"),
        (with_(SWAP, target=None, phase=SwapPhase.STOP, progress=None), 143, "stop"),
    ],
)  # fmt: skip
def test_a_swap_in_one_line(swap: Swap, now: float, words: str) -> None:
    assert progress_text(swap, now) == words


def test_who_waits_is_told_for_what() -> None:
    assert waiting_text(None, "new", 140) == ""
    assert waiting_text(SWAP, "new", 143) == waiting_text(SWAP, "auto", 143) == f"new: {progress_text(SWAP, 143)}"
    assert waiting_text(SWAP, "other", 143).startswith("other comes after new: weights 62 %")
    assert waiting_text(with_(SWAP, target=None), "new", 143) == "old stops"
    assert estimate_text(with_(SWAP, target=None), 143) == ""


@pytest.mark.parametrize(
    ("phase", "until", "words"),
    [
        (SwapPhase.DRAIN, 160, "waits for it, cut in 20s"),
        (SwapPhase.STOP, 170, "waits for it, killed in 30s"),
        (SwapPhase.STOP, 137, "waits for it, killed 3s ago"),
        (SwapPhase.RECLAIM, 260, "waits for it, given up in 2m00s"),
        (SwapPhase.RECLAIM, None, "waits for it"),
    ],
)
def test_what_is_waited_for_and_until_when(phase: SwapPhase, until: float | None, words: str) -> None:
    assert wait_text(with_(SWAP, phase=phase, waits_for="it", until=until), 140) == words
    assert wait_text(with_(SWAP, phase=phase, waits_for=None, until=until), 140) == ""
