"""Provision: image and weights of a start on the other nodes that it uses, copied from this box where they lack.

Owns: the copy as a part of the swap, and what is told of it. Must not know how anything is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from sparkdash.domain.copying import CopyItem, CopyPlan, CopyProgress
from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.event import Level
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import SwapPhase
from sparkdash.domain.text.copy_text import copy_share, copy_wait
from sparkdash.supervisor.swap.record import SwapRecord
from sparkdash.supervisor.tools import Shipper, Tools

TELL_S = 1.0
"""Seconds between two publications of the copy's progress."""


async def provide_nodes(
    tools: Tools, target: Profile, nodes: tuple[str, ...], record: SwapRecord, enter: Callable[[SwapPhase], None]
) -> None:
    """Copy to each other node what it lacks; the phase is entered only if there is something to do.

    On several nodes everything must be equal to what this box has; one node alone may have its own.

    Raises:
        HostError: image_missing, weights_missing (neither box has it); disk_full, node_unreachable and others.
    """
    others = [node for node in nodes if node != LOCAL]
    if tools.shipper is None or not others:
        return
    before, teller = record.swap.phase, _Teller(tools, record, enter)
    for node in others:
        plan = await tools.shipper.plan(
            target, node, alike=len(nodes) > 1, trust_names=True, on_progress=teller.progress
        )
        if plan.missing:
            await _copy(tools, tools.shipper, target, plan, teller)
    if record.swap.phase is SwapPhase.COPY:
        enter(before)


async def _copy(tools: Tools, shipper: Shipper, target: Profile, plan: CopyPlan, teller: _Teller) -> None:
    async with aclosing(shipper.copy(target, plan)) as reports:
        async for report in reports:
            teller.progress(report)
    for item in plan.missing:
        if item.replaces:
            tools.books.notice(Level.WARNING, "image_replaced", _replaced(item, plan.node), target.name)


def _replaced(item: CopyItem, node: str) -> str:
    return (
        f"{node} had another image under the name {item.name} ({(item.replaces or '')[:12]}); this box's took its "
        f"place. The other one stays there without a name: `podman image prune` on {node} removes it."
    )


class _Teller:
    """Publishes a copy's progress once a second, and at once when its step changes."""

    def __init__(self, tools: Tools, record: SwapRecord, enter: Callable[[SwapPhase], None]) -> None:
        self._clock = tools.clock
        self._record = record
        self._enter = enter
        self._told: tuple[object, ...] = ()
        self._at = float("-inf")

    def progress(self, report: CopyProgress) -> None:
        now, step = self._clock.monotonic(), (report.node, report.name, report.step)
        if step == self._told and now - self._at < TELL_S:
            return
        self._told, self._at = step, now
        self._enter(SwapPhase.COPY)
        self._record.waits(copy_wait(report))
        share = copy_share(report)
        self._record.progress(LoadProgress(stage="copy", fraction=share, detail=copy_wait(report)))
