"""Look at this box for the dashboard's first screen: its state, and the steps of `sparkdash setup` without questions.

Owns: which parts of a setup the dashboard gets. Must not know: keys, lines, what is proposed and why.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence

from sparkdash import paths, settings
from sparkdash.cli.output.screen import print_note
from sparkdash.cli.setup.carry_out import write_attached
from sparkdash.cli.setup.look import imported_files, installed_clients
from sparkdash.discovery.found import LLAMA_SWAP, Discovered, FoundServer
from sparkdash.discovery.look import discover
from sparkdash.discovery.propose import attached_profiles, taken_names
from sparkdash.domain.profile import ProfileSummary
from sparkdash.tui.first_run import BoxFindings, RunningServer


class ThisBox:
    """Looks at the box of this process."""

    def __init__(self) -> None:
        self._servers: dict[str, FoundServer] = {}
        self._taken: frozenset[str] = frozenset()

    async def look(self, profiles: Sequence[ProfileSummary]) -> BoxFindings:
        """Look for servers, containers, configurations and clients; nothing is changed."""
        known = settings.load_settings()
        found, clients = await asyncio.gather(
            discover(own_port=known.port), asyncio.to_thread(installed_clients, known)
        )
        self._servers, self._taken = {one.url: one for one in found.servers}, taken_names(profiles)
        return BoxFindings(
            servers=tuple(_running_server(one, self._taken) for one in found.servers if one.models),
            containers=tuple(f"{one.name} ({one.program})" for one in found.containers),
            configuration=_configuration(found),
            clients=tuple(sorted(clients, key=lambda name: (clients[name], name))),
        )

    async def attach(self, server: RunningServer) -> tuple[str, ...]:
        """Write a profile for each model of a server; return the names."""
        found = self._servers[server.url]
        files = [f"{name}.yaml" for name in server.profiles]
        await asyncio.to_thread(write_attached, [found], files, self._taken)
        return server.profiles

    async def recipe(self, client: str, model: str | None) -> str:
        """Return what `sparkdash connect CLIENT` prints."""
        return await asyncio.to_thread(_recipe, client, model)

    def run_command(self, command: str) -> None:
        """Run `sparkdash COMMAND` in this terminal until it ends; Ctrl+C ends the command alone.

        What it printed stays until Enter is pressed; a demo that ended well has printed nothing to read.
        """
        print_note(f"sparkdash {command} starts here; the dashboard comes back when it ends.")
        before = signal.signal(signal.SIGINT, lambda *_: None)  # a function, unlike SIG_IGN, is not inherited
        try:
            done = subprocess.run([sys.executable, "-m", "sparkdash", command], check=False)
            if command != "demo" or done.returncode:
                print_note("\nPress Enter for the dashboard.")
                sys.stdin.readline()
        finally:
            signal.signal(signal.SIGINT, before)


def _running_server(found: FoundServer, taken: frozenset[str]) -> RunningServer:
    profiles = [str(profile["profile"]) for _, profile in attached_profiles([found], taken)]
    own = paths.config_dir() / "profiles"
    attached = all((own / f"{name}.yaml").exists() for name in profiles)
    return RunningServer(found.kind, found.url, tuple(profiles), attached)


def _configuration(found: Discovered) -> str | None:
    """Return llama-swap's file, while no profile was imported from it."""
    origins = imported_files(paths.config_dir() / "profiles")
    for one in found.files:
        if one.kind == LLAMA_SWAP and one.path.rpartition("/")[2] not in origins:
            return one.path
    return None


def _recipe(client: str, model: str | None) -> str:
    from sparkdash.cli.connect import target_of
    from sparkdash.connect.client_setup import setup_page
    from sparkdash.connect.clients import find_recipe

    chosen, target = find_recipe(client), target_of(model, None)
    return setup_page(chosen, chosen.setup(target), target)
