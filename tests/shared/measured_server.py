"""A launcher of the bench for a server of the test's own: nothing is started, and the box is not looked at."""

import json
from typing import Any

from sparkdash.bench.measure.arm_launcher import LaunchedArm
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.measured_engine import MeasuredEngine, attached_keys
from sparkdash.bench.measure.voids import BoxReading
from sparkdash.bench.results import Provenance
from sparkdash.bench.run import Arm
from sparkdash.engines import model_list


class OwnServer:
    """Measures the server at the URL that is the arm's profile, as an attached one."""

    def __init__(self, wire: BenchClient) -> None:
        self._wire = wire

    async def launch(self, arm: Arm, _: object) -> LaunchedArm:
        self._wire.url = arm.profile
        cards: dict[str, Any] = json.loads(await self._wire.get("/v1/models"))
        kind, model = model_list.engine_kind_of(cards), cards["data"][0]["id"]
        keys = await attached_keys(self._wire, model, arm.profile) if kind.is_external else None
        measured = MeasuredEngine(client=self._wire, kind=kind, model=model, engine_url=arm.profile, keys=keys)
        found = Provenance(profile=arm.profile, engine=kind.value)
        return LaunchedArm(measured, found, _unseen)


async def _unseen() -> BoxReading:
    return BoxReading()
