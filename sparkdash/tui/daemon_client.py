"""DaemonClient: all that the dashboard asks of a daemon.

Rule: methods return values or raise SparkdashError.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from sparkdash.api.rows import read_answer
from sparkdash.client.client import AsyncClient
from sparkdash.client.follow import follow_feed
from sparkdash.domain.history import MEMORY
from sparkdash.errors import DaemonError
from sparkdash.tui.history import BOX_CHARTED, BOX_MEMORY, KEPT, MEMORY_KEPT, MEMORY_STEP_S, SHOWN, STEP_S
from sparkdash.tui.mirror import Disconnected, Item, RecordedPast

if TYPE_CHECKING:
    from sparkdash.bench.report.report import Report
    from sparkdash.bench.run import Run


T = TypeVar("T")


class DaemonClient(AsyncClient):
    """Client of one daemon. Make it inside a running loop. Every method may take seconds; none blocks."""

    async def feed(self) -> AsyncGenerator[Item, None]:
        """Yield a snapshot, then events for ever; Disconnected when the connection is lost.

        Raises:
            DaemonError: trying again will not help.
        """
        async with aclosing(follow_feed(self)) as items:
            async for item in items:
                yield Disconnected() if item is None else item

    async def recorded_past(self) -> RecordedPast:
        """Return what the daemon recorded of the last minutes. Raises SparkdashError, also of a daemon without it."""
        figures, memory = await asyncio.gather(
            self.history_recent(
                figure=[*(metric.value for metric in SHOWN), *BOX_CHARTED], seconds=STEP_S * KEPT, step_s=STEP_S
            ),
            self.history_recent(
                figure=[*BOX_MEMORY, MEMORY], seconds=MEMORY_STEP_S * MEMORY_KEPT, step_s=MEMORY_STEP_S
            ),
        )
        return RecordedPast(figures, memory)

    def follow_log(self, profile: str) -> AsyncGenerator[str, None]:
        return self.logs(name=profile, tail=1000, follow=True)

    async def runs(self) -> "tuple[Run, ...]":
        from sparkdash.bench.run import Run  # as the report

        return _parsed(TypeAdapter(tuple[Run, ...]), await self.measured_runs())

    async def report(self, run: str) -> "Report":
        """Return the report of one run; a large run takes seconds."""
        from sparkdash.bench.report.report import Report  # one page needs it, not every start

        return _parsed(TypeAdapter(Report), await self.run_report(run=run))


def _parsed(shape: TypeAdapter[T], body: bytes) -> T:
    try:
        return read_answer(shape, body)
    except ValidationError as error:
        raise DaemonError(
            "The daemon's list of runs cannot be read.",
            code="not_understood",
            hint="The daemon and this dashboard are of different versions: `sparkdash --version`.",
        ) from error
