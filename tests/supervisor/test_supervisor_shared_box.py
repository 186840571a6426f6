"""Several programs on one box: who is kept, who waits, and that nobody waits for ever."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from surroundings.shared_box import DRAIN_S, STOP_S, SharedBox, client
from thorough import tries

from sparkdash.supervisor.decide.moves import Patience
from sparkdash.supervisor.decide.queue import PAUSE_S, EngineUse, kept_until

PATIENCE = Patience(min_dwell_s=30, max_wait_s=900, min_dwell_share=1)
SOON = (7.0, 6.0, 8.0)
CLIENTS: list[dict[str, Any]] = [
    {},
    {},
    {"batch": True},
    {"autocomplete": True},
    {"patience_s": 0.5},
    {"patience_s": 20},
]
LONG = (400.0, 500.0, 7.0)


@pytest.mark.parametrize(
    ("use", "until"),
    [
        (EngineUse(ready_at=0, load_s=180), float("-inf")),  # nobody has used it
        (EngineUse(0, 180, busy=True), 180),  # as long as it took to load
        (EngineUse(0, 10, busy=True), 30),  # min_dwell_s
        (EngineUse(0, 180, used_at=20, pauses=SOON), 20 + 12),  # 1.5 times the longest pause
        (EngineUse(0, 180, used_at=20, pauses=(0.1, 0.1, 0.1)), 20 + PAUSE_S),
        (EngineUse(0, 100, used_at=20, pauses=(0.1, 0.1)), 100),
        (EngineUse(0, 180, used_at=175, pauses=SOON), 180),
        (EngineUse(0, 100, used_at=20), 100),  # too few pauses are known: the load's own time
        (EngineUse(0, 10, used_at=2), 12),
        (EngineUse(0, 180, used_at=20, pauses=LONG), 20 + PAUSE_S),  # they return later than it is kept
        (EngineUse(0, 0, used_at=20), 20 + PAUSE_S),  # adopted
    ],
)
def test_how_long_an_engine_is_kept(use: EngineUse, until: float) -> None:
    assert kept_until(use, PATIENCE) == until


def test_without_a_dwell_nobody_is_kept() -> None:
    assert kept_until(EngineUse(5, 180, busy=True), Patience(0, 900, 1)) == 5


def hour() -> SharedBox:
    """Two agents with pauses of 7 s, an editor that completes while one types, and a chat, for an hour."""
    box = SharedBox({"coder": 60.0, "writer": 45.0, "small": 20.0, "chat": 90.0}, PATIENCE)
    client(box, "coder", 300, Random(1), pause_s=7, answer_s=8)
    client(box, "writer", 300, Random(2), pause_s=7, answer_s=8)
    client(box, "chat", 20, Random(3), pause_s=240, answer_s=20)
    client(box, "small", 900, Random(4), pause_s=4, answer_s=0.3, patience_s=0.5, autocomplete=True)
    box.run(until=3600)
    return box


def waits(box: SharedBox) -> list[float]:
    """Seconds that each request waited, whose client stayed."""
    return [(ask.granted_at or box.now) - ask.asked_at for ask in box.asks if not (ask.gone or ask.refused)]


def test_an_hour_of_two_agents_an_editor_and_a_chat() -> None:
    """With a dwell of 30 s for every engine and pauses of 5 s: 45 evictions, 60 answers, engines at work for 16 %."""
    box = hour()
    assert box.evictions <= 32
    assert sum(ask.granted_at is not None for ask in box.asks) >= 95
    assert box.useful_s > 0.23 * 3600
    assert max(waits(box)) < 360


@pytest.mark.timeout(900)
def test_in_random_histories_nobody_starves_and_autocomplete_stops_nobody() -> None:
    for seed in range(tries(10_000)):
        rng = Random(seed)
        box = SharedBox({name: rng.uniform(5, 120) for name in "abcd"[: rng.randint(2, 4)]}, PATIENCE)
        names = sorted(box.loads)
        for _ in range(rng.randint(2, 4)):
            more = rng.choice(CLIENTS)
            name, pause_s, answer_s = rng.choice(names), rng.choice([0.1, 5, 30, 300]), rng.choice([0.5, 8, 60])
            client(box, name, rng.randint(1, 6), rng, pause_s=pause_s, answer_s=answer_s, **more)
        box.run()
        longest = PATIENCE.max_wait_s + (len(names) + 1) * (DRAIN_S + STOP_S + max(box.loads.values()))
        for ask in box.asks:
            assert ask.granted_at is not None or ask.gone or ask.refused, f"seed {seed}: {ask} was never answered"
        assert max(waits(box), default=0.0) <= longest, f"seed {seed}"
