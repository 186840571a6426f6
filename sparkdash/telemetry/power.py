"""Energy out of samples of the power, and a GB10's stuck low-power state.

Stuck, on owners' boxes: 96 % busy at 799 MHz and 19.5 W with no throttle reason. Unplugging the power supply brought
2281 MHz, 92.5 W and 1.7 times the decode rate; a reboot did not help (model-serving-minefield trap 124; NVIDIA forum
threads 376039, 361294, 366590). Healthy under load is 2.2-2.5 GHz and 50-95 W.

A hung kernel shows 96 % utilization, so only the power tells it from work. A GB10 idles at 3-12 W, waits in a hung
kernel at 13-27 W, and decodes at 45 W and more (vLLM issues #40926 and #49203, model-serving-minefield). Other GPUs
differ by a factor of ten. None of this is verified on a GB10 of our own. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparkdash.domain.metric import Energy, Gpu
from sparkdash.units import number, percent

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


BUSY = 0.9
SLOW_MHZ = 1400.0
LOW_W = 30.0
LASTS_S = 30.0
"""Duration for which all readings must show the state: a single one may fall between two kernels."""

CURE = "Unplug the power supply at both ends for a minute; a reboot does not help."


def shows_low_power(gpu: Gpu) -> bool:
    """Whether one reading shows the state; False if a figure is missing or a throttle reason is given."""
    if gpu.utilization is None or gpu.sm_clock_mhz is None or gpu.power_w is None:
        return False
    return gpu.utilization >= BUSY and gpu.sm_clock_mhz < SLOW_MHZ and gpu.power_w < LOW_W and not gpu.throttle


def is_stuck(looks: Sequence[Gpu]) -> bool:
    return len(looks) > 1 and all(map(shows_low_power, looks))


def describe_gpu(gpu: Gpu) -> str:
    """Word the evidence: "96 % busy, 799 MHz, 19.5 W, held back by nothing"."""
    held = ", ".join(gpu.throttle) or "nothing"
    return (
        f"{percent(gpu.utilization)} busy, {number(gpu.sm_clock_mhz, 0, ' MHz')}, {number(gpu.power_w, 1, ' W')},"
        f" held back by {held}"
    )


class LowPowerDetector:
    """Detects the state over readings: `stuck` once all have shown it for LASTS_S, until one does not."""

    def __init__(self) -> None:
        self.stuck = False
        self._since: float | None = None

    def see(self, at: float, gpu: Gpu | None) -> bool:
        """Add a reading of this moment (monotonic seconds); return whether `stuck` changed. None changes nothing."""
        if gpu is None:
            return False
        before = self.stuck
        if not shows_low_power(gpu):
            self._since = None
        elif self._since is None:
            self._since = at
        self.stuck = self._since is not None and at - self._since >= LASTS_S
        return self.stuck is not before


def low_power_w(name: str | None) -> float | None:
    """Power below which the GPU of that name computes nothing; None while unknown."""
    return LOW_W if name is not None and "GB10" in name else None
