"""EnergyMeter: energy out of samples of the power, and its share for each of those who used it.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparkdash.domain.metric import Energy

GAP_S = 60.0
"""Longest pause between two samples that is integrated; the longest usual one is 15 s."""
JOULES_PER_WH = 3600.0
GPU_ONLY = "GPU only"
"""Name of NVML's power: the rest of the box (CPU, memory, link, fans) is not in it."""
WHOLE_BOX = "whole box"
"""Name of the power by a sensor of the board."""


class Power(NamedTuple):
    """Power at one moment, and the name of its sensor."""

    watts: float
    sensor: str = GPU_ONLY


class EnergyUse(NamedTuple):
    """Use of the box by one request between two samples, in monotonic seconds."""

    since: float
    until: float
    tokens: float
    """Tokens that the request got between the samples; 0 while its prompt is computed."""


class EnergyMeter:
    """Energy since the first sample, by the trapezoidal rule."""

    def __init__(self) -> None:
        self._sensor = GPU_ONLY
        self._since: float | None = None
        self._before: tuple[float, Power | None] | None = None
        self._busy_j = self._idle_j = self._unknown_s = 0.0

    @property
    def energy(self) -> Energy | None:
        """Energy so far; None while the power was never known."""
        if self._since is None:
            return None
        return Energy(
            sensor=self._sensor,
            since=self._since,
            busy_wh=self._busy_j / JOULES_PER_WH,
            idle_wh=self._idle_j / JOULES_PER_WH,
            unknown_s=self._unknown_s,
        )

    def add(
        self, now: float, unix: float, power: Power | None, users: Mapping[str, EnergyUse], *, busy: bool = False
    ) -> dict[str, float] | None:
        """Add a sample; return the joules of each user, None where unknown. `busy`: an engine works for others."""
        before, self._before = self._before, (now, power)
        if power is not None:
            self._sensor = power.sensor
            self._since = unix if self._since is None else self._since
        if before is None:
            return None
        began, was = before
        seconds = now - began
        if power is None or was is None or was.sensor != power.sensor or not 0 < seconds <= GAP_S:
            self._unknown_s += max(seconds, 0.0) if self._since is not None else 0.0
            return None
        joules = (was.watts + power.watts) / 2 * seconds
        share = 1.0 if busy else _busy_share(users, began, now)
        self._busy_j += joules * share
        self._idle_j += joules * (1.0 - share)
        return _divided(joules * _busy_share(users, began, now), users, began, now)

    def since_sample(self, now: float) -> float | None:
        """Return the joules since the last sample, at its power; None where it is unknown or too old."""
        if self._before is None or self._before[1] is None or not 0 <= now - self._before[0] <= GAP_S:
            return None
        return self._before[1].watts * (now - self._before[0])


def _busy_share(users: Mapping[str, EnergyUse], began: float, now: float) -> float:
    """Share of the time from the first user's begin to the last one's end."""
    if not users:
        return 0.0
    first, last = min(each.since for each in users.values()), max(each.until for each in users.values())
    return max(0.0, min(last, now) - max(first, began)) / (now - began)


def _divided(joules: float, users: Mapping[str, EnergyUse], began: float, now: float) -> dict[str, float]:
    """Divide by tokens; a user without any (its prompt is computed) counts as the mean of the others, by its time."""
    told = [each.tokens for each in users.values() if each.tokens > 0]
    mean = sum(told) / len(told) if told else 1.0

    def weight(user: EnergyUse) -> float:
        return user.tokens or mean * max(0.0, min(user.until, now) - max(user.since, began)) / (now - began)

    weights = {name: weight(user) for name, user in users.items()}
    total = sum(weights.values())
    return {name: joules * each / total for name, each in weights.items()} if total > 0 else dict.fromkeys(users, 0.0)
