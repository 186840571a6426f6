"""Speeds of a plan's arms: seen by the daemon, measured in an earlier run, else published.

Owns: the order of these sources. Must not know: how a plan is printed, how an estimate is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from statistics import median

from sparkdash.bench import run_folder
from sparkdash.bench.judge.stats import geomean
from sparkdash.bench.plan import run_plan
from sparkdash.bench.plan.run_plan import KnownSpeeds
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Run
from sparkdash.client.client import AsyncClient
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError

EARLIER_RUNS = 30
"""Newest runs that are looked at."""


async def arm_speeds(run: Run, client: AsyncClient | None, world: Snapshot | None) -> dict[str, KnownSpeeds]:
    """Return the known speed of each arm and the time that its start takes."""
    seen: dict[str, KnownSpeeds] = {}
    if client is not None and world is not None:
        starts: dict[str, float | None] = {}
        for name in {arm.profile for arm in run.arms if arm.impossible is None}:
            figures = world.figures.get(name)
            starts[name] = (figures.load_s if figures else None) or (await client.plan(name=name)).expected_s or None
        seen = run_plan.speeds_of(run.arms, world, starts)
    return {arm.name: _completed(run, arm, seen.get(arm.name, KnownSpeeds())) for arm in run.arms}


def _completed(run: Run, arm: Arm, known: KnownSpeeds) -> KnownSpeeds:
    if known.decode_tok_s is None or known.launch_s is None or known.source == "published":
        known = _measured(run, arm, known)
    return known.replace(launch_s=0.0) if run.target == "url" else known


def _measured(run: Run, arm: Arm, known: KnownSpeeds) -> KnownSpeeds:
    """Take over what the newest earlier run measured of the arm."""
    for results, name in _earlier(run, arm):
        rates = [rate for one in results.samples if one.arm == name and (rate := one.decode_tok_s)]
        if rates:
            return KnownSpeeds(
                launch_s=_launch_s(results, name) if known.launch_s is None else known.launch_s,
                decode_tok_s=geomean(rates),
                source=f"measured in {results.run.id}",
            )
    return known


def _launch_s(results: Results, name: str) -> float | None:
    starts = [told for one in results.launches if one.arm == name and (told := one.provenance.startup_s)]
    return median(starts) if starts else None


def _earlier(run: Run, arm: Arm) -> Iterator[tuple[Results, str]]:
    """Yield earlier runs of the arm's profile, newest first, with its name there."""
    for place in islice(run_folder.list_runs(), EARLIER_RUNS):
        with contextlib.suppress(AdmissionError):
            found = run_folder.read_run(place)
            if name := _name_in(found, run, arm):
                yield run_folder.read_results(place), name


def _name_in(found: Run, run: Run, arm: Arm) -> str | None:
    if found.simulated is not run.simulated or found.model != run.model:
        return None
    return next(
        (one.name for one in found.arms if (one.profile, one.parameters) == (arm.profile, arm.parameters)), None
    )
