"""Rules about described servers (`engine: generic`).

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkdash.catalog.document import KeyPath
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.generic.known_servers import server_of
from sparkdash.rules.rule import Hit, Rule, Severity

_EVERYWHERE = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d.])|^\[?::\]?(?::\S*)?$")


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
        engines=(EngineKind.GENERIC,),
    ),
)
