"""Caps of the GPU's clock for a measurement: refused before anything starts, lifted at its end.

Owns: these two steps. Must not know: how a clock is capped (the daemon does), which launch has which cap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from sparkdash.bench.plan import clock_sweep
from sparkdash.bench.plan.sweep import Sweep
from sparkdash.bench.run import Arm
from sparkdash.client.client import AsyncClient
from sparkdash.domain.profile import Profile
from sparkdash.errors import AdmissionError, SparkdashError


async def permitted_arms(client: AsyncClient, asked: Sweep, profile: Profile) -> tuple[Arm, ...]:
    """Return the arms of a clock sweep that this box permits.

    Raises:
        AdmissionError: `sweep_invalid`; `clock_nodes`: the engine runs on several boxes.
        SparkdashError: driver or rights refuse a cap.
    """
    arms = clock_sweep.clock_arms(asked, profile.name)
    if profile.nodes > 1:
        raise AdmissionError(
            f"{profile.name} runs on {profile.nodes} boxes, and only the clock of this one could be capped.",
            code="clock_nodes",
        )
    for mhz in filter(None, map(clock_sweep.cap_mhz, arms)):
        await client.cap_clock(mhz=mhz, begin=False)
    return arms


async def lift_cap(client: AsyncClient, arms: Sequence[Arm]) -> None:
    """Lift the cap at the end of a clock sweep. A daemon that cannot be asked lifts it by itself."""
    if any(map(clock_sweep.is_clock_arm, arms)):
        with contextlib.suppress(SparkdashError):
            await client.cap_clock(mhz=None)
