"""Checks of a profile beyond its form: names, placeholders, and the needs of each kind of engine."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sparkdash import redaction
from sparkdash.catalog.catalog import ProfileProblem, nearest
from sparkdash.catalog.document import Document, KeyPath, walk_strings
from sparkdash.catalog.schema import EXTENDS, Section, is_variant
from sparkdash.domain import profile as profiles
from sparkdash.domain.node import LOCAL, RANK_ARGS
from sparkdash.domain.profile import AUTO, MOST_NODES, PLACEHOLDER, Profile, ServerSpec, placeholders
from sparkdash.domain.request import ROUTE_PATHS, ServerRoute
from sparkdash.engines.generic.known_servers import described_server, known_server, server_of
from sparkdash.engines.generic.trial import PROVABLE
from sparkdash.engines.registry import adapter

SERVER_PLACEHOLDERS = frozenset({"port", "name", "model_id", "revision"})
"""Placeholders of a generic server beside those of its models."""
STARTER_PLACEHOLDERS = frozenset({"port", "name", "cidfile"})


def server_problems(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    server = server_of(profile)
    yield from _start_problems(section, profile)
    yield from _port_problems(section, profile, server)
    yield from _model_problems(section, profile)
    yield from _routes(section, profile.server or ServerSpec(), server)
    yield from _figures(section, server)


def _start_problems(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    if profile.url is not None:
        hint = "Remove it; a server that runs by itself is `engine: openai`."
        yield section.problem(("url",), "is only for engines 'openai' and 'remote'", hint)
    if profile.image is None and not profile.starter and not _command(profile):
        hint = "Name the image; without containers, give `command: [/path/to/program]`."
        yield section.problem(("image",), "is missing, and nothing else says what to start", hint, code="missing")


def _command(profile: Profile) -> Sequence[str]:
    known = known_server(profile)
    return profile.command or (known.command if known else ())


def _port_problems(section: Section, profile: Profile, server: ServerSpec) -> Iterator[ProfileProblem]:
    known = known_server(profile)
    args, env = ({**known.args}, known.env.values()) if known else ({}, ())
    words = [*_command(profile), *map(str, (args | profile.args).values()), *profile.env.values(), *env]
    told = any("{port}" in word for word in words)
    if told and profile.server and profile.server.port is not None:
        hint = "Remove one: {port} is a free port of the box, `port` a fixed one inside the container."
        yield section.problem(("server", "port"), "is given, and {port} is told to the server too", hint)
    if server.port is None and not told and not profile.starter:
        hint = "Put {port} into `command` or `args`, or give the fixed port: `server: {port: 8000}`."
        yield section.problem(("server",), "nothing tells on which port the server listens", hint, code="missing")


def _model_problems(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    known = known_server(profile)
    if known is None:
        return
    for name in sorted(placeholders([known.command, dict(known.args)]) - SERVER_PLACEHOLDERS - {*profile.models}):
        hint = f"Add `models: {{{name}: {{path: /folder}}}}` or `{{{name}: {{hf: owner/name}}}}`."
        text = f"{name!r} is missing: {known.title} must be given a model"
        yield section.problem(("models",), text, hint, code="missing")


def _routes(section: Section, own: ServerSpec, server: ServerSpec) -> Iterator[ProfileProblem]:
    if not server.routes:
        hint = f"Known: {', '.join(ServerRoute)}."
        yield section.problem(("server", "routes"), "is empty: the server would answer nothing", hint)
    for route in own.paths:
        if route not in server.routes:
            text = f"gives the path of {route.value}, which is not among the routes"
            yield section.problem(("server", "paths", route.value), text, f"Add {route.value} to `routes`.")
    proof = server.ready_by
    if isinstance(proof, ServerRoute) and proof not in server.routes:
        yield section.problem(("server", "ready_by"), f"{proof.value} is not among the routes", "Add it to `routes`.")
    elif isinstance(proof, ServerRoute) and proof not in PROVABLE:
        hint = f"Choose one of {', '.join(route for route in ROUTE_PATHS if route in PROVABLE)}, or health."
        yield section.problem(("server", "ready_by"), f"sparkdash cannot try {proof.value}", hint)


def _figures(section: Section, server: ServerSpec) -> Iterator[ProfileProblem]:
    for figure in server.metrics.names if server.metrics else ():
        if figure not in profiles.SERVER_FIGURES:
            close = nearest(figure, profiles.SERVER_FIGURES)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(profiles.SERVER_FIGURES)}."
            text = f"there is no figure {figure!r}"
            yield section.problem(("server", "metrics", "names", figure), text, hint, code="unknown-name")


OURS = ("host", "port", "served-model-name")

CLIENTS_OWN = frozenset({"model", "stream", "messages", "input", "prompt"})
"""Request keys that no profile may change."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_SPELLING = "Use letters, digits, dots, hyphens and underscores, beginning with a letter or digit."


def document_problems(document: Document) -> Iterator[ProfileProblem]:
    name = document.data.get("profile")
    if name is None:
        yield document.problem((), "'profile' is missing", "Begin the file with `profile: NAME`.", code="missing")
    elif not isinstance(name, str) or not _NAME.fullmatch(name):
        yield document.problem(("profile",), f"{name!r} is no name for a profile", _SPELLING, code="wrong-name")
    elif name == AUTO:
        hint = "It means whatever runs now."
        yield document.problem(("profile",), "'auto' is reserved", hint, code="reserved-name")
    yield from _variants(document)


def profile_problems(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    for find in _CHECKS:
        yield from find(section, profile)


def _build(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    image = profile.image
    if profile.build is None:
        return
    if image is None:
        yield section.problem(("build",), "has no image to make", "Add `image: localhost/NAME:TAG`.", code="missing")
    elif not image.startswith("localhost/") or "@" in image:
        text = f"{image} is no name for an image that is built here"
        yield section.problem(("image",), text, "Write `image: localhost/NAME:TAG`, without a digest.")


def _nodes(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    kind = profile.engine
    elsewhere = kind.is_external
    if profile.cannot_run:
        return
    if elsewhere and profile.nodes > 1:
        yield section.problem(("nodes",), f"is not for engine {kind.value!r}, which runs by itself", "Remove it.")
    elif profile.nodes > MOST_NODES:
        text = f"{profile.nodes} nodes are more than sparkdash starts an engine on"
        yield section.problem(("nodes",), text, f"Write {MOST_NODES} or fewer.")
    elif profile.nodes > 1 and not adapter(kind).runs_on_nodes:
        text = f"sparkdash starts {kind.value} on one node only"
        yield section.problem(("nodes",), text, "Write 1, or use vLLM, SGLang or TensorFold.")
    if profile.node is not None and (elsewhere or profile.nodes > 1):
        text = "is only for a profile that sparkdash starts on one node"
        yield section.problem(("node",), text, "Remove it.")


def _replicas(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    if profile.replicas > 1 and (profile.engine.is_external or profile.nodes > 1 or profile.node is not None):
        text = "is only for a profile that sparkdash starts on one node, and not on a given one"
        yield section.problem(("replicas",), text, "Remove it, or `nodes` and `node`.")


def _starter(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    if not profile.starter:
        return
    others = ("image", "build", "command", "keep_kv", "security", "url")
    for key in (key for key in others if getattr(profile, key)):
        yield section.problem((key,), "is not for an engine that a starter launches", "Remove one of the two.")
    if (profile.nodes, profile.node) != (1, LOCAL):
        yield section.problem(("starter",), "launches engines on this box alone", "Remove `nodes` and `node`.")
    if not any("{port}" in word for word in (*profile.starter.get("start", ()), *profile.env.values())):
        hint = "Write `start: [PROGRAM, …, --port, {port}]`, and let it run as long as the engine does."
        yield section.problem(("starter",), "`start` does not hand {port} on", hint, code="missing")


def _spread(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    kind = profile.engine
    flags = adapter(kind).parallel_flags
    for way, size in profile.parallel.items():
        if way not in flags:
            yield section.problem(("parallel", way), f"{kind.value} has no flag for it", "Remove it.")
        elif profile.args.get(flags[way], size) != size and not flags[way].startswith("enable-"):
            text = f"differs from `{flags[way]}` in `args`"
            yield section.problem(("parallel", way), text, "Give one of the two.")
    if profile.topologies and profile.nodes == 1:
        yield section.problem(("topologies",), "is only for a profile of several nodes", "Remove it.")


def _requests(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    places: list[tuple[KeyPath, str]] = [(("request_set", key), key) for key in profile.request_set]
    places += [(("request_strip", number), key) for number, key in enumerate(profile.request_strip)]
    places += [(("modes", mode, key), key) for mode, values in profile.modes.items() for key in values]
    for path, key in places:
        if key in CLIENTS_OWN:
            hint = "The gateway answers by it." if key in ("model", "stream") else "It is what the client asks."
            yield section.problem(path, f"no profile changes {key!r} of a request", hint)
    for key in ("request", "request_set", "modes"):
        try:
            json.dumps(getattr(profile, key), allow_nan=False)
        except ValueError:
            yield section.problem((key,), "holds a number that is not finite, which JSON cannot say", "Remove it.")


def _variants(document: Document) -> Iterator[ProfileProblem]:
    variants = document.data.get("variants")
    if variants is None:
        return
    if not isinstance(variants, dict):
        hint = "Write `variants: {NAME: {args: …}}`."
        yield document.problem(("variants",), "must map names to what they change", hint)
        return
    for name, body in variants.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            text = f"{name!r} is no name for a variant"
            yield document.problem(("variants", name), text, _SPELLING, code="wrong-name")
        if body is not None and not isinstance(body, dict):
            yield document.problem(("variants", name), "must be a mapping of what it changes")
        elif body and body.get(EXTENDS) is not None:
            yield from _parent(document, name, body[EXTENDS])


def _parent(document: Document, name: str, parent: Any) -> Iterator[ProfileProblem]:
    place = ("variants", name, EXTENDS)
    if not is_variant(document.data, parent):
        close = nearest(str(parent), document.data["variants"])
        hint = f"Did you mean {close[0]!r}?" if close else "Name another variant; without it the base is meant."
        yield document.problem(place, f"there is no variant {parent!r}", hint, code="unknown-name")
    elif _circular(document.data, name):
        yield document.problem(place, "leads back to itself", "A variant grows out of the base, in the end.")


def _circular(data: dict[str, Any], name: Any) -> bool:
    seen: list[Any] = []
    while is_variant(data, name) and name not in seen:
        seen.append(name)
        name = (data["variants"][name] or {}).get(EXTENDS)
    return name in seen


def _engine_needs(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    kind = profile.engine
    if profile.cannot_run:
        return  # it is shown, never started: what no source tells may be left open
    if kind.is_remote:
        yield from _base_url(section, profile)
        return
    if profile.key_env is not None:
        yield section.problem(("key_env",), "is only for engine 'remote'", "Remove it.")
    if kind.is_external:
        yield from _url(section, profile)
        return
    if described_server(profile):
        yield from server_problems(section, profile)
        return
    if profile.server is not None:
        yield section.problem(("server",), "is only for engine 'generic'", "Remove it.")
    yield from _server_keys(section, profile)
    if not kind.is_simulated:
        yield from _container_needs(section, profile)


def _server_keys(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    kind = profile.engine
    if profile.model_id is not None:
        hint = f"Remove it: sparkdash gives {kind} the profile's name."
        yield section.problem(("model_id",), "is only for engines 'openai', 'remote' and 'generic'", hint)
    if profile.url is not None:
        hint = f"{kind} is started by sparkdash, at a free port."
        yield section.problem(("url",), "is only for engines 'openai' and 'remote'", hint)


def _container_needs(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    kind = profile.engine
    if profile.image is None and not profile.command and not profile.starter:
        hint = "Name the image; without containers, give `command: [/path/to/program]`."
        yield section.problem(("image",), f"is missing, and {kind} runs in a container", hint, code="missing")
    if "target" not in profile.models:
        hint = "Add `models: {target: {path: /folder}}` or `{target: {hf: owner/name}}`."
        yield section.problem(("models",), f"'target' is missing: {kind} must be given a model", hint, code="missing")


def _url(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    if profile.url is None:
        hint = "Add `url: http://host:port`."
        yield section.problem(("url",), "is missing: engine 'openai' is a server at a URL", hint, code="missing")
    elif not redaction.is_server(profile.url):
        text = f"{redaction.shown_url(profile.url)!r} is no http URL"
        yield section.problem(("url",), text, "Write it as http://host:port.")
    elif redaction.has_login(profile.url):
        text = "has a name or a password in it, which no engine is sent"
        yield section.problem(("url",), text, "Take it out: http://host:port.")


def _base_url(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    url = profile.url
    if url is None:
        hint = "Add `url: https://host/v1`, as the service's own documents have it."
        yield section.problem(("url",), "is missing: engine 'remote' is a service at a URL", hint, code="missing")
    elif not redaction.is_server(url):
        yield section.problem(("url",), f"{redaction.shown_url(url)!r} is no http URL", "Write it as https://host/v1.")
    elif redaction.has_login(url):
        yield section.problem(("url",), "has a secret in it", "Take it out, and name its variable with `key_env`.")
    elif url.rstrip("/").count("/") == 2:
        yield section.problem(("url",), "has no path", f"Write the base URL, mostly {url.rstrip('/')}/v1.")


def _aliases(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    if profile.adapters and not adapter(profile.engine).takes_adapters:
        text = f"{adapter(profile.engine).title} gets no LoRA adapters from sparkdash"
        hint = "vllm and llamacpp get them; give this engine its own flags in `args`."
        yield section.problem(("serves",), text, hint)
    for index, alias in enumerate(profile.serves):
        if alias == AUTO:
            text, hint = "the alias 'auto' is reserved", "It means whatever runs now."
            yield section.problem(("serves", index), text, hint, code="reserved-name")
        elif not _ALIAS.fullmatch(alias):
            yield section.problem(("serves", index), f"{alias!r} is no alias", _SPELLING, code="wrong-name")


def _arguments(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    for key in profile.args:
        if key.startswith("-"):
            yield section.problem(("args", key), "is written with dashes", f"Write {key.lstrip('-')!r}.")
        elif key.replace("_", "-") in RANK_ARGS:
            text, hint = "is set by sparkdash for each node", "Remove it, and write `nodes: 2` beside `args`."
            yield section.problem(("args", key), text, hint, code="reserved-name")
        elif "target" in profile.models and _names_model(profile, key):
            text, hint = "names the model, as `models.target` does", "Remove it; sparkdash gives the engine the target."
            yield section.problem(("args", key), text, hint, code="reserved-name")
        elif key.replace("_", "-") in OURS and not described_server(profile):
            hint = "Remove it; give aliases under `serves`."
            yield section.problem(("args", key), "is set by sparkdash", hint, code="reserved-name")


def _names_model(profile: Profile, key: str) -> bool:
    engine = adapter(profile.engine)
    syntax = engine.command_line
    return syntax is not None and (engine.long_name(key) or key.replace("_", "-")) in syntax.model


def _unknown_models(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    for key in ("args", "env", "command", "starter"):
        for path, value in walk_strings((key,), getattr(profile, key)):
            for name in PLACEHOLDER.findall(value):
                of_server = name in (STARTER_PLACEHOLDERS if profile.starter else SERVER_PLACEHOLDERS)
                of_server = of_server and bool(profile.starter or described_server(profile))
                of_node = key == "env" and profile.nodes > 1 and name in profiles.NODE_WORDS
                if name not in profile.models and not of_server and not of_node:
                    text = f"names the model {{{name}}}, which is not under `models`"
                    yield section.problem(path, text, _models(profile, name), code="unknown-name")


def _models(profile: Profile, name: str) -> str:
    close = nearest(name, profile.models)
    return f"Did you mean {{{close[0]}}}?" if close else f"Add `{name}:` with a path or hf name under `models`."


def _paths(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    for name, ref in profile.models.items():
        if ref.path is not None and not ref.path.startswith("/"):
            yield section.problem(("models", name, "path"), f"{ref.path!r} is not absolute", "Begin it with / or ~.")
    for index, mount in enumerate(profile.mounts):
        for key, path in (("source", mount.source), ("target", mount.target)):
            if not path.startswith("/"):
                yield section.problem(("mounts", index, key), f"{path!r} is not absolute", "Begin it with /.")


_CHECKS = (
    _engine_needs, _aliases, _arguments, _unknown_models, _paths, _requests,
    _nodes, _replicas, _spread, _build, _starter,
)  # fmt: skip
