"""The rehearsal of shipped profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import load_catalog
from sparkdash.domain.profile import EngineKind, MemoryNeed, Profile, Published, SimSpec
from sparkdash.engines import registry
from sparkdash.sim.traffic import acceptance, simulated_twin, speeds

SHIPPED = load_catalog((Path(__file__).parents[2] / "profiles",)).profiles


def row(workload: str, **figures: Any) -> Published:
    return Published(workload=workload, source="x.txt", **figures)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_profile_has_a_twin(name: str) -> None:
    original, copy = SHIPPED[name], simulated_twin(SHIPPED[name], time_scale=3)
    adapter, sim = registry.adapter(original.engine), registry.adapter(EngineKind.SIM)
    assert (copy.name, copy.serves, copy.modes, copy.published, copy.nodes) == (
        original.name,
        original.serves,
        original.modes,
        original.published,
        original.nodes,
    )
    assert (copy.engine, copy.image) == (EngineKind.SIM, None)
    assert "SIMULATED" in copy.about
    assert sim.speculation(copy) == adapter.speculation(original)
    assert sim.context(copy) == copy.context == (adapter.context(original) or 32768)
    assert (copy.cannot_run, copy.nearest) == (original.cannot_run, original.nearest)
    assert copy.sim is not None
    assert copy.sim.time_scale == 3
    assert copy.published_start_s == copy.sim.load_s / 3, "no one is told the real box's minutes for seconds"
    assert copy.memory.total_bytes is not None
    assert copy.memory.total_bytes / 2**30 == pytest.approx(copy.sim.memory_gib, abs=0.1)
    assert Profile.model_validate_json(copy.model_dump_json()) == copy


def test_published_speeds_are_kept_by_context() -> None:
    points = speeds(
        (row("ctx 0, short", e2e_tok_s=39), row("ctx 0, long", e2e_tok_s=68), row("ctx 16K, long", e2e_tok_s=57)), 32768
    )
    assert [(point.context, point.decode_tok_s) for point in points] == [(0, 68), (16384, 57)]
    assert points[0].prefill_tok_s > points[1].prefill_tok_s


def test_decode_figures_win_over_whole_request_ones() -> None:
    points = speeds(
        (row("with reasoning", e2e_tok_s=32), row("pure decode", decode_tok_s=57), row("pp", prefill_tok_s=2100)), 1000
    )
    assert (points[0].decode_tok_s, points[0].prefill_tok_s) == (57, 2100)
    assert points[-1].context == 1000
    assert points[-1].decode_tok_s < 57


def test_nothing_published_still_runs() -> None:
    first, last = speeds((), 4096)
    assert first.decode_tok_s > last.decode_tok_s > 0


@pytest.mark.parametrize(
    ("speculation", "positions"),
    [(None, 0), ("eagle3 k=1", 1), ("mtp k=2", 2), ("dflash k=15", 15), ("novel k=3", 3), ("suffix", 1)],
)
def test_acceptance_has_a_chance_per_position(speculation: str | None, positions: int) -> None:
    chances = acceptance(speculation)
    assert len(chances) == positions
    assert list(chances) == sorted(chances, reverse=True)
    assert all(0 < chance < 1 for chance in chances)


def test_known_memory_is_kept_and_the_rest_guessed() -> None:
    memory = simulated_twin(
        Profile(name="some-70b", engine=EngineKind.VLLM, memory=MemoryNeed(kv_gib=12, source="card"))
    ).memory
    assert (memory.kv_gib, memory.weights_gib) == (12, 38.5)
    assert memory.source == "simulated; known terms from: card"


def test_a_profile_for_two_boxes_runs_where_two_are_simulated() -> None:
    original = Profile(name="some-235b", engine=EngineKind.VLLM, nodes=2, cannot_run="it needs two", nearest="x")
    assert simulated_twin(original).cannot_run == "it needs two"
    copy = simulated_twin(original, nodes=2)
    assert (copy.cannot_run, copy.nearest, copy.nodes) == (None, None, 2)
    assert copy.memory.weights_gib == pytest.approx(64.65, abs=0.1)


def test_a_simulated_profile_only_takes_the_time_scale() -> None:
    original = Profile(name="x", engine=EngineKind.SIM, sim=SimSpec(load_s=3, fault="slow"))
    assert simulated_twin(original, time_scale=9).sim == SimSpec(load_s=3, fault="slow", time_scale=9)
