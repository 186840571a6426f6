"""Profiles of models that another server on this box already serves.

Owns: their names and content. Must not know: where they are written.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sparkdash.catalog.catalog import NO_TAG
from sparkdash.catalog.importers.values import aliases
from sparkdash.discovery.found import FoundServer
from sparkdash.domain.profile import EngineKind, ProfileSummary

MOST_ATTACHED = 5
"""Models of one server that get a profile."""


def attached_profiles(
    servers: Sequence[FoundServer], taken: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a profile for each model of each server: its file's name and content.

    `taken`: names of other profiles, which a file of that name would replace; the server's name goes in front then.
    """
    for server in servers:
        for model in server.models[:MOST_ATTACHED]:
            name = plain_name(model)
            if name in taken:
                name = f"{plain_name(server.kind.partition(' or ')[0])}-{name}"
            about = f"{model} of the {server.kind} server that already runs"
            profile = {"profile": name, "about": about, "engine": "openai", "url": server.url, "model_id": model}
            # clients that used the server directly keep their name for the model
            served = aliases([untagged(model)], own=name)
            yield f"{name}.yaml", profile | ({"serves": served} if served and served[0] not in taken else {})


def taken_names(profiles: Iterable[ProfileSummary]) -> frozenset[str]:
    """Return the names that no attached server may get: those of all other profiles, aliases included."""
    others = [one for one in profiles if one.engine is not EngineKind.OPENAI]
    return frozenset(one.name.partition("/")[0] for one in others).union(*(one.serves for one in others))


def plain_name(model: str) -> str:
    """Return a profile's name for a server's model: "org/Qwen3:8b" becomes "qwen3-8b", "tiny:latest" just "tiny"."""
    return re.sub(r"[^a-z0-9.]+", "-", untagged(model).rpartition("/")[2].lower()).strip("-.") or "attached"


def untagged(model: str) -> str:
    """Return a model's name without the tag that Ollama adds to a name without one."""
    return model.removesuffix(f":{NO_TAG}")
