"""Any server that already speaks OpenAI's API at a URL. sparkdash neither starts nor stops it. Pure."""

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.errors import ProfileError


def root(url: str) -> str:
    """Return the server's root: the URL before /v1, with which the base URLs of clients end."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class OpenAI(EngineAdapter):
    """Adapter of an attached server, without container and log; its metrics tell which engine it is."""

    kind = EngineKind.OPENAI
    title = "OpenAI API"
    managed = False
    probes = Probes(alive="/v1/models")
    metrics = MetricNames(path=None, recognised=False, started=())

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        raise ProfileError(
            f"Profile {profile.name} stands for a server at {profile.url}, which sparkdash does not start.",
            code="not_managed",
            hint="Start it by its own means; sparkdash uses it as soon as it answers.",
        )

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        if profile.model_id is not None:
            return (profile.model_id,)
        target = profile.models.get("target")
        return (target.ref,) if target else (profile.name, *profile.serves)


ENGINE = OpenAI()
