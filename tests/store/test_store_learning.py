"""Times and memory learned from earlier swaps and loads, over restarts."""

from __future__ import annotations

from pathlib import Path

from stored import load, rows, swap

from sparkdash.domain.memory import BLOCK, Contiguity, LoadContiguity, LoadOutcome, Measure
from sparkdash.domain.swap import Step, SwapOutcome
from sparkdash.store import Store, past
from sparkdash.units import GIB


def contiguous(id_: str, blocks: int) -> LoadContiguity:
    """A load before which there were so many free blocks."""
    look = Contiguity(
        page_bytes=4096, largest_bytes=BLOCK, free_bytes=GIB, free_2m_bytes=GIB, free_32m_bytes=blocks * BLOCK, boot="b"
    )
    return LoadContiguity(id=id_, at=7.0, profile="a", need_bytes=GIB, before=look, outcome=LoadOutcome.DONE)


async def test_the_expected_time_is_the_median_of_the_last_swaps_and_outlives_a_restart(tmp_path: Path) -> None:
    """Drains and failures do not count; nothing is known before the first."""
    path = tmp_path / "new" / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        assert store.expected_s("f") is None
        store.record_swap(swap("1", 100, drain_s=500), "f")
        store.record_swap(swap("2", 80), "f")
        store.record_swap(swap("3", 1, outcome=SwapOutcome.FAILED), "f")
        store.record_swap(swap("4", 90), "f")
        assert store.expected_s("f") == 90
        assert store.expected_s("other") is None
    async with Store.opened(path, lambda _: None) as store:
        assert store.expected_s("f") == 90
        for n in range(5, 10):
            store.record_swap(swap(str(n), 10), "f")
        assert store.expected_s("f") == 10
    kept = rows(path, "SELECT outcome, failure, stage_s FROM swaps WHERE id = '3'")
    assert kept == [("failed", "engine_crash", '{"drain": 0.0, "load": 1.0}')]


async def test_a_swap_is_kept_with_the_nodes_of_its_target(tmp_path: Path) -> None:
    """The serving one first."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        store.record_swap(swap("1", 100).replace(nodes=("local", "spark2")), "f")
        store.record_swap(swap("2", 100), "f")
    assert rows(path, "SELECT id, nodes FROM swaps ORDER BY id") == [("1", "local,spark2"), ("2", None)]


async def test_a_clock_that_was_ahead_does_not_end_the_learning(tmp_path: Path) -> None:
    """What was written then is older than what was written since, whatever it says; in times, in memory and in what is forgotten."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        for n in range(9_000_000, 9_000_005):
            store.record_swap(swap(str(n), 500), "f")
            store.record_load(load(str(n), 90), "a", "f")
        for n in range(5):
            store.record_swap(swap(str(n), 10), "f")
            store.record_load(load(str(n), 50), "a", "f")
        store.record_load(load("9000000", 90, after_prompt_bytes=95 * GIB), "a", "f")  # of an engine that has run since
    async with Store.opened(path, lambda _: None) as store:
        assert store.expected_s("f") == 10
        known = store.footprint("f")
        assert known is not None
        assert known.steady_bytes == 50 * GIB


async def test_a_footprint_is_of_the_last_loads_that_count_and_outlives_a_restart(tmp_path: Path) -> None:
    """Median for what it holds, maximum for its peak; a spoilt load is kept and not learned from."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        assert store.footprint("f") is None
        store.record_load(load("1", 90, curve=((0.0, 0), (0.5, GIB))), "a", "f")
        store.record_load(load("2", 40, spoilt="another engine grew meanwhile"), "a", "f")
        for n in (3, 4, 5):
            store.record_load(load(str(n), 60 + n), "a", "f")
        store.record_load(load("4", 64, after_prompt_bytes=70 * GIB), "a", "f")
        before = store.footprint("f")
    assert before is not None
    assert (before.steady_bytes, before.peak_bytes, before.after_prompt_bytes) == (int(64.5 * GIB), 91 * GIB, 70 * GIB)
    assert (before.loads, before.at, before.measure) == (4, 5.0, Measure.PROCESSES)
    async with Store.opened(path, lambda _: None) as store:
        assert store.footprint("f") == before
        for n in range(6, 11):
            store.record_load(load(str(n), 50), "a", "f")
        after = store.footprint("f")
        assert after is not None
        assert (after.steady_bytes, after.peak_bytes, after.loads) == (50 * GIB, 51 * GIB, 5)
    assert rows(path, "SELECT curve FROM loads WHERE id = '1'") == [(f"[[0.0, 0], [0.5, {GIB}]]",)]
    assert rows(path, "SELECT spoilt FROM loads WHERE id = '2'") == [("another engine grew meanwhile",)]


async def test_the_steps_of_swaps_are_kept_by_launch_and_by_kin(tmp_path: Path) -> None:
    """The last five of each, oldest first; failures are no example, nor is the rest of a load that began under another daemon."""
    path = tmp_path / "sparkdash.db"
    steps = (Step(name="start", s=2.5), Step(name="weights", s=40.0))
    async with Store.opened(path, lambda _: None) as store:
        for n in range(1, 8):
            took = swap(str(n), n).model_copy(update={"steps": (*steps, Step(name="warm", s=float(n)))})
            store.record_swap(took, f"f{n % 2}", "vllm org/model")
        failed = swap("9", 1, outcome=SwapOutcome.FAILED).model_copy(update={"steps": steps})
        store.record_swap(failed, "f1", "vllm org/model")
        rest = swap("10", 1).model_copy(update={"steps": steps})
        store.record_swap(rest, "f1", "vllm org/model", whole=False)
        assert store.expected_s("f1") == 4
    async with Store.opened(path, lambda _: None) as store:
        assert [s[-1].s for s in store.steps("f1")] == [1, 3, 5, 7]
        assert [s[-1].s for s in store.steps("vllm org/model")] == [3, 4, 5, 6, 7]
        assert store.steps("f1")[0][:2] == steps
        assert store.steps("other") == ()


async def test_free_blocks_before_and_after_loads_outlive_the_daemon_in_their_order(tmp_path: Path) -> None:
    """Another process reads them too, while the daemon runs."""
    path = tmp_path / "sparkdash.db"
    assert past.read_loads(path) == ()
    async with Store.opened(path, lambda _: None) as store:
        store.record_contiguity(contiguous("2", 300))
        store.record_contiguity(contiguous("1", 200))
    async with Store.opened(path, lambda _: None) as store:
        assert [load.id for load in store.contiguity] == ["2", "1"]
        assert store.contiguity[1] == contiguous("1", 200)
        assert past.read_loads(path) == store.contiguity
        for number in range(150):
            store.record_contiguity(contiguous(f"n{number}", number))
    assert [load.id for load in past.read_loads(path)] == [f"n{number}" for number in range(50, 150)]
