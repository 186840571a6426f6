"""Carrying out of one step of `sparkdash setup`, by the command that does the same alone.

Must not know: why a step is proposed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash import paths
from sparkdash.cli.output.screen import print_note, print_text
from sparkdash.discovery.found import Step
from sparkdash.discovery.propose import BoxState, Proposal, attached_profiles, taken_names
from sparkdash.errors import HostError, ProfileError

if TYPE_CHECKING:
    from sparkdash.discovery.found import FoundServer
    from sparkdash.domain.state import Snapshot


def carry_out(proposal: Proposal, state: BoxState, *, yes: bool) -> None:
    """Carry out one step. Raises SparkdashError, typer.Exit: as the command does."""
    match proposal.step:
        case Step.BOX:
            _show_box(proposal)
        case Step.ATTACH:
            _attach(proposal, state)
        case Step.IMPORT:
            _import(proposal)
        case Step.SOURCES:
            _add_sources(proposal)
        case Step.MODEL:
            _fetch_model(proposal, yes=yes)
        case Step.SERVICE:
            _install_service()
        case Step.CLIENTS:
            _connect(proposal, state, yes=yes)
        case Step.FIRST_TOKEN:
            _first_token(proposal.subjects[0])


def _show_box(proposal: Proposal) -> None:
    """Show the faults alone: the whole list is long, and they would scroll away."""
    from sparkdash.cli.doctor import doctor

    doctor(list(proposal.subjects))


def _attach(proposal: Proposal, state: BoxState) -> None:
    for path in write_attached(state.discovered.servers, proposal.subjects, taken_names(state.profiles)):
        print_note(f"Wrote {path}")


def write_attached(servers: Sequence[FoundServer], files: Collection[str], taken: Collection[str]) -> list[Path]:
    """Write those of the servers' profiles that `files` names into the owner's folder; return the new ones.

    Raises:
        ProfileError: code `unreadable`, a file cannot be written.
    """
    from sparkdash.catalog.yaml import yaml_writer

    folder = paths.config_dir() / "profiles"
    written = []
    for file, profile in attached_profiles(servers, taken):
        path = folder / file
        if file not in files or path.exists():
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as opened:
                opened.write(yaml_writer.dump(profile))
        except OSError as error:
            raise ProfileError(f"{path} cannot be written: {error.strerror}.", code="unreadable") from None
        written.append(path)
    return written


def _import(proposal: Proposal) -> None:
    from sparkdash.cli.profiles.import_export import import_profiles

    import_profiles(proposal.subjects[0], output=paths.config_dir() / "profiles")


def _add_sources(proposal: Proposal) -> None:
    from sparkdash.cli.profiles.sources import add_source

    for name in proposal.subjects:
        add_source(name)


def _fetch_model(proposal: Proposal, *, yes: bool) -> None:
    """Build the image where the step says so, which shows it and asks again, and pull the rest."""
    from sparkdash.cli.profiles.build import build
    from sparkdash.cli.profiles.pull import pull

    if any(command.startswith("sparkdash build ") for command in proposal.commands):
        build(proposal.subjects[0], yes=yes)
    pull(proposal.subjects[0])


def _install_service() -> None:
    from sparkdash.cli.daemon.service import install

    install()


def _connect(proposal: Proposal, state: BoxState, *, yes: bool) -> None:
    from sparkdash.cli.connect import connect
    from sparkdash.discovery.propose import first_profile

    chosen = first_profile(state)

    for name in proposal.subjects:
        connect(name, model=chosen[0].name if chosen else None, write=True, yes=yes)


def _first_token(profile: str) -> None:
    """Start the daemon if needed, swap to the profile, and ask it for one word."""
    from sparkdash.cli.engines.use import use
    from sparkdash.client.trial import attempt

    use(profile)
    world = asyncio.run(_world())
    key = os.environ.get("SPARKDASH_KEY", "").strip() or None
    trial = attempt(world.daemon.url.removesuffix("/v1"), key, "chat", profile)
    if not trial.text.strip():
        raise HostError(f"{profile} answered without a word.", code="no_text")
    simulated = " (SIMULATED)" if world.active and world.active.simulated else ""
    print_text(
        f"First token after {trial.first_s:.2f} s; {trial.model} said: {' '.join(trial.text.split())[:60]}{simulated}"
    )
    print_text(f"Clients use {world.daemon.url} with the model {profile!r}.")


async def _world() -> Snapshot:
    from sparkdash.client.client import AsyncClient

    async with AsyncClient() as client:
        return await client.state()
