"""Temporary profiles of a sweep: written for the measurement, read by the daemon, removed afterwards.

Owns: the order of these steps. Must not know: the file (bench's sweep_file), what is swept, how it is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sparkdash.bench.plan import sweep, sweep_file
from sparkdash.bench.run import Arm
from sparkdash.cli.output import print_note
from sparkdash.client.client import AsyncClient
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, SparkdashError


@asynccontextmanager
async def sweep_arms(client: AsyncClient, profile_name: str, asked_for: str) -> AsyncIterator[tuple[Arm, ...]]:
    """Yield the arms of a sweep, with their profiles written to a file that the daemon has read.

    The file is removed when the run never began, however the context is left.

    Raises:
        AdmissionError: `sweep_invalid`; `sweep_unread`: the daemon reads profiles from another folder; `sweep_taken`.
        HostError: `sweep_unwritable`.
    """
    from sparkdash.catalog import yaml_writer
    from sparkdash.catalog.catalog import nearest

    asked = sweep.parse_sweep(asked_for)
    profile = await client.profile(name=profile_name)
    if not asked.is_set(profile):
        near = nearest(asked.name, asked.known(profile))
        guess = f" Did you mean {near[0]}?" if near else ""
        print_note(f"{profile.name} does not set {asked.name}: the sweep adds it.{guess}")
    family, arms = asked.family(profile), asked.arms(profile)
    with sweep_file.sweep_profiles(family, yaml_writer.dump(asked.document(profile))) as file:
        try:
            await _read(client, arms, file)
            yield arms
        finally:
            if not sweep_file.is_needed(family):
                await remove_sweep_profiles(client, arms)


def missing_sweep(arms: Sequence[Arm], world: Snapshot) -> tuple[str, str] | None:
    """Return profile and NAME=VALUES of a sweep whose profiles the daemon no longer has; else None.

    Another sweep of the same flag overwrites the file of the first.
    """
    asked = sweep.sweep_of(arms)
    gone = any(world.profile(arm.profile) is None for arm in arms)
    return asked if asked and gone else None


async def remove_sweep_profiles(client: AsyncClient | None, arms: Sequence[Arm]) -> None:
    """Remove the profiles of a finished or never begun sweep and stop their engines."""
    families = {arm.profile.split("/", 1)[0] for arm in arms if arm.swept}
    gone = [family for family in families if sweep_file.delete_sweep_file(family)]
    if gone and client is not None:
        with contextlib.suppress(SparkdashError):  # the daemon sees by itself, a little later, that they are gone
            for name in (await client.state()).engines.keys() & {arm.profile for arm in arms}:
                await client.stop(profile=name)
            await client.reload()


async def _read(client: AsyncClient, arms: Sequence[Arm], file: Path) -> None:
    read = await client.reload()
    if problems := [one for one in read.problems if file.name in one]:
        raise AdmissionError(f"The profile cannot be swept with these values: {problems[0]}", code="sweep_invalid")
    if not {arm.profile for arm in arms} <= {one.name for one in read.profiles}:
        raise AdmissionError(
            f"The daemon at {client.address} does not read the profiles in {file.parent}, where a sweep writes them.",
            code="sweep_unread",
            hint="The daemon uses another config folder, as every demo does. "
            "Run this on its box, with its SPARKDASH_CONFIG_DIR.",
        )
