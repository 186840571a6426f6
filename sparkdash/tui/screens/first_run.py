"""Base of the page that a newcomer meets: looks at the box while nothing runs, and takes the keys of its offers.

Owns: when the box is looked at, and what each key does. Must not know: how a box is looked at; the words, which
`lines.first_run` has.
Rule: the look runs beside the feed and after the first frame; no key waits for it.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import ClassVar

from textual import work
from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType

from sparkdash.errors import SparkdashError
from sparkdash.tui.first_run import RunningServer, fitting, on_disk
from sparkdash.tui.mirror import LinkState, View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.widgets.profiles import ProfileTable


class FirstRunPage(Page):
    """Page with the keys of a box where nothing runs. While an engine runs or loads the keys do nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "idle_profiles", "profiles that fit", show=False),
        Binding("a", "idle_attach", "attach the server that runs", show=False),
        Binding("c", "idle_copy", "copy a recipe", show=False),
        Binding("d", "idle_run('demo')", "simulated box", show=False),
        Binding("i", "idle_run('setup')", "set this box up", show=False),
    ]

    _looked = False
    _copied = -1
    """Index of the client whose recipe was copied last."""

    def show(self, view: View) -> None:
        """Draw the view; look at the box once, when nothing runs on it."""
        super().show(view)
        if not self._looked and self.is_current and _is_idle(view):
            self._looked = True
            self._look()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow the keys of the offers while the offers are shown."""
        if action.startswith("idle_"):
            return _is_idle(self.services.view)
        return super().check_action(action, parameters)

    def action_idle_profiles(self) -> None:
        """Open the profiles at the one to begin with: on disk, else the first that fits."""
        self._open_profiles()

    def action_idle_attach(self) -> None:
        """Make profiles of the models of the server that runs, and use the first."""
        server = self.services.view.idle.server
        if server is None:
            self.services.say("No other server was found on this box.")
        elif server.attached:
            self.services.orders.switch(server.profiles[0])
        else:
            self._attach_server(server)

    def action_idle_copy(self) -> None:
        """Copy the recipe of an installed client, of the next one when pressed again; without one, the address."""
        idle, view = self.services.view.idle, self.services.view
        clients = idle.found.clients if idle.found else ()
        if clients:
            self._copied = (self._copied + 1) % len(clients)
            self._copy_recipe(clients[self._copied])
        elif view.snapshot is not None:
            self.app.copy_to_clipboard(view.snapshot.daemon.url)
            self.services.say(f"Copied {view.snapshot.daemon.url}.")

    def action_idle_run(self, command: str) -> None:
        """Leave this screen to a command of sparkdash until it ends."""
        box = self.services.box
        if box is None:
            return
        try:
            with self.app.suspend():
                box.run_command(command)
        except SuspendNotSupported:
            self.services.say(f"This terminal cannot be left: type `sparkdash {command}` in another one.", bad=True)
            return
        self.app.refresh()
        self._look()

    @work(group="first look", exclusive=True)
    async def _look(self) -> None:
        """Learn what the box has, the quickest answer first; an answer that does not come leaves its offer out."""
        services, box = self.services, self.services.box
        idle = dataclasses.replace(services.view.idle, looking=True, can_run_commands=box is not None)
        services.set_idle(idle)
        with suppress(SparkdashError):
            idle = dataclasses.replace(idle, stock=(await services.link.shelf()).stock)
            services.set_idle(idle)
        snapshot = services.view.snapshot
        if box is not None and snapshot is not None:
            with suppress(SparkdashError):
                idle = dataclasses.replace(idle, found=await box.look(snapshot.profiles))
                services.set_idle(idle)
        with suppress(SparkdashError):  # the demo has no doctor
            idle = dataclasses.replace(idle, findings=(await services.link.doctor()).findings)
        services.set_idle(dataclasses.replace(idle, looking=False))

    @work(group="first look", exclusive=True)
    async def _attach_server(self, server: RunningServer) -> None:
        services = self.services
        if services.box is None:
            return
        try:
            names = await services.box.attach(server)
            await services.link.reload()
        except SparkdashError as error:
            services.say(f"{error.message} {error.hint or ''}".rstrip(), bad=True)
            return
        idle = services.view.idle
        if idle.found is not None:
            others = tuple(one for one in idle.found.servers if one is not server)
            attached = dataclasses.replace(server, attached=True)
            found = dataclasses.replace(idle.found, servers=(*others, attached))
            services.set_idle(dataclasses.replace(idle, found=found, looking=False))
        services.say(f"Profiles written: {', '.join(names)}.")
        services.orders.switch(server.profiles[0])

    @work(group="recipe", exclusive=True)
    async def _copy_recipe(self, client: str) -> None:
        services = self.services
        if services.box is None:
            return
        try:
            text = await services.box.recipe(client, self._first_profile())
        except SparkdashError as error:
            services.say(f"{error.message} {error.hint or ''}".rstrip(), bad=True)
            return
        self.app.copy_to_clipboard(text)
        services.say(f"Copied what {client} needs; `sparkdash connect {client} --write` writes it.")

    @work(group="first profile", exclusive=True)
    async def _open_profiles(self) -> None:
        first = self._first_profile() or self._first_that_fits()
        await self.app.switch_mode("profiles")
        for table in self.app.screen.query(ProfileTable):
            if first is not None:
                table.move_to(first)

    def _first_profile(self) -> str | None:
        """Return a profile that is ready here: of a server that runs, else with its weights on disk."""
        view = self.services.view
        server = view.idle.server
        if server is not None and server.attached:
            return server.profiles[0]
        found = on_disk(fitting(view.snapshot) or [], view.idle.stock) if view.snapshot else []
        return found[0].name if found else None

    def _first_that_fits(self) -> str | None:
        snapshot = self.services.view.snapshot
        found = fitting(snapshot) if snapshot else None
        return found[0].name if found else None


def _is_idle(view: View) -> bool:
    """Whether the offers are shown: a daemon answers, and no engine runs, loads or has just failed."""
    return view.snapshot is not None and view.link is LinkState.LIVE and view.engine is None and view.swap is None
