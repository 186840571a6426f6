"""Looks at engines: every signal arrives in one value, and nothing that hangs holds it up."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web
from surroundings.house import make_profile

from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineFigures, GpuFigures
from sparkdash.errors import HostError
from sparkdash.host.processes import activity
from sparkdash.supervisor import probe
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer
from sparkdash.supervisor.probe import SignalReader

GPU = GpuFigures(0.0, "NVIDIA GB10", 14.0, 30.0, 0.96)
TOLD = EngineFigures(
    running=2,
    waiting=1,
    deferred=1,
    kv_used=0.25,
    asleep=False,
    progress=(7.0, None),
    prompt_progress=9.0,
)


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

    def engine(self, name: str = "a") -> Engine:
        engine: Engine = self.house.supervisor.engines[name]
        return engine

    async def look(self, name: str = "a", **changes: Any) -> EngineSignals:
        profile = self.house.supervisor.catalog.profiles[name]
        return await self.looks.look(profile, self.engine(name).replace(**changes))


@pytest.fixture
async def stand(house: Any) -> Stand:
    """A house with one engine, `a`, and the room for another, `b`."""
    await house.served(make_profile("a", gib=30), make_profile("b", gib=30))
    telemetry, supervisor = Telemetry(), house.supervisor
    tools = supervisor._tools
    tools.gpu_figures = lambda: telemetry.gpu
    return Stand(house, telemetry, SignalReader(tools, supervisor._actor.leasing.held, telemetry.figures))


@pytest.fixture
async def asking(stand: Stand) -> AsyncIterator[Callable[..., Any]]:
    """Requests that hold an engine until the test ends."""
    made: list[Any] = []

    async def ask(answer: Answer | None, name: str = "a") -> Any:
        asked = stand.house.ask(name, progress=answer)
        made.append(asked)
        await stand.house.clock.drive(asked.granted())
        return asked

    yield ask
    for asked in made:
        await asked.leave()


async def test_a_look_holds_all_signals(
    stand: Stand, asking: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = stand.house.clock.time
    stand.telemetry.told["a"] = replace(TOLD, answered_at=now - 3)
    stand.telemetry.gpu = replace(GPU, looked_at=now - 4)
    await asking(Answer(heard_at=now))
    await asking(Answer(is_held_up=True))
    done = activity.Activity(12.5, 3, ("VLLM::EngineCor",), 1, ("ptxas",), 4096)
    monkeypatch.setattr(activity, "read_activity", lambda _: done)
    assert await stand.look() == EngineSignals(
        at=now,
        held=1,
        relayed_at=now,
        health=HealthAnswer.WELL,
        answers=True,
        running=2,
        waiting=1,
        deferred=1,
        kv_used=0.25,
        progress=(7.0, None),
        prompt_progress=9.0,
        asleep=False,
        cpu_s=12.5,
        processes=3,
        stopped=1,
        stopped_names=("VLLM::EngineCor",),
        in_kernel=1,
        compilers=("ptxas",),
        read_bytes=4096,
        power_w=14.0,
        low_w=30.0,
        utilization=0.96,
    )


async def test_bytes_count_from_the_lease_on_and_stay_when_the_answer_is_over(
    stand: Stand, asking: Callable[..., Any]
) -> None:
    clock = stand.house.clock
    began = clock.time
    answer = Answer(heard_at=began - 5)
    asked = await asking(answer)
    assert (await stand.look()).relayed_at is None
    await clock.drive(clock.sleep(10))
    answer.heard_at = clock.time
    assert (await stand.look()).relayed_at == began + 10
    await asked.leave()
    seen = await stand.look()
    assert (seen.relayed_at, seen.held) == (began + 10, 0)
    late = Answer()
    await asking(late)
    assert (await stand.look()).relayed_at == began + 10
    late.heard_at = began + 12
    assert (await stand.look()).relayed_at == began + 12


async def test_requests_of_an_incarnation_before_are_not_this_ones(stand: Stand, asking: Callable[..., Any]) -> None:
    await asking(Answer(heard_at=stand.house.clock.time))
    assert (await stand.look()).held == 1
    assert (await stand.look(ready_at=1.0)).held == 0


@pytest.fixture
async def server() -> AsyncIterator[Any]:
    """An engine whose health route does as it is told."""
    app, does = web.Application(), {"status": 200, "hangs": False}
    free = asyncio.Event()

    async def health(_: web.Request) -> web.Response:
        if does["hangs"]:
            await free.wait()
        return web.Response(status=does["status"])

    app.router.add_get("/health", health)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    does["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}"  # type: ignore[assignment]
    yield does
    free.set()
    await runner.cleanup()


async def test_health_is_well_broken_or_silent(
    stand: Stand, server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status other than 200 and a refused connection are broken; no answer in time is silent."""
    assert (await stand.look(url=server["url"])).health is HealthAnswer.WELL
    server["status"] = 503
    assert (await stand.look(url=server["url"])).health is HealthAnswer.BROKEN
    assert (await stand.look(url="http://127.0.0.1:9")).health is HealthAnswer.BROKEN
    monkeypatch.setattr(probe, "PROBE_S", 0.1)
    server["hangs"] = True
    assert (await stand.look(url=server["url"])).health is HealthAnswer.SILENT


async def test_a_look_ends_when_everything_hangs(
    stand: Stand, server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server["hangs"] = True

    async def never(_: str) -> set[int]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(stand.house.runtime, "pids", never)
    stand.telemetry.told["a"] = EngineFigures(unanswered_since=stand.house.clock.time - 60)
    seen = await asyncio.wait_for(stand.look(url=server["url"]), 60)
    assert (seen.health, seen.answers, seen.cpu_s, seen.processes, seen.power_w) == (
        HealthAnswer.SILENT,
        False,
        *[None] * 3,
    )


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


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["sleep", "600"])
    yield started
    started.kill()
    started.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


async def test_a_process_that_was_stopped_is_seen(
    stand: Stand, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pids(_: str) -> set[int]:
        return {process.pid}

    monkeypatch.setattr(stand.house.runtime, "pids", pids)
    assert (await stand.look()).stopped == 0
    stop(process)
    seen = await stand.look()
    assert (seen.stopped, seen.processes) == (1, 1)


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


async def test_the_gpu_tells_of_an_engine_only_while_no_other_works(stand: Stand, asking: Callable[..., Any]) -> None:
    house, gpu = stand.house, replace(GPU, looked_at=stand.house.clock.time)
    assert (await stand.look()).power_w is None
    stand.telemetry.gpu = gpu
    assert (await stand.look()).power_w == 14.0
    assert (await stand.look(container=None, url="http://10.0.0.9:8000")).power_w is None
    assert (await stand.look(container=None, url="http://127.0.0.1:9")).power_w == 14.0
    other = house.ask("b")
    await house.loads("b")
    stand.telemetry.gpu = replace(gpu, looked_at=house.clock.time)
    assert (await stand.look()).power_w is None
    await house.clock.drive(other.granted())
    await house.clock.drive(house.clock.sleep(1))  # how many use an engine is told a moment later
    stand.telemetry.gpu = replace(gpu, looked_at=house.clock.time)
    seen = await stand.look()
    assert (seen.power_w, seen.low_w, seen.utilization) == (None, None, None)
    await other.leave()
    await house.clock.drive(house.clock.sleep(1))
    assert (await stand.look()).power_w == 14.0
    stand.telemetry.told["b"] = EngineFigures(running=1)
    assert (await stand.look()).power_w is None
    stand.telemetry.told["b"] = EngineFigures(running=1, is_live=False)
    assert (await stand.look()).power_w == 14.0
    await house.clock.drive(house.clock.sleep(probe.FRESH_S + 1))
    assert (await stand.look()).power_w is None


@pytest.mark.parametrize(
    ("figures", "answers"),
    [
        (None, None),
        (EngineFigures(), None),
        (EngineFigures(unanswered_since=1.0), False),
        (EngineFigures(answered_at=999_999.0), True),
        (EngineFigures(answered_at=999_999.0, unanswered_since=999_999.5), True),
        (EngineFigures(answered_at=999_900.0, unanswered_since=999_901.0), False),
        (EngineFigures(answered_at=999_900.0), None),
        (EngineFigures(answered_at=999_999.0, is_live=False), None),
    ],
)
async def test_figures_come_with_the_look_or_do_not_or_never_did(
    stand: Stand, figures: EngineFigures | None, answers: bool | None
) -> None:
    shift = stand.house.clock.time - 1_000_000.0
    if figures is not None:
        moved = {
            name: at + shift
            for name in ("answered_at", "unanswered_since")
            if (at := getattr(figures, name)) is not None
        }
        stand.telemetry.told["a"] = replace(figures, **moved)
    assert (await stand.look()).answers is answers


@pytest.mark.parametrize(("age", "is_live"), [(0, False), (60, True)])
async def test_figures_of_earlier_requests_are_not_those_of_this_one(stand: Stand, age: float, is_live: bool) -> None:
    """TensorRT-LLM's gauges stay as they were when a request ended, and broken metrics leave the last ones that could be
    read: an idle engine would look busy for ever."""
    stand.telemetry.told["a"] = replace(TOLD, answered_at=stand.house.clock.time - age, is_live=is_live)
    seen = await stand.look()
    assert (seen.running, seen.waiting, seen.progress, seen.has_work) == (None, None, (), False)


async def test_a_task_queue_that_answers_nothing_while_the_server_does_is_told(
    stand: Stand, server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-server's figures come through the queue of its work; its health route does not."""
    silent = EngineFigures(answered_at=1.0, unanswered_since=stand.house.clock.time - 40)
    stand.telemetry.told["a"] = silent
    assert (await stand.look(url=server["url"])).queue_silent_s is None
    stand.telemetry.told["a"] = replace(silent, uses_queue=True)
    assert (await stand.look(url=server["url"])).queue_silent_s == 40
    monkeypatch.setattr(probe, "PROBE_S", 0.1)
    server["hangs"] = True
    assert (await stand.look(url=server["url"])).queue_silent_s is None
