"""Any other server that sparkdash starts, by its profile's own description (`server:`). Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile, ServerKind, ServerSpec
from sparkdash.domain.request import ROUTE_PATHS, ROUTE_TASKS, ServerRoute, Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv, containers, logs
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.generic.known_servers import known_server, server_of
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.engines.rule import Hit, KeyPath, Rule, Severity
from sparkdash.errors import ProfileError

UNKNOWN_METRICS = MetricNames(path=None, recognised=False, started=())
"""Metrics of a server that may be any engine: found out by looking."""
_EVERYWHERE = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d.])|^\[?::\]?(?::\S*)?$")


class Generic(EngineAdapter):
    """Adapter of one described server; unlike other adapters it belongs to a profile."""

    kind = EngineKind.GENERIC
    title = "any server"

    def __init__(self, server: ServerSpec | None = None) -> None:
        self._server = server = server or ServerSpec()
        chat = server.paths.get(ServerRoute.CHAT, ROUTE_PATHS[ServerRoute.CHAT])
        self.probes = Probes(
            alive=server.health,
            alive_has=server.health_has,
            models=server.models,
            version=server.version,
            chat=chat if ServerRoute.CHAT in server.routes else None,
        )
        self.metrics = _metric_names(server)
        self.usage_on_request = server.usage_in_stream
        self.ranks_texts = server.kind is ServerKind.TEI
        self.phrases = tuple(logs.Phrase(line.stage, line.pattern, line.fraction) for line in server.log)
        self.causes = tuple(logs.cause(one.code, one.pattern, one.message, one.hint) for one in server.failures)

    def of(self, profile: Profile) -> EngineAdapter:
        return Generic(server_of(profile))

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build what runs the server. Raises ProfileError: nothing tells the server its port, or what to run."""
        server, known = self._server, known_server(profile)
        command = profile.command or (known.command if known else ())
        args = argv.overlay_args(tuple(known.args.items()) if known else (), profile.args)
        own = _values(profile, launch.port)
        words = [argv.fill_words(word, own) for word in (*command, *argv.flag_words(args, {}))]
        words = [argv.fill_placeholders(word, profile.models) for word in words]
        spec = containers.build_container(
            profile,
            launch,
            words,
            shm_size=known.shm_size if known else None,
            env=known.variables(profile.context) if known else containers.NO_VARIABLES,
        )
        told = (*command, *map(str, args.values()), *spec.env.values())
        told_port = any("{port}" in word for word in told)
        _refuse_unstartable(profile, server, launch, command, told_port=told_port)
        return spec.replace(
            env={key: argv.fill_words(value, own) for key, value in spec.env.items()},
            keeps_entrypoint=spec.keeps_entrypoint
            or (launch.containerised and (server.keep_entrypoint or not command)),
            inner_port=server.port if launch.containerised and not told_port else None,
            stop_signal=None if server.stop_signal == "SIGTERM" else server.stop_signal,
        )

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        return (profile.model_id or profile.name,)

    def speculation(self, profile: Profile) -> str | None:
        known = known_server(profile)
        return known.speculation(profile.args) if known else None

    def rules(self) -> tuple[Rule, ...]:
        return RULES

    def tasks(self, profile: Profile, target: WeightFacts | None) -> frozenset[Task] | None:
        return frozenset(ROUTE_TASKS[route] for route in self._server.routes if route in ROUTE_TASKS)

    def lacks_protocol(self, profile: Profile, version: str | None, protocol: ApiProtocol) -> bool | None:
        if profile.protocols is not None:
            return protocol not in profile.protocols
        if protocol.value not in self._server.routes:
            return True
        # the description of a known server is of one version, and the profile's may be older
        return False if profile.server and "routes" in profile.server.model_fields_set else None


def _metric_names(server: ServerSpec) -> MetricNames:
    told = server.metrics
    if told is None or (told.path is not None and not told.names):
        return UNKNOWN_METRICS
    if told.path is None:
        return MetricNames(path=None, started=())
    names: dict[str, Any] = {
        figure: (name,) if isinstance(name, str) else tuple(name) for figure, name in told.names.items()
    }
    return MetricNames(path=told.path, is_live=told.is_live, started=(), **names)


def _values(profile: Profile, port: int) -> dict[str, str]:
    target = profile.models.get("target")
    return {
        "port": str(port),
        "name": profile.name,
        "model_id": profile.model_id or profile.name,
        "revision": (target.revision if target else None) or "main",
    }


def _refuse_unstartable(
    profile: Profile, server: ServerSpec, launch: LaunchContext, command: Sequence[str], *, told_port: bool
) -> None:
    """Refuse a launch without a program, or whose server would listen where nobody asks it."""
    if not launch.containerised and (server.keep_entrypoint or not command):
        raise ProfileError(
            f"Profile {profile.name} runs what its image holds, and this runtime starts plain processes.",
            code="command_missing",
            hint="Give `command: [/path/to/program]`, or start the daemon with `--runtime podman`.",
        )
    if not launch.containerised and not told_port:
        raise ProfileError(
            f"Nothing tells {profile.name} on which port to listen.",
            code="port_untold",
            hint="Put {port} into `command`, `args` or `env`: a plain process gets a free port of this box.",
        )
    if launch.containerised and not told_port and server.port is None:
        raise ProfileError(
            f"Nothing tells on which port {profile.name} listens.",
            code="port_untold",
            hint="Put {port} into `command`, `args` or `env`, or give the fixed port as `server: {port: 8000}`.",
        )


def _exposed(profile: Profile) -> Iterator[Hit]:
    if server_of(profile).port is not None:
        return  # a network of its own, whose port is published on the loopback
    places: list[tuple[KeyPath, str]] = [(("command", number), word) for number, word in enumerate(profile.command)]
    places += [(("args", key), str(value)) for key, value in profile.args.items()]
    places += [(("env", key), value) for key, value in profile.env.items()]
    for path, text in places:
        if _EVERYWHERE.search(text):
            message = "has the server listen on every address of the box, where no key protects it"
            yield Hit(path, message, "Write 127.0.0.1: clients use the gateway.")


RULES = (
    Rule(
        "server-exposed",
        Severity.WARNING,
        "a generic server on the box's network listens on every address",
        "podman-run(1): --network host shares the interfaces of the box",
        _exposed,
    ),
)

ENGINE = Generic()
