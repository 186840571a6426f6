"""Own box for `sparkdash setup` and the dashboard's first screen: what is here, and the steps that set it up."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash import paths, settings
from sparkdash.cli.output import print_note, print_text
from sparkdash.discovery.found import LLAMA_SWAP, Discovered, FoundServer, SetupStep
from sparkdash.discovery.look import discover
from sparkdash.discovery.propose import BoxState, StepProposal, attached_profiles, taken_names
from sparkdash.domain.profile import ProfileSummary
from sparkdash.errors import HostError, ProfileError, SparkdashError, writing
from sparkdash.paths import LARGE, PYTHON, read_small_text
from sparkdash.tui.first_run import BoxFindings, RunningServer
from sparkdash.units import GIB

if TYPE_CHECKING:
    from sparkdash.discovery.found import FoundServer
    from sparkdash.settings import Settings


def carry_out(proposal: StepProposal, state: BoxState, *, yes: bool) -> None:
    match proposal.step:
        case SetupStep.BOX:
            from sparkdash.cli.doctor import doctor

            doctor(list(proposal.subjects))  # the faults alone: the whole list is long, and they would scroll away
        case SetupStep.ATTACH:
            _attach(proposal, state)
        case SetupStep.IMPORT:
            from sparkdash.cli.profiles.import_export import import_profiles

            import_profiles(proposal.subjects[0], output=paths.config_dir() / "profiles")
        case SetupStep.MODEL:
            _fetch_model(proposal, yes=yes)
        case SetupStep.SERVICE:
            from sparkdash.cli.service import install_service

            install_service()
        case SetupStep.CLIENTS:
            _connect(proposal, state, yes=yes)
        case SetupStep.FIRST_TOKEN:
            _first_token(proposal.subjects[0])


def _attach(proposal: StepProposal, state: BoxState) -> None:
    for path in write_attached(state.discovered.servers, proposal.subjects, taken_names(state.profiles)):
        print_note(f"Wrote {path}")


def write_attached(servers: "Sequence[FoundServer]", files: Collection[str], taken: Collection[str]) -> list[Path]:
    """Write those of the servers' profiles that `files` names into the owner's folder; return the new ones."""
    from sparkdash.catalog import yaml12

    folder = paths.config_dir() / "profiles"
    written = []
    for file, profile in attached_profiles(servers, taken):
        path = folder / file
        if file not in files or path.exists():
            continue
        with writing(path, "unreadable", ProfileError):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml12.dump(profile), encoding="utf-8")
        written.append(path)
    return written


def _fetch_model(proposal: StepProposal, *, yes: bool) -> None:
    """Build the image where the step says so, which shows it and asks again, and pull the rest."""
    from sparkdash.cli.profiles.build import build
    from sparkdash.cli.profiles.pull import pull

    if any(command.startswith("sparkdash build ") for command in proposal.commands):
        build(proposal.subjects[0], yes=yes)
    pull(proposal.subjects[0])


def _connect(proposal: StepProposal, state: BoxState, *, yes: bool) -> None:
    from sparkdash.cli.connect import connect
    from sparkdash.discovery.propose import first_profile

    chosen = first_profile(state)
    for name in proposal.subjects:
        connect(name, model=chosen[0].name if chosen else None, write=True, yes=yes)


def _first_token(profile: str) -> None:
    from sparkdash.cli.use import use
    from sparkdash.client.client import Client
    from sparkdash.client.trial import attempt, what_it_said

    use(profile)
    with Client() as client:
        world = client.state()
    key = os.environ.get("SPARKDASH_KEY", "").strip() or None
    trial = attempt(world.daemon.url.removesuffix("/v1"), key, "chat", profile)
    simulated = " (SIMULATED)" if world.active and world.active.simulated else ""
    print_text(f"First token after {trial.first_s:.2f} s; {what_it_said(trial)}{simulated}")
    print_text(f"Clients use {world.daemon.url} with the model {profile!r}.")


_IMPORTED = re.compile(r"^# Imported from (\S+) \(")
PROGRAMS = {"claude-code": "claude", "copilot-cli": "copilot", "qwen-code": "qwen", "vscode": "code"}
"""Programs of clients whose command has another name than the client."""


def look_at_box(model: str | None, steps: Collection[SetupStep], ports: tuple[int, ...]) -> BoxState:
    """Gather what `propose` needs for these steps. `ports`: loopback ports to look at, besides the usual ones."""
    from sparkdash.cli.local import box_bytes, local_stock, make_runtime, profile_summaries, profiles_without_text
    from sparkdash.discovery.look import discover

    known = settings.load_settings()
    profiles, _ = profile_summaries()
    looks = bool({SetupStep.ATTACH, SetupStep.IMPORT} & set(steps))
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
        origins=imported_files(),
        service=_service() if SetupStep.SERVICE in steps else None,
        clients=installed_clients(known) if SetupStep.CLIENTS in steps else {},
        problems=_problems() if SetupStep.BOX in steps else (),
        chosen=model,
    )


def imported_files() -> frozenset[str]:
    """Return the names of the files that the owner's profiles were imported from."""
    folder, found = paths.config_dir() / "profiles", set()
    for file in folder.glob("*.yaml") if folder.is_dir() else ():
        with suppress(OSError, UnicodeDecodeError):
            if origin := _IMPORTED.match(read_small_text(file)):
                found.add(origin[1])
    return frozenset(found)


def _answering() -> tuple[str | None, bool]:
    from sparkdash.client.client import Client

    try:
        with Client() as client:
            world = client.state()
    except SparkdashError:
        return None, False
    return world.active.profile if world.active else None, world.daemon.simulated


def _service() -> bool | None:
    from sparkdash.host import systemd

    try:
        systemd.systemctl("show-environment")
    except HostError as error:
        if error.code == "no_user_manager":
            return None
    return (systemd.unit_folder() / systemd.NAME).exists()


def _problems() -> tuple[str, ...]:
    from sparkdash.cli.doctor import probe_box
    from sparkdash.doctor.nodes.examine import examine_all
    from sparkdash.domain.node import Status

    here, _ = asyncio.run(examine_all(probe_box(), ()))
    return tuple(one.name for one in here if one.status is Status.FAIL)


def installed_clients(known: "Settings") -> Mapping[str, bool]:
    from sparkdash.connect.clients import RECIPES
    from sparkdash.connect.recipe import GatewayTarget

    target = GatewayTarget(f"http://127.0.0.1:{known.port}", "auto", None, None, sees=False)
    found = {}
    for name, recipe in RECIPES.items():
        files = [file.path for file in recipe.setup(target).files]
        if files and None not in files and shutil.which(PROGRAMS.get(name, name)):
            found[name] = any(_holds(Path(str(path)).expanduser(), target.root) for path in files)
    return found


def _holds(file: Path, text: str) -> bool:
    try:
        return text in read_small_text(file, LARGE)
    except (OSError, UnicodeDecodeError):
        return False


class ThisBox:
    """Looks at the box of this process."""

    def __init__(self) -> None:
        self._servers: dict[str, FoundServer] = {}
        self._taken: frozenset[str] = frozenset()

    async def look(self, profiles: Sequence[ProfileSummary]) -> BoxFindings:
        known = settings.load_settings()
        found, clients = await asyncio.gather(
            discover(own_port=known.port), asyncio.to_thread(installed_clients, known)
        )
        self._servers, self._taken = {one.url: one for one in found.servers}, taken_names(profiles)
        return BoxFindings(
            servers=tuple(_running_server(one, self._taken) for one in found.servers if one.models),
            configuration=_configuration(found),
            clients=tuple(sorted(clients, key=lambda name: (clients[name], name))),
        )

    async def attach(self, server: RunningServer) -> tuple[str, ...]:
        found = self._servers[server.url]
        files = [f"{name}.yaml" for name in server.profiles]
        await asyncio.to_thread(write_attached, [found], files, self._taken)
        return server.profiles

    async def recipe(self, client: str, model: str | None) -> str:
        return await asyncio.to_thread(_recipe, client, model)

    def run_command(self, command: str) -> None:
        """Run `sparkdash COMMAND` in this terminal until it ends; Ctrl+C ends the command alone.

        What it printed stays until Enter is pressed; a demo that ended well has printed nothing to read.
        """
        print_note(f"sparkdash {command} starts here; the dashboard comes back when it ends.")
        before = signal.signal(signal.SIGINT, lambda *_: None)  # a function, unlike SIG_IGN, is not inherited
        try:
            done = subprocess.run([*PYTHON, "-m", "sparkdash", command], check=False)
            if command != "demo" or done.returncode:
                print_note("\nPress Enter for the dashboard.")
                sys.stdin.readline()
        finally:
            signal.signal(signal.SIGINT, before)


def _running_server(found: "FoundServer", taken: frozenset[str]) -> RunningServer:
    profiles = [str(profile["profile"]) for _, profile in attached_profiles([found], taken)]
    own = paths.config_dir() / "profiles"
    attached = all((own / f"{name}.yaml").exists() for name in profiles)
    return RunningServer(found.kind, found.url, tuple(profiles), attached)


def _configuration(found: Discovered) -> str | None:
    """Return llama-swap's file, while no profile was imported from it."""
    origins = imported_files()
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
