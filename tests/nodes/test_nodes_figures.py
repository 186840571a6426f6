"""Figures and guard of a node: the real scripts as processes of this box, and programs that misbehave."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from fake_cluster import until
from local_commands import LocalCommands
from refusals import refused

from sparkdash.domain.metric import Memory
from sparkdash.errors import HostError
from sparkdash.host.memory import guard
from sparkdash.nodes.agent import figures as module
from sparkdash.nodes.agent import remote_guard
from sparkdash.nodes.agent.figures import FiguresStream, NodeFigures
from sparkdash.nodes.agent.guard_files import GuardFolder
from sparkdash.nodes.agent.node_guard import GUARD, GuardedContainer, make_lease
from sparkdash.nodes.agent.remote_guard import KillCandidate, NodeGuard, worst
from sparkdash.nodes.agent.tick import GuardAct
from sparkdash.nodes.programs import program_text, stream_argv
from sparkdash.settings import Settings
from sparkdash.units import GIB

SOON = 20.0
GOOD = '{"clock": %f, "at": 5, "memory": {"total": 100, "available": 60, "free": 10}}' % time.time()  # noqa: UP031


@pytest.fixture
def owner() -> Iterator[str]:
    """An owner of this test's own; afterwards its guard is ended and its folder gone."""
    name = uuid.uuid4().hex[:12]
    yield name
    folder = GuardFolder(name)
    folder.renew({"stop": True})
    held = folder.lock(SOON)
    assert held is not None, "the guard did not end"
    os.close(held)
    for each in Path(folder.path).iterdir():
        each.unlink()
    Path(folder.path).rmdir()


NewEngine = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def new_engine(owner: str, new_child: Any) -> NewEngine:
    """Starts a process of this owner's container."""
    words = (sys.executable, "-c", "import time; time.sleep(300)")
    return lambda name: new_child(*words, says=False, env={**os.environ, "SPARKDASH_ENGINE": f"{owner}/{name}"})


@asynccontextmanager
async def running(figures: NodeFigures) -> AsyncIterator[NodeFigures]:
    """Follow the stream for the length of the block."""
    task = asyncio.create_task(figures.run())
    try:
        yield figures
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def lease(kill_gib: float = 0.001, *, guard: str = "act", ttl_s: float = 60.0, **known: bool) -> dict[str, Any]:
    """Lease of a guard that kills below so much available memory; `known` are containers, and whether they serve."""
    settings = Settings.model_validate({"guard": guard, "guard_kill_gib": kill_gib, "guard_hold_gib": kill_gib})
    containers = [GuardedContainer(f"sparkdash-{name}", name, serves) for name, serves in known.items()]
    return {**make_lease(settings, 121 * 2**30, containers), "ttl_s": ttl_s}


def start_guard(owner: str, given: dict[str, Any]) -> str:
    """Start a guard as over ssh; what it says."""
    text = program_text(*GUARD) + json.dumps(given).encode() + b"\n"
    argv = [sys.executable, *stream_argv(GUARD, owner)[1:]]
    done = subprocess.run(argv, input=text, capture_output=True, timeout=SOON, check=True)
    return str(json.loads(done.stdout)["guard"])


async def test_figures_of_a_node_come_with_links_and_clock() -> None:
    async with running(NodeFigures("spark2", LocalCommands(), "nobody")) as figures:
        memory = await figures.fresh_memory()
        assert 0 < memory.available <= memory.total
        assert figures.sample.links
        assert figures.clock_offset_s == pytest.approx(0.0, abs=0.5)
        assert (figures.is_silent, figures.reason) == (False, None)


async def test_a_shorter_interval_begins_at_once() -> None:
    async with running(NodeFigures("spark2", LocalCommands(), "nobody")) as figures:
        await figures.fresh_memory()
        figures.pace(0.2)
        seen: set[float] = set()
        await until(lambda: seen.add(figures.sample.at if figures.sample else 0) or len(seen) >= 5, 5.0)


async def test_a_tick_costs_the_node_a_few_milliseconds() -> None:
    commands = LocalCommands()
    async with running(NodeFigures("spark2", commands, "nobody")) as figures:
        figures.pace(0.2)
        await figures.fresh_memory()
        script, seen = psutil.Process(commands.children[0].pid), set[float]()
        began = script.cpu_times().user
        await until(lambda: seen.add(figures.sample.at if figures.sample else 0) or len(seen) >= 11)
        assert (script.cpu_times().user - began) / 10 < 0.02


async def test_a_stream_that_falls_silent_is_known_as_silent_and_begun_again() -> None:
    commands, changes = LocalCommands(), list[bool]()
    figures = NodeFigures("spark2", commands, "nobody", on_change=lambda: changes.append(figures.is_silent))
    figures.pace(0.2)
    async with running(figures):
        await figures.fresh_memory()
        commands.children[0].send_signal(signal.SIGSTOP)
        await until(lambda: figures.is_silent, module.LEAST_SILENCE_S + 2)
        assert figures.sample is not None
        assert "no figures for" in (figures.reason or "")
        await until(lambda: not figures.is_silent)
        assert len(commands.children) == 2
    assert changes == [False, True, False, True]


async def test_the_script_ends_when_the_stream_does() -> None:
    commands = LocalCommands()
    async with running(NodeFigures("spark2", commands, "nobody")) as figures:
        await figures.fresh_memory()
    assert commands.children[0].returncode is not None


async def test_a_node_that_cannot_be_reached_says_why_at_once() -> None:
    commands = LocalCommands()
    commands.refuses = HostError("spark2 is off.", code="node_unreachable")
    async with running(NodeFigures("spark2", commands, "nobody")) as figures:
        await until(lambda: figures.reason)
        with pytest.raises(HostError, match="spark2 is off"):
            await asyncio.wait_for(figures.fresh_memory(), 1.0)


@pytest.mark.parametrize(("program", "why", "first_s"), [
    ("import sys; sys.exit('no such luck')", "no such luck", module.FIRST_S),
    ("while True: print('x' * 9999, end='')", "does not answer", 2.0),
])  # fmt: skip
async def test_a_program_that_misbehaves_is_ended_with_the_reason(
    program: str, why: str, first_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_S", first_s)
    async with running(NodeFigures("spark2", LocalCommands(program), "nobody")) as figures:
        await until(lambda: figures.reason)
        assert re.search(why, figures.reason or "")


async def test_words_of_a_login_script_before_the_figures_do_no_harm() -> None:
    program = f"import sys; print('Last login: today'); print({GOOD!r}); sys.stdin.read()"
    async with running(NodeFigures("spark2", LocalCommands(program), "nobody")) as figures:
        await until(lambda: not figures.is_silent)


ANSWERS = """
import sys, json, time
time.sleep(DELAY)
for line in sys.stdin:
    if line.startswith('{"every"'):
        print(json.dumps({"clock": 5, "at": 5, "id": json.loads(line)["id"], "memory": MEMORY}), flush=True)
"""


async def test_a_node_whose_first_figures_are_slow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new ssh connection and the start of Python there take longer than an answer may."""
    monkeypatch.setattr(module, "FRESH_S", 2.0)
    memory = {"total": 100, "available": 60, "free": 10}
    program = ANSWERS.replace("DELAY", "2.5").replace("MEMORY", repr(memory))
    async with running(NodeFigures("spark2", LocalCommands(program), "nobody")) as figures:
        assert (await figures.fresh_memory()).available == 60


async def test_a_node_without_readable_memory_is_told_so() -> None:
    program = ANSWERS.replace("DELAY", "0").replace("MEMORY", "None")
    async with running(NodeFigures("spark2", LocalCommands(program), "nobody")) as figures:
        with refused("memory_unknown"):
            await figures.fresh_memory()


async def test_one_guard_runs_for_each_owner_and_a_new_daemon_takes_its_lease_over(owner: str) -> None:
    assert await asyncio.to_thread(start_guard, owner, lease()) == "started"
    assert await asyncio.to_thread(start_guard, owner, lease()) == "runs already"
    commands = LocalCommands()
    async with running(NodeFigures("spark2", commands, owner, lease=lambda _: lease(ttl_s=77))) as figures:
        await until(lambda: figures.guarded)
        await figures.fresh_memory()
        assert commands.calls == []
        assert (GuardFolder(owner).read("lease.json") or {})["ttl_s"] == 77


async def test_the_guard_kills_the_load_and_spares_what_serves(owner: str, new_engine: NewEngine) -> None:
    serving, loading, kills = new_engine("sparkdash-a"), new_engine("sparkdash-b"), list[GuardAct]()
    figures = NodeFigures(
        "spark2", LocalCommands(), owner, lease=lambda _: lease(10_000, a=True, b=False), on_kill=kills.append
    )
    figures.pace(0.2)
    async with running(figures):
        await until(lambda: loading.poll() is not None)
        assert loading.returncode == -signal.SIGKILL
        assert serving.poll() is None
        await until(lambda: kills)
    assert [(act.container, act.profile, act.processes) for act in kills] == [("sparkdash-b", "b", 1)]


async def test_a_kill_without_a_daemon_is_reported_once_to_the_next_one(owner: str, new_engine: NewEngine) -> None:
    engine, kills = new_engine("sparkdash-a"), list[GuardAct]()
    await asyncio.to_thread(start_guard, owner, lease(10_000, ttl_s=0.0))
    await until(lambda: engine.poll() is not None)
    await until(lambda: GuardFolder(owner).kills())
    for _ in range(2):
        async with running(NodeFigures("spark2", LocalCommands(), owner, on_kill=kills.append)) as figures:
            await figures.fresh_memory()
            await until(lambda: not GuardFolder(owner).kills())
    assert [act.container for act in kills] == ["sparkdash-a"]


async def test_the_guard_stays_while_an_engine_runs_and_ends_after_it(owner: str, new_engine: NewEngine) -> None:
    engine = new_engine("sparkdash-a")
    await asyncio.to_thread(start_guard, owner, lease(ttl_s=0.0))
    folder, began = GuardFolder(owner), time.monotonic()
    while time.monotonic() - began < 3.0:  # more than one search for engines
        assert folder.is_locked()
        await asyncio.sleep(0.1)
    engine.kill()
    engine.wait()
    await until(lambda: not folder.is_locked())


async def test_a_guard_that_may_only_warn_reports_and_kills_nothing(owner: str, new_engine: NewEngine) -> None:
    engine = new_engine("sparkdash-a")
    await asyncio.to_thread(start_guard, owner, lease(10_000, guard="warn"))
    await until(lambda: GuardFolder(owner).kills())
    assert GuardFolder(owner).kills()[0]["container"] is None
    assert engine.poll() is None


async def test_a_guard_that_was_switched_off_ends_beside_a_running_engine(owner: str, new_engine: NewEngine) -> None:
    engine = new_engine("sparkdash-a")
    await asyncio.to_thread(start_guard, owner, lease())
    off = lambda memory: make_lease(Settings(guard="off"), memory.total, [])  # noqa: E731
    typed: Callable[[Memory], dict[str, Any] | None] = off
    async with running(NodeFigures("spark2", LocalCommands(), owner, lease=typed)) as figures:
        await figures.fresh_memory()
        figures.renew()
        await until(lambda: not GuardFolder(owner).is_locked())
    assert engine.poll() is None


async def test_a_stream_that_is_cancelled_in_the_moment_of_its_end_is_cancelled() -> None:
    """The connection's ssh has closed its pipes."""
    code, is_awaited = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def nothing(_size: int) -> bytes:
        return b""

    async def wait() -> int:
        is_awaited.set()
        return int(await code)

    @asynccontextmanager
    async def child(_argv: Any) -> AsyncIterator[Any]:
        pipe = SimpleNamespace(is_closing=lambda: True, read=nothing)
        yield SimpleNamespace(stdin=pipe, stdout=pipe, stderr=pipe, wait=wait)

    connection: Any = SimpleNamespace(child=child)
    following = asyncio.create_task(FiguresStream("spark2", connection, "me", print).follow(lambda: None))
    async with asyncio.timeout(20):
        await is_awaited.wait()
        code.set_result(255)
        await asyncio.sleep(0)  # the end is known, and not handed on yet
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following


TOTAL = 121 * GIB
SPARK = {"warn": 12 * GIB, "hold": 8 * GIB, "kill": 5 * GIB}


def test_the_guard_of_a_node_has_the_very_rules_of_this_boxs_guard() -> None:
    assert remote_guard.Rules is guard.Rules
    assert GUARD[0] == remote_guard.Rules.__module__


def test_a_container_that_the_daemon_has_not_named_yet_is_killed_before_one_that_serves() -> None:
    serving = KillCandidate("old", asdict(GuardedContainer("old", "a", serves=True)), start=5)
    unnamed = KillCandidate("new", {}, start=9)
    assert worst([serving, unnamed], 0) is unnamed


def test_of_two_loads_the_younger_one_is_killed() -> None:
    older, younger = KillCandidate("a", {}, start=5), KillCandidate("b", {}, start=9)
    assert worst([older, younger], 0) is younger


def test_the_lease_of_a_node_has_the_floors_that_a_guard_there_would_have() -> None:
    lease = make_lease(Settings(), TOTAL, [GuardedContainer("c", "p")])
    assert lease["floors"] == SPARK
    assert lease["act"] is True
    assert lease["engines"][0]["profile"] == "p"


OWNER = "0123456789ab"
GIB_KB = 1 << 20


def available(tmp_path: Path, gib: float) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: {121 * GIB_KB} kB\nMemAvailable: {int(gib * GIB_KB)} kB\n")


def test_an_engine_that_has_just_ended_is_not_killed_in_place_of_one_that_lives(tmp_path: Path, new_child: Any) -> None:
    """The list of processes is as old as two seconds, and a kill is waited for: a dead one must not count as one."""

    def engine(container: str) -> subprocess.Popen[str]:
        """Start an engine's process, and show it in a /proc of the test's own."""
        waits = (sys.executable, "-c", "import signal; print(flush=True); signal.pause()")
        process = new_child(*waits, env={"SPARKDASH_ENGINE": f"{OWNER}/{container}"})
        (tmp_path / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        return process

    loads, serves = engine("sparkdash-loads"), engine("sparkdash-serves")
    folder = GuardFolder(OWNER, str(tmp_path))
    served = [{"container": "sparkdash-serves", "serves": True}]
    folder.renew({"act": True, "ttl_s": 60, "floors": SPARK, "engines": served})
    available(tmp_path, 60)
    guard = NodeGuard(OWNER, folder, str(tmp_path))
    guard.step()
    loads.kill()
    loads.wait()
    available(tmp_path, 1.2)
    guard.step()
    assert serves.wait(10) == -signal.SIGKILL
    assert [each["container"] for each in folder.kills()] == ["sparkdash-serves"]
