"""Probe of nodes: reads what the checks declare from all boxes at once, one script per box."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkdash.doctor.nodes.pair import BoxReadings, NodeCheck, PairReadings, ReachTrial, TwoNodeProfile
from sparkdash.doctor.probe import read_within
from sparkdash.doctor.readings import Unreadable
from sparkdash.domain.node import Node
from sparkdash.errors import HostError, SparkdashError
from sparkdash.nodes.link.boxes import Box, ask_box
from sparkdash.nodes.link.shared_links import SharedLink
from sparkdash.settings import Settings

READINGS = ("sparkdash.doctor.nodes.remote_readings",)
REACH = ("sparkdash.doctor.nodes.remote_reach",)
READ_S = 40.0
"""Time limit of one box's readings, each of whose commands has 10 s."""
REACH_S = 5.0
EPHEMERAL = (32768, 60999)
"""Ports from which the kernel draws those of NCCL and Gloo (ip_local_port_range)."""
RAY = 6379
"""Port of Ray's head."""


@dataclass(frozen=True, kw_only=True)
class NodesProbe:
    """Boxes and sources of the readings."""

    settings: Settings
    here: Box
    nodes: Sequence[tuple[Node, Box]]
    profiles: Callable[[], Sequence[TwoNodeProfile]]
    """Profiles for several nodes."""

    async def look(self, checks: Sequence[NodeCheck]) -> tuple[PairReadings, ...]:
        """Read what these checks need; never raises for a box that cannot be asked."""
        profiles = await read_within("The profiles", self.profiles)
        sections = sorted({section for check in checks for section in check.reads})
        entries: list[tuple[Node | None, Box]] = [(None, self.here), *self.nodes]
        request = {"sections": sections, "images": _images(profiles), "runtime": self.settings.runtime}
        here, *others = await asyncio.gather(
            *(self._read(node, box, {**request, "peers": self._peers(box)}) for node, box in entries)
        )
        pairs = [PairReadings(here, other, profiles) for other in others]
        if any(check.connects for check in checks):
            boxes = {box.name: box for _, box in entries}
            pairs = [replace(pair, trials=await self._trials(pair, boxes)) for pair in pairs]
        return tuple(pairs)

    def _peers(self, box: Box) -> list[str]:
        """Addresses of all other boxes."""
        others = [each for each in (self.here, *(other for _, other in self.nodes)) if each is not box and each.facts]
        return [link.address for each in others if each.facts for link in each.facts.links if link.address]

    async def _read(self, node: Node | None, box: Box, request: dict[str, Any]) -> BoxReadings:
        if box.silent is not None:
            return BoxReadings(box.name, node, problem=box.silent, settings=self.settings)
        try:
            sections = await ask_box(box, READINGS, request, deadline_s=READ_S)
        except SparkdashError as error:
            return BoxReadings(box.name, node, box.facts, problem=error, settings=self.settings)
        return BoxReadings(box.name, node, box.facts, sections, settings=self.settings)

    async def _trials(self, pair: PairReadings, boxes: dict[str, Box]) -> tuple[ReachTrial, ...]:
        if pair.here.problem or pair.there.problem or not (links := pair.shared()):
            return ()
        here, there = boxes[pair.here.name], boxes[pair.there.name]
        back = SharedLink(links[0].there, links[0].here)
        return (await self._trial(here, there, links[0]), await self._trial(there, here, back))

    async def _trial(self, source: Box, target: Box, link: SharedLink) -> ReachTrial:
        """Connect from `source` (the near end of `link`) to listeners on `target`."""
        ends = {"ports": self._ports(), "seconds": REACH_S}
        listen = {**ends, "role": "listen", "address": link.there.address, "peer": link.here.address}
        connect = {**ends, "role": "connect", "address": link.here.address, "peer": link.there.address}
        limit = REACH_S + 15.0
        try:
            listened, called = await asyncio.gather(
                ask_box(target, REACH, listen, deadline_s=limit),
                ask_box(source, REACH, connect, deadline_s=limit),
            )
        except HostError as error:
            return ReachTrial(source.name, target.name, problem=error.message)
        return ReachTrial(source.name, target.name, _outcomes(called), _outcomes(listened))

    def _ports(self) -> list[int]:
        """A port of engines, Ray's, and two of those that the kernel draws."""
        drawn = random.sample(range(EPHEMERAL[0], EPHEMERAL[1] + 1), 2)
        return [random.randint(*self.settings.engine_ports), RAY, *drawn]  # noqa: S311 - no secret


def _images(profiles: Sequence[TwoNodeProfile] | Unreadable) -> list[str]:
    return [] if isinstance(profiles, Unreadable) else sorted({each.image for each in profiles if each.image})


def _outcomes(answer: dict[str, Any]) -> dict[int, str]:
    return {int(port): str(outcome) for port, outcome in answer["ports"].items()}
