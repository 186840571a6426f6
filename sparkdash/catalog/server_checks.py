"""Checks of a profile with `engine: generic`.

Owns: what such a server needs to be startable and asked. Must not know: files, other engines.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.catalog.catalog import ProfileProblem, nearest
from sparkdash.catalog.schema import Section
from sparkdash.domain.profile import Profile, placeholders
from sparkdash.domain.server import FIGURES, ServerSpec
from sparkdash.domain.task import ROUTE_PATHS, ServerRoute
from sparkdash.engines.generic.known_servers import known_server, server_of
from sparkdash.engines.generic.trial import PROVABLE

SERVER_PLACEHOLDERS = frozenset({"port", "name", "model_id", "revision"})
"""Placeholders of a generic server beside those of its models."""


def server_problems(section: Section, profile: Profile) -> Iterator[ProfileProblem]:
    """Find what is missing or contradictory in a generic server's profile."""
    server, known = server_of(profile), known_server(profile)
    if profile.url is not None:
        hint = "Remove it; a server that runs by itself is `engine: openai`."
        yield section.problem(("url",), "is only for engines 'openai' and 'remote'", hint)
    command = profile.command or (known.command if known else ())
    if profile.image is None and not command:
        hint = "Name the image; without containers, give `command: [/path/to/program]`."
        yield section.problem(("image",), "is missing, and nothing else says what to start", hint, code="missing")
    args = {**(known.args if known else {}), **profile.args}
    words = [*command, *map(str, args.values()), *profile.env.values(), *(known.env.values() if known else ())]
    told = any("{port}" in word for word in words)
    if told and profile.server and profile.server.port is not None:
        hint = "Remove one: {port} is a free port of the box, `port` a fixed one inside the container."
        yield section.problem(("server", "port"), "is given, and {port} is told to the server too", hint)
    if server.port is None and not told:
        hint = "Put {port} into `command` or `args`, or give the fixed port: `server: {port: 8000}`."
        yield section.problem(("server",), "nothing tells on which port the server listens", hint, code="missing")
    for name in sorted(placeholders([known.command, dict(known.args)] if known else []) - SERVER_PLACEHOLDERS):
        if name not in profile.models:
            hint = f"Add `models: {{{name}: {{path: /folder}}}}` or `{{{name}: {{hf: owner/name}}}}`."
            text = f"{name!r} is missing: {known.title if known else 'the server'} must be given a model"
            yield section.problem(("models",), text, hint, code="missing")
    yield from _routes(section, profile.server or ServerSpec(), server)
    yield from _figures(section, server)


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
        if figure not in FIGURES:
            close = nearest(figure, FIGURES)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(FIGURES)}."
            text = f"there is no figure {figure!r}"
            yield section.problem(("server", "metrics", "names", figure), text, hint, code="unknown-name")
