"""Dialect of a service elsewhere that speaks OpenAI's API: a cloud, or another box.

Unlike an `openai` server, the service is never probed: it has no engine here, takes no place in the queue, and gets
exactly the requests that name it.
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


class Remote:
    """Adapter of a remote service: has a model name, but no container, probes, metrics or log."""

    kind = EngineKind.REMOTE
    managed = False
    # Most speak chat completions alone; one that speaks more says so in its profile (`protocols`).
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType(
        {ApiProtocol.RESPONSES: None, ApiProtocol.MESSAGES: None}
    )
    probes = Probes(alive="/models", models=None, chat=None)
    death_words: tuple[bytes, ...] = ()  # nobody here can end or start it
    metrics = MetricNames(path=None, started=())

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:  # noqa: ARG002 - the contract's
        """Raise ProfileError: a remote service is not started."""
        raise ProfileError(
            f"Profile {profile.name} stands for a service at {profile.url}, which nobody starts from here.",
            code="not_managed",
        )

    def help(self, profile: Profile) -> HelpCommand | None:  # noqa: ARG002 - the contract's signature
        """Return None: sparkdash does not start the service."""
        return None

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the single name that the service knows."""
        return (profile.model_id or profile.name,)

    def context(self, profile: Profile) -> int | None:
        """Configured context in tokens, from the profile."""
        return profile.context

    def speculation(self, profile: Profile) -> str | None:  # noqa: ARG002 - the contract's signature
        """Return None: the service does not report it."""
        return None

    def read_log(self, line: str) -> LoadProgress | None:  # noqa: ARG002 - the contract's signature
        """Return None: the service has no log here."""
        return None

    def kv_dtype(self, lines: Sequence[str]) -> str | None:  # noqa: ARG002 - the contract's signature
        """Return None: the service has no log here."""
        return None

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start, this engine's own causes first."""
        return logs.classify(lines, exit_code)
