"""Dialect of any server that already speaks OpenAI's API at a URL. sparkdash neither starts nor stops it.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines import logs
from sparkdash.engines.adapter import HelpCommand, LaunchContext, MetricNames, Probes
from sparkdash.errors import ProfileError


def root(url: str) -> str:
    """Return the server's root: the URL before /v1, with which the base URLs of clients end."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class OpenAI:
    """Adapter of an attached server: has paths to probe, but no container and no log.

    `expositions` recognises the engine behind the server by its metrics.
    """

    kind = EngineKind.OPENAI
    managed = False
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({})
    probes = Probes(alive="/v1/models")
    death_words: tuple[bytes, ...] = ()  # which engine it is is not known
    metrics = MetricNames(path=None, recognised=False, started=())

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:  # noqa: ARG002 - the contract's
        """Raise ProfileError: an attached server is not started."""
        raise ProfileError(
            f"Profile {profile.name} stands for a server at {profile.url}, which sparkdash does not start.",
            code="not_managed",
            hint="Start it by its own means; sparkdash uses it as soon as it answers.",
        )

    def help(self, profile: Profile) -> HelpCommand | None:  # noqa: ARG002 - the contract's signature
        """Return None: sparkdash does not start the server."""
        return None

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the profile's name for the server's model; else the profile's names, until the server has listed its
        own.
        """
        if profile.model_id is not None:
            return (profile.model_id,)
        target = profile.models.get("target")
        return (target.ref,) if target else (profile.name, *profile.serves)

    def context(self, profile: Profile) -> int | None:
        """Configured context in tokens, from the profile."""
        return profile.context

    def speculation(self, profile: Profile) -> str | None:  # noqa: ARG002 - the contract's signature
        """Return None: the server does not report it."""
        return None

    def read_log(self, line: str) -> LoadProgress | None:  # noqa: ARG002 - the contract's signature
        """Return None: the server's log is not available."""
        return None

    def kv_dtype(self, lines: Sequence[str]) -> str | None:  # noqa: ARG002 - see EngineAdapter
        """Return None: the server's log is not available."""
        return None

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start, this engine's own causes first."""
        return logs.classify(lines, exit_code)
