"""Estimate of an arm's speed and start before either was seen, for the time in a plan.

Owns: the estimates and their sources. Must not know: HTTP, files.
Rule: an estimate is marked as one wherever it is shown, and no figure of a report rests on it.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkdash.bench.plan.run_plan import KnownSpeeds
from sparkdash.domain.profile import ProfileSummary
from sparkdash.units import GIB

BANDWIDTH = 232e9
"""Bytes per second that a read-bound kernel reaches on a GB10 (antirez/ds4, issue 773)."""
REACHED = 0.6
"""Share of that bandwidth that published decode rates reach: 0.52 to 0.78 for vLLM."""
START_S, START_S_PER_GIB = 60.0, 6.0
"""Start of an engine: published starts take 5 to 15 minutes for 70 to 115 GB."""
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)
_ACTIVE = re.compile(r"(?<![a-z])a(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)


def complete(known: KnownSpeeds, profile: ProfileSummary, others: Iterable[ProfileSummary]) -> KnownSpeeds:
    """Fill what is unknown of a profile: from its family's published rates, else from its size."""
    rate, source = known.decode_tok_s, known.source
    if rate is None:
        rate, source = _of_family(profile, others)
    if rate is None:
        rate, source = _by_size(profile), "estimated from the size of the weights"
    launch_s = known.launch_s if known.launch_s is not None else _start_s(profile)
    return KnownSpeeds(
        launch_s=launch_s,
        decode_tok_s=rate,
        source=source if rate is not None else None,
        estimated=known.estimated or known.decode_tok_s is None or known.launch_s is None,
    )


def _of_family(profile: ProfileSummary, others: Iterable[ProfileSummary]) -> tuple[float | None, str | None]:
    """Return the published rate of the profile's base, else of another variant."""
    family = profile.name.split("/", 1)[0]
    mine = [one for one in others if one.name.split("/", 1)[0] == family and one.published_decode_tok_s is not None]
    nearest = min(mine, key=lambda one: (one.name != family, one.name), default=None)
    return (nearest.published_decode_tok_s, f"published of {nearest.name}") if nearest else (None, None)


def _by_size(profile: ProfileSummary) -> float | None:
    """Return the rate at which the memory could deliver the weights of one token; None without a size."""
    share = _active_share(f"{profile.name} {profile.about}")
    if not profile.needs_bytes or share is None:
        return None
    return REACHED * BANDWIDTH / (profile.needs_bytes * share)


def _active_share(text: str) -> float | None:
    """Return the share of weights that a token reads, by the sizes in a name: 30B-A3B is a tenth, 27B all."""
    sizes = [float(one) for one in _SIZE.findall(text)]
    if not sizes:
        return None
    active = _ACTIVE.search(text)
    return min(1.0, float(active[1]) / max(sizes)) if active else 1.0


def _start_s(profile: ProfileSummary) -> float | None:
    return None if not profile.needs_bytes else START_S + START_S_PER_GIB * profile.needs_bytes / GIB
