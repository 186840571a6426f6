"""Takeover: engines of an earlier daemon become ours, as soon as the runtime lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from sparkdash.domain.container import LABEL_PROFILE
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.decide.moves import Adopted
from sparkdash.supervisor.decide.records import SchedulerRecords
from sparkdash.supervisor.swap.adopt import (
    AGAIN_S,
    AdoptableEngine,
    Adoption,
    adopt_engine,
    find_engines,
    find_engines_again,
    is_in_books,
    remove_container,
    report_unadoptable,
)
from sparkdash.supervisor.swap.tasks import SwapTasks
from sparkdash.supervisor.tools import Tools


class Takeover:
    """Takes over engines of an earlier daemon; `tell` posts an Adoption that is found later."""

    def __init__(
        self,
        tools: Tools,
        *,
        records: SchedulerRecords,
        swaps: SwapTasks,
        stuck: Collection[str],
        adopted: Callable[[Adopted, Profile], None],
        tell: Callable[[Adoption], None],
    ) -> None:
        self._tools = tools
        self._records = records
        self._swaps = swaps
        self._stuck = stuck
        self._adopted = adopted
        self._tell = tell
        self._group: asyncio.TaskGroup | None = None
        self._is_looking = False
        """Whether a look is under way, or a task looks again."""
        self._is_late = False
        self._unknown: frozenset[str] = frozenset()
        """Containers that an earlier daemon left, whose profiles may be in files that cannot be read."""

    async def look(self, group: asyncio.TaskGroup) -> bool:
        """Take engines over now, or later if the runtime fails; two looks at a time would find the same engine."""
        self._group = group
        self._is_looking = True
        try:
            self.take_over(await find_engines(self._tools, self._stuck))
        except SparkdashError as error:
            text = f"Engines that may run already are not known yet: {error.text()}"
            self._tools.registry.notice(Level.ERROR, error.code, text)
            self._look_later()
            return False
        return True

    def catalog_read(self) -> None:
        """Look again where the profiles of unknown engines may be readable now."""
        if self._unknown and not self._is_looking and self._group:
            self._look_later()

    def look_again(self) -> None:
        """Look once more: a node that was silent may have engines of an earlier daemon."""
        if self._is_looking:
            self._is_late = True
        elif self._group:
            self._look_later(0.0)

    def take_over(self, adoption: Adoption) -> None:
        """Make the engines ours. An engine that was started meanwhile has replaced the one of its profile."""
        self._is_looking = False
        self._leave_unknown(adoption)
        for found in adoption.ready:
            name = found.profile.name
            if name not in self._records.residents and name not in self._records.swaps:
                adopt_engine(self._tools, found)
                self._adopted(Adopted(name, found.profile.fingerprint, nodes=found.container.nodes), found.profile)
        if self._is_late:
            self._is_late = False
            self.look_again()
        busy = bool(self._records.swaps)
        for late in adoption.loading:
            if not busy and late.profile.name not in self._records.residents:
                self._swaps.resumes = late
                move = Adopted(late.profile.name, late.profile.fingerprint, ready=False, nodes=late.container.nodes)
                self._adopted(move, late.profile)
            else:
                self._remove_replaced(late)

    async def end_unadopted(self, name: str | None) -> None:
        """End the engine that was not adopted because its profile cannot be read; None: all such engines."""
        registry = self._tools.registry
        for profile, container in list(registry.unadopted.items()):
            if name in (None, profile) and await remove_container(self._tools, container, "it was to be stopped"):
                registry.forget_unadopted(profile)
        self._tools.guarded.refresh()

    def _remove_replaced(self, late: AdoptableEngine) -> None:
        container = late.container
        if not is_in_books(self._tools, container) and not self._swaps.continues(container.name):
            work = remove_container(self._tools, container, "another engine is being started")
            self._running().create_task(work, name=f"remove {container.name}")

    def _leave_unknown(self, adoption: Adoption) -> None:
        for container in adoption.unknown:
            if container.name not in self._unknown:
                report_unadoptable(self._tools, container, adoption.problems)
        self._unknown = frozenset(container.name for container in adoption.unknown)
        self._tools.registry.leave_unadopted(
            {each.labels.get(LABEL_PROFILE, each.name): each for each in adoption.unknown}
        )
        if self._unknown and adoption.problems != self._tools.catalog.problems:  # read during the look
            self._look_later()

    def _look_later(self, pause_s: float = AGAIN_S[0]) -> None:
        self._is_looking = True
        self._running().create_task(self._look_after(pause_s), name="look again")

    async def _look_after(self, pause_s: float) -> None:
        self._tell(await find_engines_again(self._tools, self._stuck, first_pause_s=pause_s))

    def _running(self) -> asyncio.TaskGroup:
        assert self._group  # noqa: S101 - `look` comes first
        return self._group
