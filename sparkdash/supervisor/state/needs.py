"""Needs: the memory that a launch takes; the one place that is asked.

A figure learned on this box goes before an estimate; an estimate starts from what the profile declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from sparkdash.catalog.checkpoint import weights
from sparkdash.domain import memory
from sparkdash.domain.memory import Footprint, Need
from sparkdash.domain.profile import Profile
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.registry import adapter_of, estimate_launch
from sparkdash.engines.roofline import most_steps_s

LOG = structlog.get_logger("sparkdash.needs")


class Needs:
    """Answers at once, from memory; weights are read only by `read`, in a thread."""

    def __init__(
        self, learned: Callable[[str], Footprint | None], hf_home: Path, box_bytes: Callable[[], int | None]
    ) -> None:
        self._learned = learned
        self._hf_home = hf_home
        self._box_bytes = box_bytes
        self._estimates: dict[str, Need] = {}
        self._targets: dict[str, WeightFacts] = {}
        self._most_steps: dict[str, float | None] = {}
        """Ceiling of the decode steps per second, by fingerprint."""

    def __call__(self, profile: Profile) -> Need:
        """Return the need of this launch; unknown terms are None."""
        if seen := self._learned(profile.fingerprint):
            return memory.learned_need(seen)
        found = self._estimates.get(profile.fingerprint)
        return found or self._estimates.setdefault(profile.fingerprint, estimate_launch(profile, {}, self._box_bytes()))

    def target(self, profile: Profile) -> WeightFacts | None:
        return self._targets.get(profile.fingerprint)

    def most_steps_s(self, profile: Profile) -> float | None:
        """Return the most decode steps per second of one sequence; None until the weights are read."""
        return self._most_steps.get(profile.fingerprint)

    async def read(self, profiles: Iterable[Profile]) -> None:
        estimates, targets, most_steps = await asyncio.to_thread(self._read, list(profiles))
        self._estimates |= estimates
        self._targets |= targets
        self._most_steps |= most_steps

    def _read(
        self, profiles: Iterable[Profile]
    ) -> tuple[dict[str, Need], dict[str, WeightFacts], dict[str, float | None]]:
        box, found, targets, most_steps = self._box_bytes(), {}, {}, {}
        for profile in profiles:
            try:
                facts = weights.read_profile_weights(profile, self._hf_home)
                found[profile.fingerprint] = estimate_launch(profile, facts, box)
                if isinstance(target := facts.get("target"), WeightFacts):
                    targets[profile.fingerprint] = target
                    speculation = adapter_of(profile).speculation(profile)
                    most_steps[profile.fingerprint] = most_steps_s(facts, speculation, profile.nodes)
            except Exception:  # an unexpected file must not end the daemon
                LOG.exception("the weights could not be read", profile=profile.name)
        return found, targets, most_steps
