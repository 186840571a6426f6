"""Hooks: events found in facts, real commands and a real webhook, and how many at a time."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
import uvloop
from aiohttp import web

from sparkdash import hooks as hooks_room
from sparkdash.bus import Bus
from sparkdash.cli.hooks import HookAction, hooks
from sparkdash.domain.engine import Engine, EngineState, Failure
from sparkdash.domain.event import EngineChanged, Fact, GuardChanged, NodesChanged, Notice, SwapChanged
from sparkdash.domain.memory import Guard, GuardKill
from sparkdash.domain.node import NodeState, NodeStatus
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import HostError
from sparkdash.hooks import HookDispatcher, HookEventFinder, HookEventKind, example_event, run_hook
from sparkdash.settings import Hook
from sparkdash.upstream import Upstream

LIMIT_S = 20.0


def snapshot(**more: Any) -> Snapshot:
    info = DaemonInfo(
        version="0", host="spark", pid=1, started_at=0.0, runtime="fake", url="http://127.0.0.1:0/v1", simulated=False
    )
    return Snapshot(seq=0, at=0.0, daemon=info, **more)


def engine(state: EngineState, **more: Any) -> EngineChanged:
    facts = {"profile": "alpha", "kind": EngineKind.VLLM, "since": 1.0, "fingerprint": "f", **more}
    return EngineChanged(engine=Engine(state=state, **facts))


def swap(outcome: SwapOutcome | None, **more: Any) -> SwapChanged:
    facts = {"id": "s1", "target": "alpha", "evict": ("beta",), "cause": SwapCause.USER, "phase": SwapPhase.WARM}
    ended = None if outcome is None else 90.0
    return SwapChanged(swap=Swap(started_at=10.0, phase_at=10.0, outcome=outcome, ended_at=ended, **{**facts, **more}))


FAILURE = Failure(code="out_of_memory", message="It ran out of memory.", hint="Look at `sparkdash why {profile}`.")
KILLED = Failure(code="out_of_memory", message="alpha died. The engine was killed (SIGKILL) without a word.")
KILL = GuardKill(at=5.0, profile="alpha", available=10, reason="4 GiB were left.")


def node(status: NodeStatus) -> NodesChanged:
    return NodesChanged(nodes={"two": NodeState(name="two", status=status, since=1.0, reason="No route.")})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            [engine(EngineState.LOADING), engine(EngineState.READY, ready_at=3.0, load_s=2.0)],
            [("ready", "alpha is ready on spark.")],
        ),
        (
            [engine(EngineState.READY, ready_at=3.0), engine(EngineState.READY, ready_at=3.0, in_flight=1)],
            [("ready", None)],
        ),
        ([engine(EngineState.READY, ready_at=3.0, adopted=True)], []),
        (
            [
                engine(EngineState.READY, ready_at=3.0, adopted=True),
                engine(EngineState.FAILED, failure=FAILURE),
                engine(EngineState.FAILED, failure=FAILURE),
            ],
            [("died", "alpha died: It ran out of memory.")],
        ),
        (
            [engine(EngineState.READY, ready_at=3.0, adopted=True), engine(EngineState.FAILED, failure=KILLED)],
            [("died", "alpha died. The engine was killed (SIGKILL) without a word.")],
        ),
        ([engine(EngineState.LOADING), engine(EngineState.FAILED, failure=FAILURE)], []),
        ([swap(None), swap(SwapOutcome.DONE), swap(SwapOutcome.DONE)], [("swap", "alpha came; beta left.")]),
        ([swap(None, target=None), swap(SwapOutcome.DONE, target=None)], [("swap", "beta left.")]),
        ([swap(SwapOutcome.DONE, evict=())], [("swap", "alpha came.")]),
        ([swap(SwapOutcome.FAILED, failure=FAILURE)], [("failed", "alpha did not come up: It ran out of memory.")]),
        ([swap(SwapOutcome.CANCELLED)], []),
        (
            [
                GuardChanged(guard=Guard(mode="act", kills=(KILL,))),
                GuardChanged(guard=Guard(mode="warn", kills=(KILL,))),
            ],
            [("killed", "The memory guard killed alpha: 4 GiB were left.")],
        ),
        (
            [node(NodeStatus.REACHABLE), node(NodeStatus.UNREACHABLE), node(NodeStatus.UNREACHABLE)],
            [("node_lost", "The node two is not reachable: No route.")],
        ),
        ([node(NodeStatus.CONNECTING), node(NodeStatus.UNREACHABLE)], []),
    ],
)
def test_each_event_is_found_once(facts: list[Fact], expected: list[tuple[str, str | None]]) -> None:
    finder = HookEventFinder(snapshot())
    found = [event for fact in facts for event in finder.events(fact, 100.0)]
    assert [event.event for event in found] == [kind for kind, _ in expected]
    for event, (_, text) in zip(found, expected, strict=True):
        assert text is None or event.text == text


def test_what_a_new_listener_finds_is_no_news() -> None:
    running = engine(EngineState.READY, ready_at=3.0).engine
    finder = HookEventFinder(snapshot(engines={"alpha": running}, swaps=(swap(SwapOutcome.DONE).swap,)))
    assert finder.events(engine(EngineState.READY, ready_at=3.0, in_flight=2), 1.0) == []
    assert finder.events(swap(SwapOutcome.DONE), 1.0) == []


@pytest.mark.parametrize(
    "table", [{}, {"command": ["x"], "url": "http://h"}, {"url": "ftp://h"}, {"command": ["x"], "timeout_s": 0}]
)
def test_a_hook_without_one_clear_way_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's
        Hook.model_validate(table)


EVENT = example_event(HookEventKind.READY, "spark", 1.0)


def command(source: str, *, timeout_s: float = LIMIT_S) -> Hook:
    """A hook that runs these lines of Python."""
    return Hook(command=(sys.executable, "-c", source), timeout_s=timeout_s)


async def ran(hook: Hook) -> str | None:
    async with Upstream() as upstream:
        try:
            await run_hook(hook, EVENT, upstream)
        except HostError as error:
            return error.message
    return None


async def test_a_command_gets_the_event_and_a_small_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    out = tmp_path / "out"
    hook = command(f"import sys,os,json; json.dump([json.load(sys.stdin), dict(os.environ)], open({str(out)!r}, 'w'))")
    assert await ran(hook) is None
    event, environment = json.loads(out.read_text())
    assert (event["event"], event["host"], event["details"]) == ("ready", "spark", {"trial": True})
    assert environment["SPARKDASH_EVENT"] == "ready"
    assert not {"HF_TOKEN", "SPARKDASH_CONFIG_DIR"} & environment.keys()


async def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    assert "ended with 3: no network" in str(
        await ran(command("import sys; sys.exit((print('no network', file=sys.stderr), 3)[1])"))
    )
    assert "cannot be started" in str(await ran(Hook(command=("/no/such/program",))))


def is_gone(mark: Path) -> bool:
    """Whether the process whose id stands in the file ends within ten seconds: a signal is not yet an end."""
    try:
        process = os.pidfd_open(int(mark.read_text()))
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    source = (
        f"import subprocess,sys,time; p=subprocess.Popen([sys.executable,'-c','import time; time.sleep(600)']);"
        f"open({str(mark)!r},'w').write(str(p.pid)); time.sleep(600)"
    )
    began = time.monotonic()
    assert "took longer than" in str(await ran(command(source, timeout_s=5)))
    assert time.monotonic() - began < 20
    assert is_gone(mark)


async def test_a_command_ends_with_its_own_end_though_a_child_of_it_stays(tmp_path: Path) -> None:
    """The child has the pipe of the command's complaints, and would hold it open."""
    mark = tmp_path / "child"
    source = (
        f"import subprocess,sys; p=subprocess.Popen([sys.executable,'-c','import time; time.sleep(60)']);"
        f"open({str(mark)!r},'w').write(str(p.pid))"
    )
    assert await ran(command(source)) is None
    assert is_gone(mark)


async def test_a_command_that_ignores_its_input_or_shouts_is_no_trouble() -> None:
    assert await ran(command("pass")) is None
    assert await ran(command("import sys; sys.stderr.write('x' * 5_000_000)")) is None


def test_a_command_that_has_ended_before_its_input_is_told_by_its_end() -> None:
    """uvloop's pipe refuses a write then by another error than asyncio's."""

    async def late() -> str:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("/bin/false", stdin=pipe, stderr=pipe, start_new_session=True)
        assert process.stdin is not None
        process.stdin.transport.abort()
        await process.wait()
        return await hooks_room._spoken(process, b"{}")

    assert uvloop.run(late()) == ""


@asynccontextmanager
async def webhook(status: int = 200) -> AsyncIterator[tuple[str, list[Any]]]:
    heard: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        heard.append(await request.json())
        return web.Response(status=status, text="no such topic")

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/secret-topic", heard
    finally:
        await runner.cleanup()


async def test_a_webhook_gets_the_event_as_its_body() -> None:
    async with webhook() as (url, heard):
        assert await ran(Hook(url=url)) is None
    assert heard[0]["text"] == EVENT.text


async def test_a_webhook_that_refuses_is_named_without_its_address() -> None:
    async with webhook(404) as (url, _):
        words = str(await ran(Hook(url=url)))
    assert "answered 404: no such topic" in words
    assert "secret-topic" not in words


class Listening:
    """A dispatcher on a bus of its own."""

    def __init__(self, *hooks: Hook) -> None:
        self.bus = Bus(snapshot(), time.time)
        self.hooks = list(hooks)
        self.notices: list[Notice] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Upstream() as upstream:
            task = asyncio.create_task(HookDispatcher(self.bus, upstream, lambda: self.hooks).run())
            while not self.bus._listeners:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            yield
            self.bus.end()
            await asyncio.wait_for(task, LIMIT_S)

    def publish(self, *facts: Fact) -> None:
        for fact in facts:
            self.bus.publish(fact)


def came(number: int) -> EngineChanged:
    return engine(EngineState.READY, profile=f"p{number}", ready_at=float(number))


async def test_only_hooks_that_want_the_event_run() -> None:
    async with webhook() as (url, heard):
        house = Listening(Hook(url=url, profiles=("p1*",)), Hook(url=url, on=(HookEventKind.DIED,)))
        async with house.running():
            house.publish(*(came(number) for number in (1, 2, 10)))
    assert sorted(event["profile"] for event in heard) == ["p1", "p10"]


async def test_a_failure_is_told_once_until_it_works_again() -> None:
    gone = Hook(url="http://127.0.0.1:9/x")
    house = Listening(gone)
    async with house.running():
        house.publish(*(came(number) for number in range(5)))
    assert [notice.code for notice in house.bus.snapshot.notices] == ["hook_failed"]


async def test_few_run_at_a_time_and_a_flood_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    most = running = total = 0

    async def slow(hook: Hook, event: object, upstream: Upstream) -> None:
        nonlocal most, running, total
        running, total = running + 1, total + 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    monkeypatch.setattr(hooks_room, "run_hook", slow)
    house = Listening(Hook(command=("x",)))
    async with house.running():
        house.publish(*(came(number) for number in range(400)))
    assert most == hooks_room.AT_ONCE
    assert total <= hooks_room.AT_ONCE + hooks_room.WAITING


def test_the_command_line_lists_and_tries_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path))
    table = '[[hooks]]\non = ["died"]\ncommand = ["/bin/false", "--token=x"]\n[[hooks]]\ncommand = ["/bin/true"]\n'
    (tmp_path / "config.toml").write_text(table)
    hooks()
    assert "/bin/false: died" in (said := capsys.readouterr().out)
    assert "token" not in said
    hooks(HookAction.TEST, "ready", as_json=True)
    tried = json.loads(capsys.readouterr().out)
    assert tried == {"hooks": [{"hook": "/bin/true", "event": "ready", "error": None}]}
    with pytest.raises(typer.Exit):
        hooks(HookAction.TEST, "died")
    assert "/bin/false ended with 1" in capsys.readouterr().out
    with pytest.raises(typer.BadParameter):
        hooks(HookAction.TEST, "nothing")
