"""Processes of simulated engines on one simulated box of several.

Owns: on which box a process claims memory. All boxes are this one: ports are shared, and nothing is forwarded.
"""

from __future__ import annotations

from pathlib import Path

from sparkdash.domain.container import ContainerInfo, ContainerSpec, Leftovers
from sparkdash.host.processes.process import Process
from sparkdash.sim.process.memory_claims import FOLDER_VARIABLE, HEAD_FOLDER_VARIABLE


class NodeProcess(Process):
    """Runtime of one simulated box. `claims` is the box's folder of claims, `head_claims` the one of the box that
    serves.
    """

    def __init__(self, folder: Path, claims: Path, head_claims: Path) -> None:
        super().__init__(folder)
        self._env = {FOLDER_VARIABLE: str(claims), HEAD_FOLDER_VARIABLE: str(head_claims)}

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Start a process that claims memory on this box. See Process."""
        return await super().start(spec.replace(env={**spec.env, **self._env}))

    async def settle(self, owner: str) -> Leftovers:  # noqa: ARG002 - the protocol's
        """End nothing: the owner's processes without a record here run on the other simulated boxes."""
        return Leftovers()
