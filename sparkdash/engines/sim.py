"""Dialect of the simulated engine: vLLM's surface on sparkdash's own program.

Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain.container import LABEL_HEAD, LABEL_NODES, ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines import argv, containers, logs
from sparkdash.engines.adapter import HelpCommand, LaunchContext
from sparkdash.engines.vllm import surface

MODULE = "sparkdash.sim"


class Sim:
    """Adapter of `python -m sparkdash.sim`, which looks like vLLM."""

    kind = EngineKind.SIM
    managed = True
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({})
    probes = surface.PROBES
    death_words = surface.DEATH_WORDS
    metrics = surface.METRICS

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the process of the simulation; the process runtime needs no GPU for it."""
        words = [
            *containers.program(profile, (sys.executable, "-m", MODULE)),
            *("--port", str(launch.port), "--profile-json", _facts(profile)),
        ]
        head = containers.build_container(profile, launch, words, rank=0).replace(devices=())
        return _placed(head, launch)

    def help(self, profile: Profile) -> HelpCommand | None:  # noqa: ARG002 - the contract's signature
        """Return None: the simulator is a part of sparkdash."""
        return None

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the names that the profile is served under."""
        return argv.served_names(profile)

    def context(self, profile: Profile) -> int | None:
        """Configured context in tokens, from the profile."""
        return surface.context(profile.args) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation of the imitated profile; else the number of simulated draft positions."""
        depth = len(profile.sim.acceptance) if profile.sim else 0
        imitated = profile.sim.speculation if profile.sim else None
        return imitated or surface.speculation(profile.args) or (f"simulated k={depth}" if depth else None)

    def read_log(self, line: str) -> LoadProgress | None:
        """Read the progress in one line of the start-up log."""
        return logs.match_progress(line, surface.PHRASES)

    def kv_dtype(self, lines: Sequence[str]) -> str | None:  # noqa: ARG002 - see EngineAdapter
        """Return None: the simulation has no KV cache."""
        return None

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start, this engine's own causes first."""
        return logs.classify(lines, exit_code)


def _placed(head: ContainerSpec, launch: LaunchContext) -> ContainerSpec:
    """Put the head on the launch's first node, and a worker on each further one."""
    if not launch.nodes:
        return head
    first, *others = launch.nodes
    labels = {**head.labels, LABEL_NODES: ",".join(node.name for node in launch.nodes)}
    workers = tuple(
        head.replace(
            name=f"{head.name}-worker{rank}", node=node.name, argv=(*head.argv, "--worker"),
            labels={**labels, LABEL_HEAD: head.name},
        )
        for rank, node in enumerate(others, 1)
    )  # fmt: skip
    return head.replace(node=first.name, labels=labels, workers=workers)


def _facts(profile: Profile) -> str:
    """Serialize the profile's facts for the simulation.

    Reports print the command line, so defaults and purely descriptive keys are left out.
    """
    return profile.model_dump_json(exclude_defaults=True, exclude={"about", "published", "silence", "source"})
