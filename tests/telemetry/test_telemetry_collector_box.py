"""The collector and the box: memory, processes, other containers, the GPU."""

from __future__ import annotations

from typing import Any

from running_collector import IMPATIENT_S, Watch, collecting

from sparkdash.domain.container import Stranger
from sparkdash.domain.engine import EngineState
from sparkdash.domain.metric import Gpu
from sparkdash.errors import HostError


async def test_collector_memory_by_engine(watch: Watch, time: Any, box: Any, engine: Any) -> None:
    """What an engine's processes hold is known while it loads; who has no known processes holds an unknown amount."""
    watch.pids = {"coder": {7, 8}}
    loading = EngineState.LOADING
    watch.engines = {name: engine(None, name, state=loading) for name in ("coder", "other")}
    watch.engines["broken"] = engine(None, "broken", state=EngineState.FAILED)
    async with collecting(watch, time, box):
        sample = await watch.until(lambda s: s.memory.engines.get("coder"))
    assert sample.memory is not None
    assert sample.memory.engines == {"coder": 1 << 30, "other": None}


async def test_collector_asks_for_processes_seldom(watch: Watch, time: Any, box: Any, engine: Any) -> None:
    """Process ids are asked for every few seconds, not with every tick."""
    watch.pids = {"coder": {7}}
    watch.engines = {"coder": engine(None, state=EngineState.LOADING)}
    async with collecting(watch, time, box):
        first = await watch.sample()
        await watch.until(lambda s: s.at >= first.at + 20)
        asked = len(watch.pids_asked)
    assert 4 <= asked <= 5


async def test_processes_of_started_engines_are_hardly_asked_for_while_nobody_looks(
    watch: Watch, time: Any, box: Any, engine: Any
) -> None:
    """Each question costs a call of the runtime, beside engines that no longer fork."""
    watch.pids = {"coder": {7}}
    watch.engines = {"coder": engine(None)}
    watch.listeners = 0
    async with collecting(watch, time, box):
        first = await watch.sample()
        await watch.until(lambda s: s.at >= first.at + 100)
        asked = len(watch.pids_asked)
    assert 3 <= asked <= 5


async def test_other_containers_are_weighed_with_every_tick_and_asked_for_seldom(
    watch: Watch, time: Any, box: Any, engine: Any
) -> None:
    """Every 30 s while somebody watches, and when our engines change; a container whose processes nobody tells has no figure."""
    comfy, mute = Stranger(name="comfy", gpu=True), Stranger(name="mute", ports=(18000,))
    watch.strangers = {comfy: {7}, mute: set()}
    async with collecting(watch, time, box):
        sample = await watch.until(lambda s: s.memory and s.memory.strangers)
        await watch.until(lambda s: s.at >= sample.at + 20)
        asked = watch.strangers_asked
        watch.engines = {"coder": engine(None, state=EngineState.LOADING)}
        changed = await watch.sample()
        await watch.until(lambda s: s.at >= changed.at + 3)
        again = watch.strangers_asked
        watch.listeners = 0
        await watch.until(lambda s: s.at >= changed.at + 100)
    assert (asked, again, watch.strangers_asked) == (1, 2, 2)
    assert [each.bytes for each in sample.memory.strangers] == [1 << 30, None]


async def test_collector_without_a_runtime(watch: Watch, time: Any, box: Any, engine: Any) -> None:
    """A runtime that does not answer makes the figure unknown and no noise."""
    watch.engines = {"coder": engine(None, state=EngineState.LOADING)}
    watch.pids_broken = HostError("podman did not answer.")
    async with collecting(watch, time, box):
        first = await watch.sample()
        sample = await watch.until(lambda s: s.at >= first.at + 3)
    assert sample.memory is not None
    assert sample.memory.engines == {"coder": None}
    assert watch.notices == []


async def test_collector_with_a_hanging_driver(watch: Watch, time: Any, box: Any) -> None:
    """A driver that hangs is asked once, and memory is shown without it."""
    box.gpu_free.clear()
    async with collecting(watch, time, box, wait_s=IMPATIENT_S):
        samples = [await watch.sample() for _ in range(3)]
        box.gpu_free.set()
        back = await watch.until(lambda s: s.gpu is not None)
    assert [sample.gpu for sample in samples] == [None, None, None]
    assert all(sample.memory is not None for sample in samples)
    assert back.gpu is not None
    assert back.gpu.name == "GB10"


async def test_a_gpu_stuck_in_its_low_power_state_is_told_and_marks_the_samples(
    watch: Watch, time: Any, box: Any
) -> None:
    """Once when it has lasted, and once when it is over."""
    box.gpu_now = Gpu(utilization=0.96, sm_clock_mhz=799, power_w=19.5)
    async with collecting(watch, time, box):
        first = await watch.sample()
        marked = await watch.until(lambda s: s.low_power)
        assert not first.low_power
        assert marked.at - first.at >= 30
        await watch.sample()
        box.gpu_now = Gpu(utilization=0.96, sm_clock_mhz=2281, power_w=92.5)
        await watch.until(lambda s: not s.low_power)
    assert [notice.code for notice in watch.notices] == ["low_power", "low_power_over"]
    assert "96 % busy, 799 MHz, 19.5 W, held back by nothing). Unplug" in watch.notices[0].text
