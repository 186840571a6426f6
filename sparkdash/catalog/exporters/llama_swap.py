"""A profile as a model of llama-swap's configuration."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from sparkdash.catalog.exporters import own
from sparkdash.catalog.yaml import yaml_writer
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import EngineKind, Profile

_PORT = "${PORT}"


def llama_swap_model(profile: Profile, spec: ContainerSpec, argv: Sequence[str], *, alive: str) -> str:
    """Render a `models:` section with one model.

    `argv` is the runtime's command; it runs in the foreground, as llama-swap requires.
    """
    body: dict[str, Any] = {
        "description": profile.about,
        "cmd": _cmd(argv, spec, anywhere=profile.engine is EngineKind.GENERIC),
        "cmdStop": shlex.join([argv[0], "stop", spec.name]),
        "proxy": f"http://127.0.0.1:{_PORT}",
        "checkEndpoint": alive,
        "useModelName": profile.model_id,
        "aliases": list(profile.serves),
        "filters": _filters(profile),
    }
    text = yaml_writer.dump({"models": {profile.name: {key: value for key, value in body.items() if value}}})
    return "\n".join([*own.lost_comments(profile, "memory", "request"), text]).rstrip()


def _filters(profile: Profile) -> dict[str, Any]:
    """Return what llama-swap changes in requests; it knows no defaults that a client may override."""
    by_mode = {f"{profile.name}:{mode}": parameters for mode, parameters in profile.modes.items()}
    given: dict[str, Any] = {
        "stripParams": ", ".join(profile.request_strip),
        "setParams": profile.request_set,
        "setParamsByID": by_mode,
    }
    return {key: value for key, value in given.items() if value}


def _cmd(argv: Sequence[str], spec: ContainerSpec, *, anywhere: bool) -> str:
    lines: list[list[str]] = [[]]
    before = ""
    for word in argv:
        if word != "-d":
            if word.startswith("-"):
                lines.append([])
            lines[-1].append(_word(word, before, spec, anywhere=anywhere))
        before = word
    return "\n".join(" ".join(line) for line in lines) + "\n"


def _word(word: str, before: str, spec: ContainerSpec, *, anywhere: bool) -> str:
    """Quote a word of the command; `anywhere`: the port may stand in any word, not only after --port."""
    if (before, word) == ("--port", str(spec.port)):
        return _PORT
    quoted = shlex.quote(word)
    is_label = before == "--label"
    return re.sub(rf"\b{spec.port}\b", _PORT, quoted) if anywhere and not is_label and "'" not in quoted else quoted
