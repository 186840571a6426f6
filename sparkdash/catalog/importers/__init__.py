"""Importers: other tools' formats become profiles, readable YAML, and a report; no text is run or followed."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparkdash.catalog import yaml12
from sparkdash.catalog.catalog import Catalog
from sparkdash.catalog.importers import compose, llama_presets, llama_swap, podman_line, quadlet, sparkrun
from sparkdash.catalog.importers.values import Imported, ImportNotes, import_refused
from sparkdash.catalog.load import load_catalog
from sparkdash.domain.profile import MOST_NODES
from sparkdash.engines.nodes import OF_EACH_NODE, RING_ONLY, ROCE_DEVICES

MAX_CHARACTERS = 500_000
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_KEY = re.compile(r"""^["']?(\w+)["']?\s*:(?=\s)""", re.MULTILINE)
_WORDS = {ROCE_DEVICES: "{hca}", "NODE_RANK": "{rank}"}
_OF_RECIPE = {"sparkrun_version", "recipe_version", "runtime", "container", "defaults"}


def import_profiles(text: str, name: str | None = None, folder: str | None = None) -> Imported:
    """Import a script, command line, recipe, llama-swap configuration, compose file, unit or model presets.

    `name` is for a single profile. `folder` holds the text's file, for what it names beside itself.
    Raises ProfileError: `import_refused`, with what is wrong.
    """
    _check(text)
    found = _import(text.removeprefix("\ufeff"), name, folder)
    notes = ImportNotes()
    made = tuple(_of_all_nodes(profile, notes) for profile in found.profiles)
    return replace(found, profiles=made, remarks=(*found.remarks, *notes.found))


def _spread(profile: dict[str, Any], notes: ImportNotes) -> dict[str, Any]:
    """Write `nodes` where there are more ranks than the one that a box has, and whether so many can run."""
    nodes, ranks = profile.get("nodes", 1), sparkrun.ranks(profile.get("args", {}))
    if "rpc" in profile.get("args", {}):
        notes.note("--rpc", "sparkdash starts no rpc-server on other boxes; have them run before the profile starts")
    if nodes == 1 < ranks:
        why = f"{ranks} boxes, as each has one GPU; for one box, take the parallel sizes out and set it to 1"
        notes.note("nodes", why)
        nodes = ranks
    if nodes > MOST_NODES:
        cannot = f"it needs {nodes} nodes, and sparkdash starts an engine on {MOST_NODES} at most"
        profile = profile | {"cannot_run": cannot}
    return profile | {"nodes": nodes} if nodes > 1 else profile


def _of_all_nodes(profile: dict[str, Any], notes: ImportNotes) -> dict[str, Any]:
    """Take what one rank's own box is called and where it is out of a profile for several."""
    profile = _spread(profile, notes)
    env, known = dict(profile.get("env", {})), profile.get("env_from", [])
    if profile.get("nodes", 1) == 1:
        return profile
    if env.get(RING_ONLY) == "1":
        notes.rewritten(RING_ONLY, "as `topologies: [ring]`; take that out where it may run behind a switch")
        profile = profile | {"topologies": ["ring"]}
    for variable in sorted(OF_EACH_NODE & {*env, *known}):
        notes.dropped(f"{variable}={env.pop(variable, f'${variable}')}", "sparkdash finds it on each box")
    for variable in _WORDS.keys() & env.keys():
        notes.rewritten(f"{variable}={env[variable]}", f"as {_WORDS[variable]}, the word for each box's own")
        env[variable] = _WORDS[variable]
    made = profile | {"env": env, "env_from": [one for one in known if one not in OF_EACH_NODE]}
    return {key: value for key, value in made.items() if value or key not in ("env", "env_from")}


def _import(text: str, name: str | None, folder: str | None) -> Imported:
    keys = _top_keys(text)
    if {"profile", "engine"} <= keys:
        raise import_refused("The input is a profile of sparkdash already.", "Put it into the folder of profiles.")
    if "services" in keys:
        return compose.import_compose(text, name, folder)
    if "models" in keys:
        return llama_swap.import_llama_swap(text, name)
    if keys & _OF_RECIPE:
        return sparkrun.import_sparkrun(text, name)
    if not (is_unit := quadlet.is_unit(text)) and "[Service]" in text.splitlines():
        raise import_refused("The input is a service of systemd.", "Give the command behind `ExecStart=` alone.")
    if not is_unit and llama_presets.is_presets(text):
        return llama_presets.import_presets(text, name)
    return quadlet.import_unit(text, name) if is_unit else podman_line.import_podman_line(text, name)


def _top_keys(text: str) -> set[str]:
    """Return the keys of a YAML mapping, or what looks like them where it has mistakes; none of a script."""
    if text.startswith("#!"):
        return set()
    try:
        found, _ = yaml12.read_yaml(text)
    except yaml12.NotYaml:
        return set() if "<<" in text else set(_KEY.findall(text))
    return set(map(str, found)) if isinstance(found, dict) else set()


def _check(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise import_refused(f"The input is longer than {MAX_CHARACTERS} characters.")
    if _CONTROL.search(text):
        raise import_refused("The input holds control characters: it is no text.")
    if not text:
        hint = "Give a command line, a script, a recipe or a llama-swap configuration."
        raise import_refused("The input is empty.", hint)


def yaml_text(profile: dict[str, Any], imported: Imported, origin: str) -> str:
    """Render a profile file: origin and remarks as comments, then the profile."""
    head = [f"# Imported from {_line(origin)} (a {imported.form})."]
    if imported.remarks:
        head += ["#", "# What it does not say as its source did:"]
        head += [f"#   {_line(str(one))}" for one in imported.remarks]
    return "\n".join([*head, yaml12.dump(profile)])


def settings_text(imported: Imported) -> str:
    """Render the lines for config.toml as comments below the profiles; "" without any."""
    if not imported.settings:
        return ""
    return "\n".join(["# For config.toml:", *(f"#   {line}".rstrip() for line in imported.settings), ""])


def load_imported(texts: dict[str, str]) -> Catalog:
    with TemporaryDirectory(prefix="sparkdash-import-") as folder:
        for name, text in texts.items():
            (Path(folder) / f"{name}.yaml").write_text(text, encoding="utf-8")
        found = load_catalog([Path(folder)])
        short = tuple(replace(one, file=one.file.removeprefix(f"{folder}/")) for one in found.problems)
    return Catalog(found.profiles, short, found.problem_at)


def import_report(imported: Imported) -> dict[str, Any]:
    return {
        "form": imported.form,
        "profiles": list(imported.profiles),
        "remarks": [asdict(one) for one in imported.remarks],
        "settings": list(imported.settings),
    }


def _line(text: str) -> str:
    return " ".join(text.split())
