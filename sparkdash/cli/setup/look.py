"""Gathering of a `BoxState`: the doctor, the daemon, profiles, files on this box, other programs, clients.

Owns: where each fact comes from. Must not know: what is proposed from it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash import paths, settings
from sparkdash.discovery.found import Discovered, Step
from sparkdash.discovery.propose import BoxState
from sparkdash.units import GIB

if TYPE_CHECKING:
    from sparkdash.connect.recipe import GatewayTarget, Recipe
    from sparkdash.settings import Settings

_IMPORTED = re.compile(r"^# Imported from (\S+) \(")
PROGRAMS = {
    "claude-code": "claude",
    "copilot-cli": "copilot",
    "qwen-code": "qwen",
    "vscode": "code",
}
"""Programs of clients whose command has another name than the client."""


def look_at_box(model: str | None, steps: Collection[Step], ports: tuple[int, ...]) -> BoxState:
    """Gather what `propose` needs for these steps; nothing is changed.

    `ports`: loopback ports to look at for servers, besides the usual ones.

    Raises:
        ProfileError: the settings or the list of sources cannot be read.
    """
    from sparkdash.cli.local import box_bytes, make_runtime, profile_summaries, profiles_without_text
    from sparkdash.cli.profiles.local_files import local_stock
    from sparkdash.discovery.look import discover
    from sparkdash.sources.source_file import read_sources

    known = settings.load_settings()
    profiles, _ = profile_summaries()
    looks = bool({Step.ATTACH, Step.IMPORT, Step.SOURCES} & set(steps))
    own = paths.config_dir() / "profiles"
    running, simulated = _answering()
    return BoxState(
        discovered=asyncio.run(discover(own_port=known.port, further_ports=ports)) if looks else Discovered(),
        profiles=profiles,
        stock=local_stock(profiles, make_runtime(known), known),
        box_bytes=box_bytes(),
        reserve_bytes=int(known.reserve_gib * GIB),
        running=running,
        without_text=profiles_without_text(),
        simulated=simulated,
        own_files=frozenset(file.name for file in own.iterdir()) if own.is_dir() else frozenset(),
        origins=imported_files(own),
        sources=[source.name for source in read_sources()],
        service=_service() if Step.SERVICE in steps else None,
        clients=installed_clients(known) if Step.CLIENTS in steps else {},
        problems=_problems(known) if Step.BOX in steps else (),
        chosen=model,
    )


def imported_files(folder: Path) -> frozenset[str]:
    """Return the names of the files that the profiles in a folder were imported from, as their first lines say."""
    found = set()
    for file in folder.glob("*.yaml") if folder.is_dir() else ():
        try:
            with file.open(encoding="utf-8") as opened:
                origin = _IMPORTED.match(opened.readline(1000))
        except (OSError, UnicodeDecodeError):
            continue
        if origin:
            found.add(origin[1])
    return frozenset(found)


def _answering() -> tuple[str | None, bool]:
    """Return the profile that answers now, and whether the daemon simulates its engines."""
    from sparkdash.client.blocking import Client
    from sparkdash.errors import SparkdashError

    try:
        with Client() as client:
            world = client.state()
    except SparkdashError:
        return None, False
    return world.active.profile if world.active else None, world.daemon.simulated


def _service() -> bool | None:
    from sparkdash.errors import HostError
    from sparkdash.host import systemd, systemd_unit

    try:
        systemd.systemctl("show-environment")
    except HostError as error:
        if error.code == "no_user_manager":
            return None
    return (systemd.unit_folder() / systemd_unit.NAME).exists()


def _problems(known: Settings) -> tuple[str, ...]:
    """Return the names of the doctor's findings that keep engines from running."""
    import logging

    from sparkdash import log
    from sparkdash.cli.doctor import seen_daemon
    from sparkdash.doctor import Probe
    from sparkdash.doctor.nodes.registered import examine_all
    from sparkdash.domain.finding import Status

    log.configure(level=logging.ERROR)  # what NVML keeps from us is a finding, not a line in the log
    probe = Probe(settings=known, settings_problem=None, daemon=seen_daemon())
    here, _ = asyncio.run(examine_all(probe, ()))
    return tuple(one.name for one in here if one.status is Status.FAIL)


def installed_clients(known: Settings) -> Mapping[str, bool]:
    """Return the clients on this box that can be set up by file, and whether each is."""
    from sparkdash.connect.clients import RECIPES
    from sparkdash.connect.recipe import GatewayTarget

    target = GatewayTarget(f"http://127.0.0.1:{known.port}", "auto", None, None, sees=False)
    return {name: _names_gateway(recipe, target) for name, recipe in RECIPES.items() if _is_here(recipe, target)}


def _is_here(recipe: Recipe, target: GatewayTarget) -> bool:
    files = recipe.setup(target).files
    return bool(files) and all(file.path for file in files) and _is_installed(recipe.name)


def _is_installed(client: str) -> bool:
    return shutil.which(PROGRAMS.get(client, client)) is not None


def _names_gateway(recipe: Recipe, target: GatewayTarget) -> bool:
    """Whether one of the client's files holds the gateway's address."""
    for file in recipe.setup(target).files:
        try:
            if target.root in Path(str(file.path)).expanduser().read_text("utf-8"):
                return True
        except (OSError, UnicodeDecodeError):
            continue
    return False
