"""Profiles of models that another server on this box already serves.

Owns: their names and content. Must not know: where they are written.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

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
            yield (
                f"{name}.yaml",
                {
                    "profile": name,
                    "about": about,
                    "engine": "openai",
                    "url": server.url,
                    "model_id": model,
                },
            )


def taken_names(profiles: Iterable[ProfileSummary]) -> frozenset[str]:
    """Return the names that no attached server may get: those of all other profiles."""
    return frozenset(one.name.partition("/")[0] for one in profiles if one.engine is not EngineKind.OPENAI)


def plain_name(model: str) -> str:
    """Return a profile's name for a server's model: "org/Qwen3:8b" becomes "qwen3-8b"."""
    return re.sub(r"[^a-z0-9.]+", "-", model.rpartition("/")[2].lower()).strip("-.") or "attached"
