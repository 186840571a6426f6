"""A sweep's profiles before a daemon: written for a measurement, read by the daemon, taken away again.

Owns: that order. Must not know: the file (bench/sweep_file.py), what is swept, how it is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sparkdash.bench.plan import sweep, sweep_file
from sparkdash.bench.run import Arm
from sparkdash.cli.output.screen import print_note
from sparkdash.client.client import AsyncClient
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, SparkdashError


@asynccontextmanager
async def sweep_arms(client: AsyncClient, profile_name: str, asked_for: str) -> AsyncIterator[tuple[Arm, ...]]:
    """The arms of a sweep. Their profiles lie in a file among the owner's, which the daemon has read; it goes when nothing
    came of it, however the context is left.

    Raises:
        AdmissionError: `sweep_invalid`; `sweep_unread`: the daemon has its profiles from elsewhere; `sweep_taken`.
        HostError: `sweep_unwritable`.
    """
    from sparkdash.catalog.catalog import nearest
    from sparkdash.catalog.yaml import yaml_writer

    asked = sweep.parse(asked_for)
    profile = await client.profile(name=profile_name)
    if not asked.is_set(profile):
        near = nearest(asked.name, asked.known(profile))
        guess = f" Did you mean {near[0]}?" if near else ""
        print_note(f"{profile.name} does not set {asked.name}: the sweep adds it.{guess}")
    family, arms = asked.family(profile), asked.arms(profile)
    with sweep_file.kept(family, yaml_writer.dump(asked.document(profile))) as file:
        try:
            await _read(client, arms, file)
            yield arms
        finally:
            if not sweep_file.wanted(family):
                await remove_sweep_profiles(client, arms)


def missing_sweep(arms: Sequence[Arm], world: Snapshot) -> tuple[str, str] | None:
    """The profile and the NAME=VALUES of a sweep whose profiles the daemon no longer has: another sweep of the same flag
    has a file of the same name."""
    asked = sweep.asked_for(arms)
    gone = any(world.profile(arm.profile) is None for arm in arms)
    return asked if asked and gone else None


async def remove_sweep_profiles(client: AsyncClient | None, arms: Sequence[Arm]) -> None:
    """A sweep's profiles go when nothing of it is missing, or when it never began; an engine of theirs goes with them."""
    families = {arm.profile.split("/", 1)[0] for arm in arms if arm.parameters}
    gone = [family for family in families if sweep_file.drop(family)]
    if gone and client is not None:
        with contextlib.suppress(SparkdashError):  # the daemon sees by itself, a little later, that they are gone
            for name in (await client.state()).engines.keys() & {arm.profile for arm in arms}:
                await client.stop(profile=name)
            await client.reload()


async def _read(client: AsyncClient, arms: Sequence[Arm], file: Path) -> None:
    read = await client.reload()
    if problems := [one for one in read.problems if file.name in one]:
        raise AdmissionError(f"The profile cannot be swept so: {problems[0]}", code="sweep_invalid")
    if not {arm.profile for arm in arms} <= {one.name for one in read.profiles}:
        raise AdmissionError(
            f"The daemon at {client.address} does not read the profiles in {file.parent}, where a sweep's are written.",
            code="sweep_unread",
            hint="It has another config folder, as every demo has: run this where it runs, with its SPARKDASH_CONFIG_DIR.",
        )
