"""HookDispatcher: listens to the bus, and runs the hooks that want an event."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sparkdash.bus import Bus
from sparkdash.domain.base import Frozen
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import (
    ActiveAlert,
    AlertsChanged,
    EngineChanged,
    Fact,
    GuardChanged,
    Level,
    NodesChanged,
    Notice,
    SwapChanged,
)
from sparkdash.domain.memory import Guard
from sparkdash.domain.node import NodeState, NodeStatus
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap, SwapOutcome
from sparkdash.errors import HostError, SparkdashError, UpstreamError
from sparkdash.host.command import begin_child, end_child
from sparkdash.log import LOG
from sparkdash.settings import Hook, HookEventKind
from sparkdash.units import duration
from sparkdash.upstream import Upstream, encode_headers

_LOST = frozenset({NodeStatus.UNREACHABLE, NodeStatus.REFUSED})


class HookEvent(Frozen):
    """An event, as a hook reads it. Times are Unix seconds."""

    event: HookEventKind
    at: float
    host: str
    profile: str | None = None
    text: str
    details: dict[str, Any] = {}


class HookEventFinder:
    """Finds the events in facts; remembers what it saw, so that each is found once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.look(snapshot)

    def look(self, snapshot: Snapshot) -> None:
        """Take the present as known: nothing of it is news."""
        self._host = snapshot.daemon.host
        self._ready: dict[str, float | None] = {name: engine.ready_at for name, engine in snapshot.engines.items()}
        self._states = {name: engine.state for name, engine in snapshot.engines.items()}
        self._ended: set[str] = {swap.id for swap in snapshot.swaps}
        self._kills = {kill.at for kill in snapshot.guard.kills} if snapshot.guard else set[float]()
        self._nodes = {name: node.status for name, node in snapshot.nodes.items()}
        self._alerts = {(one.figure, one.profile, one.node) for one in snapshot.alerts}

    def events(self, fact: Fact, at: float) -> list[HookEvent]:
        match fact:
            case EngineChanged(engine=engine):
                return self._of_engine(engine, at)
            case SwapChanged(swap=swap) if swap.ended_at is not None and swap.id not in self._ended:
                self._ended.add(swap.id)
                return self._of_swap(swap, at)
            case GuardChanged(guard=guard):
                return self._of_guard(guard, at)
            case NodesChanged(nodes=nodes):
                return self._of_nodes(nodes, at)
            case AlertsChanged(alerts=alerts):
                return self._of_alerts(alerts, at)
        return []

    def _event(self, kind: HookEventKind, at: float, profile: str | None, text: str, **details: object) -> HookEvent:
        return HookEvent(event=kind, at=at, host=self._host, profile=profile, text=text, details=details)

    def _of_guard(self, guard: Guard, at: float) -> list[HookEvent]:
        new = [kill for kill in guard.kills if kill.at not in self._kills]
        self._kills.update(kill.at for kill in new)
        return [
            self._event(
                HookEventKind.KILLED, at, kill.profile, f"The memory guard killed {kill.profile}: {kill.reason}",
                available_bytes=kill.available,
            )
            for kill in new
        ]  # fmt: skip

    def _of_engine(self, engine: Engine, at: float) -> list[HookEvent]:
        name, before = engine.profile, self._states.get(engine.profile)
        self._states[name] = engine.state
        if engine.state is EngineState.ABSENT:
            self._states.pop(name, None)
            self._ready.pop(name, None)
        if engine.state is EngineState.READY and engine.ready_at != self._ready.get(name):
            self._ready[name] = engine.ready_at
            if engine.adopted:
                return []
            facts = {"url": engine.url, "load_s": engine.load_s, "nodes": list(engine.nodes)}
            return [self._event(HookEventKind.READY, at, name, f"{name} is ready on {self._host}.", **facts)]
        if engine.state is EngineState.FAILED and before in (EngineState.READY, EngineState.DRAINING):
            failure = engine.failure
            why = failure.message if failure else "the reason is not known."
            text = why if why.startswith(f"{name} died") else f"{name} died: {why}"
            facts = {}
            if failure:
                facts = {"code": failure.code, "hint": failure.hint_for(name), "exit_code": failure.exit_code}
            return [self._event(HookEventKind.DIED, at, name, text, **facts)]
        return []

    def _of_swap(self, swap: Swap, at: float) -> list[HookEvent]:
        facts: dict[str, Any] = {
            "target": swap.target,
            "evicted": list(swap.evict),
            "cause": swap.cause.value,
            "took_s": round(at - swap.started_at, 1),
        }
        if swap.outcome is SwapOutcome.DONE:
            came = [f"{swap.target} came"] if swap.target else []
            left = [f"{', '.join(swap.evict)} left"] if swap.evict else []
            return [self._event(HookEventKind.SWAP, at, swap.target, f"{'; '.join(came + left)}.", **facts)]
        if swap.outcome is SwapOutcome.FAILED and swap.target is not None and swap.failure is not None:
            failure = swap.failure
            facts |= {"code": failure.code, "hint": failure.hint_for(swap.target), "phase": failure.phase}
            text = f"{swap.target} did not come up: {failure.message}"
            return [self._event(HookEventKind.FAILED, at, swap.target, text, **facts)]
        return []

    def _of_nodes(self, nodes: dict[str, NodeState], at: float) -> list[HookEvent]:
        before, self._nodes = self._nodes, {name: node.status for name, node in nodes.items()}
        return [
            self._event(
                HookEventKind.NODE_LOST,
                at,
                None,
                f"The node {name} is not reachable: {node.reason or node.status}",
                node=name,
                status=node.status.value,
            )
            for name, node in nodes.items()
            if node.status in _LOST and before.get(name) is NodeStatus.REACHABLE
        ]

    def _of_alerts(self, alerts: tuple[ActiveAlert, ...], at: float) -> list[HookEvent]:
        before, self._alerts = self._alerts, {(one.figure, one.profile, one.node) for one in alerts}
        return [
            self._event(
                HookEventKind.ALERT, at, one.profile or None, one.text,
                figure=one.figure, value=one.value, limit=one.limit, unit=one.unit, node=one.node, since=one.since,
            )
            for one in alerts
            if (one.figure, one.profile, one.node) not in before
        ]  # fmt: skip


def example_event(kind: HookEventKind, host: str, at: float) -> HookEvent:
    """Build an event for trying a hook; its details say that it is one."""
    return HookEvent(
        event=kind,
        at=at,
        host=host,
        profile=None if kind is HookEventKind.NODE_LOST else "example",
        text=f"This is a trial of the hook for `{kind}`.",
        details={"trial": True},
    )


PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY")
"""Variables that programs need to find others, and to show something on the desktop."""
WORDS = 500
"""Bytes of a failing command's words, or of a webhook's answer, that are kept."""
_JSON = encode_headers([(b"Content-Type", b"application/json"), (b"User-Agent", b"sparkdash-hook")])


async def run_hook(hook: Hook, event: HookEvent, upstream: Upstream) -> None:
    """Run a hook for an event. Raises HostError `hook_failed`: it cannot be run, failed, or took too long."""
    body = event.model_dump_json().encode()
    try:
        async with asyncio.timeout(hook.timeout_s):
            if hook.url is not None:
                await _post(hook, body, upstream)
            else:
                await _command(hook, event, body)
    except TimeoutError:
        raise _failed(hook, f"took longer than {duration(hook.timeout_s)}") from None


async def _post(hook: Hook, body: bytes, upstream: Upstream) -> None:
    try:
        async with upstream.open("POST", hook.url or "", _JSON, body) as answer:
            said = await answer.read(WORDS)
            if answer.status >= 300:
                raise _failed(hook, f"answered {answer.status}: {said.decode('utf-8', 'replace')}")
    except UpstreamError as error:
        raise _failed(hook, f"did not answer: {error.message}") from None


async def _command(hook: Hook, event: HookEvent, body: bytes) -> None:
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    environment |= {"SPARKDASH_EVENT": event.event.value, "SPARKDASH_PROFILE": event.profile or ""}
    try:
        process = await begin_child(
            hook.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd="/",
        )
    except (OSError, ValueError) as error:
        raise _failed(hook, f"cannot be started: {getattr(error, 'strerror', None) or error}") from None
    try:
        said = await _spoken(process, body)
    finally:
        await end_child(process)
    if process.returncode:
        raise _failed(hook, f"ended with {process.returncode}: {said}")


async def _spoken(process: asyncio.subprocess.Process, body: bytes) -> str:
    """Give the command its input; return the beginning of its complaints once it has ended."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stderr is not None  # noqa: S101
    with suppress(ConnectionError, RuntimeError):  # the latter is uvloop's for a pipe whose reader is gone
        process.stdin.write(body)
        process.stdin.close()
    words = asyncio.create_task(_read(process.stderr), name="hook's words")
    try:
        # in Python 3.11 `wait` would also wait for children that hold the pipe
        while process.returncode is None:  # noqa: ASYNC110 - no event tells the end alone
            await asyncio.sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a child that stays would hold the pipe open
        return (await words).decode("utf-8", "replace").strip()
    finally:
        words.cancel()


async def _read(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while piece := await stream.read(4096):
        kept = (kept + piece)[:WORDS]
    return kept


def _failed(hook: Hook, what: str) -> HostError:
    return HostError(
        f"The hook {hook.name} {what.strip().rstrip('.')}.",
        code="hook_failed",
        hint="`sparkdash hooks test` runs it again and shows what it says.",
    )


AT_ONCE = 4
"""Hooks that run at the same time."""
WAITING = 64
"""Hooks that wait for their turn; further events are dropped, and the log says so."""


class HookDispatcher:
    """Runs hooks until cancelled. `hooks`: those of the settings that hold now."""

    def __init__(self, bus: Bus, upstream: Upstream, hooks: Callable[[], Sequence[Hook]]) -> None:
        self._bus = bus
        self._upstream = upstream
        self._hooks = hooks
        self._places = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        self._failing: set[Hook] = set()
        """Hooks whose failure was told, until they succeed."""

    async def run(self) -> None:
        """Listen until the bus ends; then wait for the hooks that run, as long as their limits allow."""
        subscription = self._bus.subscribe(samples=False, requests=False)
        finder = HookEventFinder(self._bus.snapshot)
        try:
            async for item in subscription:
                if isinstance(item, Snapshot):
                    finder.look(item)
                    continue
                for event in finder.events(item.fact, item.at):
                    self._begin(event)
            await asyncio.gather(*self._running)
        finally:
            subscription.leave()
            for task in self._running:
                task.cancel()

    def _begin(self, event: HookEvent) -> None:
        for hook in self._hooks():
            if not hook.wants(event.event, event.profile):
                continue
            if len(self._running) >= AT_ONCE + WAITING:
                LOG.warning("too many hooks wait; one is not run", hook=hook.name, hook_event=event.event.value)
                continue
            task = asyncio.create_task(self._run(hook, event), name=f"hook {hook.name}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, hook: Hook, event: HookEvent) -> None:
        async with self._places:
            try:
                await run_hook(hook, event, self._upstream)
            except SparkdashError as error:
                self._failed(hook, event, error)
            else:
                self._failing.discard(hook)
                LOG.info("a hook ran", hook=hook.name, hook_event=event.event.value)

    def _failed(self, hook: Hook, event: HookEvent, error: SparkdashError) -> None:
        LOG.warning("a hook failed", hook=hook.name, hook_event=event.event.value, why=error.message)
        if hook not in self._failing:
            self._failing.add(hook)
            self._bus.publish(Notice(level=Level.WARNING, code=error.code, text=error.text()))
