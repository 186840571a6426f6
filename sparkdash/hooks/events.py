"""Hook events: what the owner's hooks are told, found in the facts of the bus.

Owns: which fact is which event, each once, and the event's JSON. Must not know how a hook is run.

Pure.
"""

from __future__ import annotations

from typing import Any

from sparkdash.domain.base import Frozen
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import (
    ActiveAlert,
    AlertsChanged,
    EngineChanged,
    Fact,
    GuardChanged,
    NodesChanged,
    SwapChanged,
)
from sparkdash.domain.memory import Guard, GuardKill
from sparkdash.domain.node import NodeState, NodeStatus
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap, SwapOutcome
from sparkdash.settings import HookEventKind

_LOST = frozenset({NodeStatus.UNREACHABLE, NodeStatus.REFUSED})
_SERVED = frozenset({EngineState.READY, EngineState.DRAINING})


class HookEvent(Frozen):
    """An event, as a hook reads it. Times are Unix seconds."""

    event: HookEventKind
    at: float
    host: str
    profile: str | None = None
    text: str
    """Sentence for people."""
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
        """Return the events in a fact that was published at `at`."""
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
        return [self._of_kill(kill, at) for kill in new]

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
        if engine.state is EngineState.FAILED and before in _SERVED:
            why = _why(engine)
            text = why if why.startswith(f"{name} died") else f"{name} died: {why}"
            return [self._event(HookEventKind.DIED, at, name, text, **_failure(engine))]
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
            hint = failure.hint_for(swap.target)
            text = f"{swap.target} did not come up: {failure.message}"
            return [
                self._event(
                    HookEventKind.FAILED,
                    at,
                    swap.target,
                    text,
                    **facts,
                    code=failure.code,
                    hint=hint,
                    phase=failure.phase,
                )
            ]
        return []

    def _of_kill(self, kill: GuardKill, at: float) -> HookEvent:
        text = f"The memory guard killed {kill.profile}: {kill.reason}"
        return self._event(HookEventKind.KILLED, at, kill.profile, text, available_bytes=kill.available)

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


def _why(engine: Engine) -> str:
    return engine.failure.message if engine.failure else "the reason is not known."


def _failure(engine: Engine) -> dict[str, Any]:
    failure = engine.failure
    if failure is None:
        return {}
    return {"code": failure.code, "hint": failure.hint_for(engine.profile), "exit_code": failure.exit_code}


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
