"""Plan: what a run will do, said before it does it.

Owns: the Run of a question, how much of it is left and how long that takes. Must not know: HTTP.
Rule: a time that cannot be known is None, and the words say so.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sparkdash import __version__, urls
from sparkdash.bench.judge.arm_comparison import Noise
from sparkdash.bench.plan.launch_order import launch_order
from sparkdash.bench.plan.suites import Suite
from sparkdash.bench.results import Gap, Results
from sparkdash.bench.run import Arm, CellKey, Host, Mode, Run
from sparkdash.client import address
from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError

SEED = 1
"""Of prompts and orders, unless another is given: equal in all runs, so that they can be set beside each other."""
PREFILL_RATIO = 40.0
"""A prompt token costs so much less time than a generated one, for the share of the work that is done; on this box 30 to
70 were published. No figure of a report rests on it."""


class KnownSpeeds(Frozen):
    """What is known of an arm before it is measured. Seconds and tok/s; None: nothing."""

    launch_s: float | None = None
    decode_tok_s: float | None = None
    source: str | None = None
    """Where the rate is from."""


def arms_of(names: Sequence[str], profiles: Mapping[str, ProfileSummary]) -> tuple[Arm, ...]:
    """One arm per word, a profile's exact name or a URL; a profile named twice is compared with itself (A/A).

    Raises:
        AdmissionError: `model_not_found`, `url_invalid`, `url_login`, or `cannot_run` when none of them can.
    """
    arms: list[Arm] = []
    for name in names:
        if "://" in name:
            _asked_at(name)
            arms.append(Arm(name=_unique(name, arms), profile=name))
            continue
        found = profiles.get(name)
        if found is None:
            raise AdmissionError(
                f"There is no profile {name!r}.", code="model_not_found", status=404, hint="`sparkdash profiles list`."
            )
        arms.append(Arm(name=_unique(name, arms), profile=name, impossible=found.cannot_run))
    if all(arm.impossible for arm in arms):
        first = arms[0]
        raise AdmissionError(f"{first.name} cannot run: {first.impossible}.", code="cannot_run")
    return tuple(arms)


def _asked_at(url: str) -> None:
    """Raises AdmissionError where no server could be asked, or where the folder and the reports would keep a password."""
    if not address.is_server(url):
        raise AdmissionError(
            f"{urls.shown(url)!r} is not a URL of a server.",
            code="url_invalid",
            hint="It looks like http://127.0.0.1:8000.",
        )
    if urls.has_login(url):
        raise AdmissionError(
            f"{urls.shown(url)} has a password in it, which would lie in the run's folder and in its reports.",
            code="url_login",
            hint="Give the address of the server itself.",
        )


def _unique(name: str, arms: Sequence[Arm]) -> str:
    number = sum(arm.profile == name for arm in arms)
    return f"{name} ({number + 1})" if number else name


def new_run(
    suite: Suite,
    arms: Sequence[Arm],
    mode: Mode,
    *,
    seed: int = SEED,
    reps: int | None = None,
    suite_file: str | None = None,
    target: str = "gateway",
    model: str | None = None,
    host: Host | None = None,
    simulated: bool = False,
    noise: Mapping[str, Noise] | None = None,
) -> Run:
    """What is asked; arms that cannot run are in it and have no launches."""
    now = datetime.now(UTC)
    able = [arm.name for arm in arms if arm.impossible is None]
    return Run(
        id=f"{now:%Y%m%d-%H%M%S}-{suite.suite}-{secrets.token_hex(2)}",
        suite=suite.suite,
        suite_version=suite.version,
        suite_hash=suite.hash,
        suite_file=suite_file,
        lengths=suite.lengths,
        arms=tuple(arms),
        baseline=able[0],
        mode=mode,
        seed=seed,
        created_at=now,
        order=launch_order(able, mode),
        cells=suite.planned(mode, reps),
        host=host or Host(),
        target=target,
        model=model,
        reps=reps,
        simulated=simulated,
        noise=dict(noise or {}),
        version=__version__,
    )


def is_same_question(run: Run, other: Run) -> bool:
    """Would `other` measure what `run` began?"""
    return all(
        getattr(run, name) == getattr(other, name)
        for name in ("suite_hash", "arms", "mode", "seed", "order", "cells", "target", "model", "baseline")
    )


def speeds_of(arms: Sequence[Arm], world: Snapshot, launch_s: Mapping[str, float | None]) -> dict[str, KnownSpeeds]:
    """By arm: what the daemon has seen of it, else what was published."""
    found = {}
    for arm in arms:
        seen = world.figures.get(arm.profile)
        summary = world.profile(arm.profile)
        rate, source = (seen.decode_tok_s, "seen here") if seen else (None, None)
        if rate is None and summary is not None and summary.published_decode_tok_s is not None:
            rate, source = summary.published_decode_tok_s, "published"
        found[arm.name] = KnownSpeeds(
            launch_s=launch_s.get(arm.profile), decode_tok_s=rate, source=source if rate else None
        )
    return found


def token_cost(key: CellKey, reps: int) -> float:
    """What repetitions of a cell cost, in generated tokens one after another; the warm-up counts as one more."""
    tokens = key.output + key.context / PREFILL_RATIO * key.concurrency
    return (reps + 1) * tokens * math.sqrt(key.concurrency)


def token_cost_left(gaps: Sequence[Gap]) -> float:
    """The same of all that is not measured."""
    return sum(token_cost(gap.cell, len(gap.reps)) for gap in gaps)


def expected_s(gaps: Sequence[Gap], speeds: Mapping[str, KnownSpeeds]) -> float | None:
    """Seconds that the gaps will take; None while an arm's speed or start is not known."""
    total = 0.0
    for arm in {gap.arm for gap in gaps}:
        mine = [gap for gap in gaps if gap.arm == arm]
        known = speeds.get(arm, KnownSpeeds())
        if known.decode_tok_s is None or known.launch_s is None:
            return None
        total += token_cost_left(mine) / known.decode_tok_s + known.launch_s * len({gap.launch for gap in mine})
    return total


def launches_left(results: Results) -> tuple[int, ...]:
    """Indices of the launches that still have something to measure, in order."""
    return tuple(sorted({gap.launch for gap in results.gaps()}))
