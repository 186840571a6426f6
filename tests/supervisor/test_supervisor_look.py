"""Looks at engines: every signal arrives in one value, and nothing that hangs holds it up."""

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.house import make_profile

from sparkdash.domain.metric import EngineFigures, GpuFigures
from sparkdash.errors import HostError
from sparkdash.host.processes import activity
from sparkdash.supervisor import probe
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer
from sparkdash.supervisor.probe import SignalReader

GPU = GpuFigures(0.0, "NVIDIA GB10", 14.0, 30.0, 0.96)
SHOWN: dict[str, Any] = {
    "running": 2, "waiting": 1, "deferred": 1, "kv_used": 0.25, "asleep": False, "progress": (7.0, None),
    "prompt_progress": 9.0,
}  # fmt: skip
TOLD = EngineFigures(**SHOWN)


@dataclass
class Telemetry:
    """Last readings of telemetry."""

    told: dict[str, EngineFigures] = field(default_factory=dict)
    gpu: GpuFigures | None = None

    def figures(self, name: str) -> EngineFigures | None:
        return self.told.get(name)


@dataclass
class Answer:
    """An answer on its way, as the gateway tells of it."""

    heard_at: float | None = None
    is_held_up: bool = False


@dataclass
class Stand:
    """An engine that is up, and looks at it."""

    house: Any
    telemetry: Telemetry
    looks: SignalReader

    @property
    def behaviour(self) -> Behaviour:
        found: Behaviour = self.house.runtime.of("a").behaviour
        return found

    async def look(self, **changes: Any) -> EngineSignals:
        supervisor = self.house.supervisor
        return await self.looks.look(supervisor.catalog.profiles["a"], supervisor.engines["a"].replace(**changes))

    async def asks(self, answer: Answer) -> Any:
        """A request that holds the engine until it leaves."""
        asking, _ = await self.house.granted("a", progress=answer)
        return asking


@pytest.fixture
async def stand(house: Any) -> Stand:
    """A house with one engine, `a`, and the room for another, `b`."""
    await house.served(make_profile("a", gib=30), make_profile("b", gib=30))
    telemetry, supervisor = Telemetry(), house.supervisor
    tools = supervisor._tools
    tools.gpu_figures = lambda: telemetry.gpu
    return Stand(house, telemetry, SignalReader(tools, supervisor._actor.leasing.held, telemetry.figures))


async def test_a_look_holds_all_signals(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    now = stand.house.clock.time
    stand.telemetry.told["a"] = replace(TOLD, answered_at=now - 3)
    stand.telemetry.gpu = replace(GPU, looked_at=now - 4)
    await stand.asks(Answer(heard_at=now))
    await stand.asks(Answer(is_held_up=True))
    done = activity.Activity(12.5, 3, ("VLLM::EngineCor",), 1, ("ptxas",), 4096)
    monkeypatch.setattr(activity, "read_activity", lambda _: done)
    assert await stand.look() == EngineSignals(
        at=now, held=1, relayed_at=now, health=HealthAnswer.WELL, answers=True, **SHOWN, cpu_s=12.5, processes=3,
        stopped=1, stopped_names=("VLLM::EngineCor",), in_kernel=1, compilers=("ptxas",), read_bytes=4096, power_w=14.0,
        low_w=30.0, utilization=0.96,
    )  # fmt: skip


async def test_bytes_count_from_the_lease_on_and_stay_when_the_answer_is_over(stand: Stand) -> None:
    clock = stand.house.clock
    began = clock.time
    answer = Answer(heard_at=began - 5)
    asked = await stand.asks(answer)
    assert (await stand.look()).relayed_at is None
    await clock.drive(clock.sleep(10))
    answer.heard_at = clock.time
    assert (await stand.look()).relayed_at == began + 10
    await asked.leave()
    seen = await stand.look()
    assert (seen.relayed_at, seen.held) == (began + 10, 0)
    late = Answer()
    await stand.asks(late)
    assert (await stand.look()).relayed_at == began + 10
    late.heard_at = began + 12
    assert (await stand.look()).relayed_at == began + 12


async def test_requests_of_an_incarnation_before_are_not_this_ones(stand: Stand) -> None:
    await stand.asks(Answer(heard_at=stand.house.clock.time))
    assert (await stand.look()).held == 1
    assert (await stand.look(ready_at=1.0)).held == 0


async def test_health_is_well_broken_or_silent(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status other than 200 and a refused connection are broken; no answer in time is silent."""
    assert (await stand.look()).health is HealthAnswer.WELL
    stand.behaviour.health = 503
    assert (await stand.look()).health is HealthAnswer.BROKEN
    assert (await stand.look(url="http://127.0.0.1:9")).health is HealthAnswer.BROKEN
    monkeypatch.setattr(probe, "PROBE_S", 0.1)
    stand.behaviour.silent = True
    assert (await stand.look()).health is HealthAnswer.SILENT


async def test_a_look_ends_when_everything_hangs(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.behaviour.silent = True

    async def never(_: str) -> set[int]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(stand.house.runtime, "pids", never)
    stand.telemetry.told["a"] = EngineFigures(unanswered_since=stand.house.clock.time - 60)
    seen = await asyncio.wait_for(stand.look(), 60)
    assert (seen.health, seen.answers) == (HealthAnswer.SILENT, False)
    assert (seen.cpu_s, seen.processes, seen.power_w) == (None, None, None)


async def test_a_thread_that_hangs_in_the_kernel_is_not_joined_by_others(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "LOOK_S", 0.1)
    free, reads = threading.Event(), []

    def read(pids: set[int]) -> activity.Activity:
        reads.append(pids)
        free.wait(20)
        return activity.Activity(1.0, len(pids))

    monkeypatch.setattr(activity, "read_activity", read)
    for _ in range(5):
        assert (await stand.look()).cpu_s is None
    assert len(reads) == 1
    free.set()
    for thread in threading.enumerate():
        if thread.name == "sparkdash-work":
            await asyncio.to_thread(thread.join)
    monkeypatch.setattr(probe, "LOOK_S", 20)
    assert (await stand.look()).cpu_s == 1.0


@pytest.mark.parametrize(
    "trouble", [HostError("no podman"), OSError(24, "Too many open files"), RuntimeError("can't start new thread")]
)
async def test_a_box_out_of_files_or_threads_still_gives_a_look(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    async def pids(_: str) -> set[int]:
        raise trouble

    monkeypatch.setattr(stand.house.runtime, "pids", pids)
    seen = await stand.look()
    assert (seen.health, seen.cpu_s) == (HealthAnswer.WELL, None)


async def test_the_gpu_tells_of_an_engine_only_while_no_other_works(stand: Stand) -> None:
    house, gpu = stand.house, replace(GPU, looked_at=stand.house.clock.time)
    assert (await stand.look()).power_w is None
    stand.telemetry.gpu = gpu
    assert (await stand.look()).power_w == 14.0
    assert (await stand.look(container=None, url="http://10.0.0.9:8000")).power_w is None
    assert (await stand.look(container=None, url="http://127.0.0.1:9")).power_w == 14.0
    other = await house.loading("b")
    stand.telemetry.gpu = replace(gpu, looked_at=house.clock.time)
    assert (await stand.look()).power_w is None
    await house.clock.drive(other.granted())
    await house.passes(1)  # how many use an engine is told a moment later
    stand.telemetry.gpu = replace(gpu, looked_at=house.clock.time)
    seen = await stand.look()
    assert (seen.power_w, seen.low_w, seen.utilization) == (None, None, None)
    await other.leave()
    await house.passes(1)
    assert (await stand.look()).power_w == 14.0
    stand.telemetry.told["b"] = EngineFigures(running=1)
    assert (await stand.look()).power_w is None
    stand.telemetry.told["b"] = EngineFigures(running=1, is_live=False)
    assert (await stand.look()).power_w == 14.0
    await house.passes(probe.FRESH_S + 1)
    assert (await stand.look()).power_w is None


@pytest.mark.parametrize(("answered", "unanswered", "is_live", "answers"), [
    (None, None, True, None), (None, 999_999, True, False), (1.0, None, True, True), (1.0, 0.5, True, True),
    (100.0, 99.0, True, False), (100.0, None, True, None), (1.0, None, False, None),
])  # fmt: skip
async def test_figures_come_with_the_look_or_do_not_or_never_did(
    stand: Stand, answered: float | None, unanswered: float | None, is_live: bool, answers: bool | None
) -> None:
    """Seconds since the last answer, and since questions have not been answered."""
    assert (await stand.look()).answers is None
    now = stand.house.clock.time
    ages = {"answered_at": answered, "unanswered_since": unanswered}
    at = {name: now - age for name, age in ages.items() if age is not None}
    stand.telemetry.told["a"] = EngineFigures(is_live=is_live, **at)
    assert (await stand.look()).answers is answers


@pytest.mark.parametrize(("age", "is_live"), [(0, False), (60, True)])
async def test_figures_of_earlier_requests_are_not_those_of_this_one(stand: Stand, age: float, is_live: bool) -> None:
    """TensorRT-LLM's gauges stay as they were when a request ended, and broken metrics leave the last ones that could be
    read: an idle engine would look busy for ever."""
    stand.telemetry.told["a"] = replace(TOLD, answered_at=stand.house.clock.time - age, is_live=is_live)
    seen = await stand.look()
    assert (seen.running, seen.waiting, seen.progress, seen.has_work) == (None, None, (), False)


async def test_a_task_queue_that_answers_nothing_while_the_server_does_is_told(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-server's figures come through the queue of its work; its health route does not."""
    silent = EngineFigures(answered_at=1.0, unanswered_since=stand.house.clock.time - 40)
    stand.telemetry.told["a"] = silent
    assert (await stand.look()).queue_silent_s is None
    stand.telemetry.told["a"] = replace(silent, uses_queue=True)
    assert (await stand.look()).queue_silent_s == 40
    monkeypatch.setattr(probe, "PROBE_S", 0.1)
    stand.behaviour.silent = True
    assert (await stand.look()).queue_silent_s is None
