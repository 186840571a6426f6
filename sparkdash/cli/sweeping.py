"""A sweep's profiles: a file of their own among the owner's, there for as long as something of the sweep is missing.

Owns: that file. Must not know: what is swept, or how it is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from sparkdash import paths
from sparkdash.bench import folder, sweep
from sparkdash.bench.run import Arm
from sparkdash.cli.screen import tell
from sparkdash.client.client import AsyncClient
from sparkdash.errors import AdmissionError


async def swept(client: AsyncClient, profile_name: str, asked_for: str) -> tuple[Arm, ...]:
    """The sweep's profiles, in a file of their own among the owner's, which the daemon reads.

    Raises:
        AdmissionError: `sweep_invalid`; `sweep_unread`: the daemon has its profiles from elsewhere.
    """
    from sparkdash.catalog import yaml_writer
    from sparkdash.catalog.catalog import nearest

    asked = sweep.parse(asked_for)
    profile = await client.profile(profile_name)
    if not asked.is_set(profile):
        near = nearest(asked.name, asked.known(profile))
        guess = f" Did you mean {near[0]}?" if near else ""
        tell(f"{profile.name} does not set {asked.name}: the sweep adds it.{guess}")
    arms, file = asked.arms(profile), _sweep_file(asked.family(profile))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml_writer.dump(asked.document(profile)), encoding="utf-8")
    read = await client.reload()
    problems = [one for one in read.problems if file.name in one]
    if not problems and {arm.profile for arm in arms} <= {one.name for one in read.profiles}:
        return arms
    file.unlink()
    if problems:
        raise AdmissionError(f"The profile cannot be swept so: {problems[0]}", code="sweep_invalid")
    raise AdmissionError(
        f"The daemon at {client.address} does not read the profiles in {file.parent}, where a sweep's are written.",
        code="sweep_unread",
        hint="It has another config folder, as every demo has: run this where it runs, with its SPARKDASH_CONFIG_DIR.",
    )


def _sweep_file(family: str) -> Path:
    return paths.config_dir() / "profiles" / f"{family}.yaml"


async def tidied(client: AsyncClient | None, arms: Sequence[Arm]) -> None:
    """A sweep's profiles go when nothing of it is missing, or when it never began."""
    files = {_sweep_file(arm.profile.split("/", 1)[0]) for arm in arms if arm.parameters}
    there = [file for file in files if file.exists()]
    for file in there:
        file.unlink()
    if there and client is not None:
        await client.reload()


def begun_with(arms: Sequence[Arm]) -> Path | None:
    """The newest run of these arms that still lacks something: it wants their profiles."""
    for place in folder.runs():
        with contextlib.suppress(AdmissionError):
            run = folder.read_run(place)
            if run.ended_at is None and any(arm in arms for arm in run.arms):
                return place
    return None
