"""The dialect of the simulated engine: vLLM's surface, and a program of our own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines.adapter import HelpCommand, LaunchContext
from sparkdash.engines.dialects import vllm_surface
from sparkdash.engines.launch import argv, containers
from sparkdash.engines.logs import failures, loading

MODULE = "sparkdash.sim"


class Sim:
    """Starts `python -m sparkdash.sim` with its profile, and reads it as one reads vLLM."""

    kind = EngineKind.SIM
    managed = True
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({})
    probes = vllm_surface.PROBES
    death_words = vllm_surface.DEATH_WORDS
    metrics = vllm_surface.METRICS

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """See EngineAdapter. Made for the process runtime; no GPU is asked for."""
        words = [
            *containers.program(profile, (sys.executable, "-m", MODULE)),
            *("--port", str(launch.port), "--profile-json", _facts(profile)),
        ]
        return containers.build(profile, launch, words).replace(devices=())

    def help(self, profile: Profile) -> HelpCommand | None:  # noqa: ARG002 - the contract's signature
        """Return None: the simulator is a part of sparkdash."""
        return None

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """See EngineAdapter."""
        return argv.served_names(profile)

    def context(self, profile: Profile) -> int | None:
        """See EngineAdapter."""
        return vllm_surface.context(profile.args) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        """What the imitated profile's args say; else how many positions the simulation accepts at."""
        depth = len(profile.sim.acceptance) if profile.sim else 0
        return vllm_surface.speculation(profile.args) or (f"simulated k={depth}" if depth else None)

    def read_log(self, line: str) -> LoadProgress | None:
        """See EngineAdapter."""
        return loading.match_progress(line, vllm_surface.PHRASES)

    def kv_dtype(self, lines: Sequence[str]) -> str | None:  # noqa: ARG002 - see EngineAdapter
        """See EngineAdapter; it has no cache."""
        return None

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """See EngineAdapter."""
        return failures.classify(lines, exit_code)


def _facts(profile: Profile) -> str:
    """What the simulation goes by. The command line is printed in reports: what is as ever, or only tells of the profile, is left out."""
    return profile.model_dump_json(exclude_defaults=True, exclude={"about", "published", "silence", "source"})
