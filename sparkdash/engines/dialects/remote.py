"""The dialect of a service elsewhere that speaks OpenAI's API: a cloud, or another box. Nothing of it is here.

It differs from `openai` in that nobody looks whether it is there: it has no engine, takes no turn and is asked when it is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines.adapter import HelpCommand, LaunchContext, MetricNames, Probes
from sparkdash.engines.logs import failures
from sparkdash.errors import ProfileError


class Remote:
    """Knows what its model is called there; has no container, no probes, no metrics and no log."""

    kind = EngineKind.REMOTE
    managed = False
    # Most speak chat completions alone; one that speaks more says so in its profile (`protocols`).
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType(
        {ApiProtocol.RESPONSES: None, ApiProtocol.MESSAGES: None}
    )
    probes = Probes(alive="/models", models=None, chat=None)
    death_words: tuple[bytes, ...] = ()  # nobody here can end or start it
    metrics = MetricNames(path=None, started=())

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:  # noqa: ARG002 - the contract's signature
        """Raises ProfileError: there is nothing to start."""
        raise ProfileError(
            f"Profile {profile.name} stands for a service at {profile.url}, which nobody starts from here.",
            code="not_managed",
        )

    def help(self, profile: Profile) -> HelpCommand | None:  # noqa: ARG002 - the contract's signature
        """Return None: sparkdash does not start the service."""
        return None

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """The one name that the service knows."""
        return (profile.model_id or profile.name,)

    def context(self, profile: Profile) -> int | None:
        """See EngineAdapter."""
        return profile.context

    def speculation(self, profile: Profile) -> str | None:  # noqa: ARG002 - the contract's signature
        """None: the service does not tell."""
        return None

    def read_log(self, line: str) -> LoadProgress | None:  # noqa: ARG002 - the contract's signature
        """None: there is no log."""
        return None

    def kv_dtype(self, lines: Sequence[str]) -> str | None:  # noqa: ARG002 - the contract's signature
        """None: there is no log."""
        return None

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """See EngineAdapter."""
        return failures.classify(lines, exit_code)
