"""Profiles from llama.cpp's model presets (tools/server/README.md, "Model presets"), one for each section."""

import configparser
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sparkdash.catalog.importers import engine_line, podman_line
from sparkdash.catalog.importers.values import Imported, ImportNotes, aliases, import_refused, profile_name
from sparkdash.engines.llamacpp import ENGINE
from sparkdash.errors import ProfileError

_LINE = re.compile(r"\s*(?:[;#].*|\[[^\[\]]+\]\s*|[\w.-]+\s*=.*)?")
_SECTION = re.compile(r"^\s*\[[^\[\]]+\]\s*$", re.MULTILINE)
_SHARED = "*"
"""Section of what all models have."""
_OF_ROUTER = {
    "version": "the format's version",
    "load-on-startup": "the first request loads a model; `sparkdash use` in a unit does it at boot",
    "stop-timeout": "`drain_s` in config.toml is for all engines",
    "dedup-cache-models": "each profile is listed once",
}
_MODELS = {"model", "m", "model-url", "mu", "hf-repo", "hf", "hfr", "docker-repo", "dr"}
_MODELS |= {"LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_MODEL_URL", "LLAMA_ARG_DOCKER_REPO"}
_BOOLEANS = {"true": True, "on": True, "enabled": True, "1": True}
_BOOLEANS |= {"false": False, "off": False, "disabled": False, "0": False}


def is_presets(text: str) -> bool:
    """Whether every line is one of an INI file, sections included."""
    return bool(_SECTION.search(text)) and all(map(_LINE.fullmatch, text.splitlines()))


def import_presets(text: str, name: str | None = None) -> Imported:
    """Import every section that names a model. Raises ProfileError: none does."""
    notes = ImportNotes()
    parser = configparser.ConfigParser(
        default_section=_SHARED, strict=False, interpolation=None, delimiters=("=",), inline_comment_prefixes=("#", ";")
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    lines = (line.strip() for line in text.splitlines())
    parser.read_string("\n".join((f"[{_SHARED}]", *lines)))
    made = [one for section in parser.sections() if (one := _profile(section, parser[section], notes)) is not None]
    if not made:
        raise import_refused("No section of the presets names a model.", "A section has `model` or `hf-repo`.")
    notes.note("image", "presets name none; a Spark's is ghcr.io/ggml-org/llama.cpp:server-cuda13-b11206")
    if name and len(made) == 1:
        podman_line.rename(made[0], name)
    return notes.imported("llama.cpp preset file", *podman_line.number_duplicates(made))


def _profile(section: str, values: Mapping[str, str], notes: ImportNotes) -> dict[str, Any] | None:
    if not _MODELS & values.keys():
        if "/" not in section:
            notes.unknown(f"[{section}]", "names no model, left out")
            return None
        values = {**values, "hf-repo": section}
    try:
        made = _import(values, profile_name(section), notes)
    except ProfileError as error:
        notes.unknown(f"[{section}]", f"{error.message} Left out.")
        return None
    names = aliases([section, *made.get("serves", [])], made["profile"], notes)
    return made | {"serves": names} if names else made


def _import(values: Mapping[str, str], name: str, notes: ImportNotes) -> dict[str, Any]:
    env = {key: value for key, value in values.items() if key.isupper()}
    words = [word for key, value in values.items() if key not in env for word in _words(key, value, notes)]
    found = engine_line.recognise_engine(["llama-server", *words], "")
    assert found is not None  # noqa: S101 - it is llama-server's command
    return podman_line.assemble_profile(engine_line.read_engine_line(*found, notes, env), {"env": env}, name, notes)


def _words(key: str, value: str, notes: ImportNotes) -> Iterator[str]:
    if key in _OF_ROUTER:
        notes.dropped(key, _OF_ROUTER[key])
        return
    known = ENGINE.flag_source.table.by_word
    flag = f"-{key}" if f"-{key}" in known else f"--{key}"
    facts = known.get(flag)
    is_switch = facts is not None and facts.takes(max(facts.present)) in ("none", "toggle")
    if not is_switch:
        yield from (flag, value)
    elif (is_on := _BOOLEANS.get(value.lower())) is None:
        notes.unknown(f"{key} = {value}", "is neither true nor false, left out")
    elif is_on:
        yield flag
    else:
        yield f"--{key.removeprefix('no-')}" if key.startswith("no-") else f"--no-{key}"
