"""Triggers of an engine's faults: at once, after some seconds, or after some tokens of one answer.

Owns: the fault that is still to come. Must not know what a fault does. A profile sets it with `fault`,
`fault_after_s` and `fault_after_tokens` of its `sim`; POST /sim/fault of the engine's own port sets another while
it serves: `{"fault": "frozen-core", "after_s": 5, "after_tokens": 20}`, each but the first optional; `{"fault":
null}` heals. With both, the fault begins at whichever comes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkdash.domain.profile import SimSpec
from sparkdash.errors import ProfileError
from sparkdash.sim.engine.faults import AT_START, Behaviour, behaviour
from sparkdash.sim.engine.refusals import RefusedError
from sparkdash.sim.engine.simulated_engine import SimulatedEngine
from sparkdash.sim.engine.timing import SimulationClock


@dataclass(frozen=True, slots=True)
class FaultRequest:
    """Fault to begin, and when. Without a time the fault's own default holds."""

    fault: str | None = None
    after_s: float | None = None
    after_tokens: float | None = None

    def behaviour(self) -> Behaviour:
        """Return the behaviour to begin.

        Raises:
            ProfileError: no such fault, or one that an engine has from its start or not at all.
        """
        if self.fault in AT_START:
            raise ProfileError(
                f"The fault {self.fault!r} cannot begin while the engine serves.",
                code="unknown_fault",
                hint="Set it as the profile's sim.fault, without fault_after_s and fault_after_tokens.",
            )
        return behaviour(self.fault)


def parse_fault_request(given: Mapping[str, Any]) -> FaultRequest:
    """Parse the body of POST /sim/fault. Raises RefusedError."""
    fault = given.get("fault")
    if not isinstance(fault, str | None):
        raise RefusedError("fault: the name of a fault, or null", param="fault")
    times = {name: given.get(name) for name in ("after_s", "after_tokens")}
    for name, value in times.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise RefusedError(f"{name}: a number", param=name)
    order = FaultRequest(fault, **times)
    try:
        order.behaviour()
    except ProfileError as error:
        raise RefusedError(error.text(), param="fault") from None
    return order


class FaultTrigger:
    """Begins the faults of one engine. `run` is its task, from the moment the engine serves."""

    def __init__(self, engine: SimulatedEngine, clock: SimulationClock, spec: SimSpec) -> None:
        """Raises ProfileError as `Order.behaviour` does; a fault of the start holds already."""
        self._engine = engine
        self._clock = clock
        self._scale = spec.time_scale
        self._pending: Behaviour | None = None
        self._order = FaultRequest(spec.fault, spec.fault_after_s, spec.fault_after_tokens)
        self._armed = asyncio.Event()
        engine.on_tokens = self._produced
        if self._order == FaultRequest(spec.fault) and spec.fault in AT_START:
            engine.change(behaviour(spec.fault))
        else:
            self.arm(self._order)

    def arm(self, order: FaultRequest) -> None:
        """Schedule a fault; null heals at once. Raises ProfileError as `FaultRequest.behaviour`."""
        coming = order.behaviour()
        if order.after_s is None and order.after_tokens is None:
            order = replace(order, after_tokens=coming.after_tokens)
        self._order = order
        if order.fault is None or (order.after_s is None and order.after_tokens is None):
            self._pending = None
            self._engine.change(coming)
        else:
            self._pending = coming
            self._armed.set()

    async def run(self) -> None:
        """Begin faults at their times, until cancelled."""
        while True:
            await self._armed.wait()
            self._armed.clear()
            order = self._order
            if order.after_s is not None:
                await self._clock.sleep_until(self._clock.now() + order.after_s / self._scale)
                if order is self._order:
                    self._begin()

    def _produced(self, tokens: int) -> None:
        if self._order.after_tokens is not None and tokens >= self._order.after_tokens:
            self._begin()

    def _begin(self) -> None:
        if self._pending is not None:
            coming, self._pending = self._pending, None
            self._engine.change(coming)
