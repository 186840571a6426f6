"""Remote service with OpenAI's API at a URL: a cloud, another box. Never started, stopped or watched. Pure."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.engines.rule import Hit, Rule, Severity
from sparkdash.errors import ProfileError

NEAR = frozenset({"localhost", "127.0.0.1", "::1"})


class Remote(EngineAdapter):
    """Adapter of a remote service: has a model name, but no container, probes, metrics or log."""

    kind = EngineKind.REMOTE
    title = "remote"
    managed = False
    # Most speak chat completions alone; one that speaks more says so in its profile (`protocols`).
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType(
        {ApiProtocol.RESPONSES: None, ApiProtocol.MESSAGES: None}
    )
    probes = Probes(alive="/models", models=None, chat=None)
    metrics = MetricNames(path=None, started=())
    usage_on_request = True
    keeps_responses = True

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        raise ProfileError(
            f"Profile {profile.name} stands for a service at {profile.url}, which nobody starts from here.",
            code="not_managed",
        )

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        return (profile.model_id or profile.name,)

    def rules(self) -> tuple[Rule, ...]:
        return RULES


def _in_clear(profile: Profile) -> Iterator[Hit]:
    address = urlsplit(profile.url or "")
    if profile.key_env and address.scheme == "http" and address.hostname not in NEAR:
        yield Hit(("url",), "sends the key and every prompt in clear text", "Write https://, or go through `ssh -L`.")


RULES = (
    Rule(
        "remote-in-clear",
        Severity.WARNING,
        "a remote service with a key is reached over http",
        "RFC 6750, section 5.3: bearer tokens only over TLS",
        _in_clear,
    ),
)

ENGINE = Remote()
