"""The palette of commands."""

from __future__ import annotations

from contextlib import suppress

from textual import on
from textual.command import CommandPalette
from textual.widgets import Input
from textual.worker import WorkerCancelled, WorkerFailed


class Palette(CommandPalette):
    """Textual's palette, whose Enter waits for the commands that fit the typed words: the list is that of fewer words."""

    @on(Input.Submitted)
    def choose_once_found(self, event: Input.Submitted) -> None:
        event.stop()
        event.prevent_default()
        self.run_worker(self._choose_once_found())

    async def _choose_once_found(self) -> None:
        for worker in tuple(self.workers):
            if worker.node is self and worker.group == self._GATHER_COMMANDS_GROUP:
                with suppress(WorkerCancelled, WorkerFailed):
                    await worker.wait()
        self._select_or_command()
