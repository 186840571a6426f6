"""Profile from a sparkrun or eugr recipe (v1 and v2). `env` is never expanded."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from sparkdash.catalog.importers import engine_line, podman_line
from sparkdash.catalog.importers.shell import Command, parse_commands
from sparkdash.catalog.importers.values import (
    Imported,
    ImportNotes,
    fill_variables,
    import_refused,
    parse_bounded_yaml,
    profile_name,
)

_KEY = re.compile(r"\{([A-Za-z_][\w-]*)\}")
_OF_LAUNCH = re.compile(r"\{((?:config|launch)\.\w+)\}")
"""Words of sparkrun 0.4 in a variable."""
_READ = {
    "sparkrun_version", "recipe_version", "name", "description", "model", "model_revision", "runtime", "container",
    "defaults", "env", "command", "metadata", "min_nodes", "cluster_only", "solo_only", "mode", "runtime_version",
}  # fmt: skip
_WHY = {
    "build_args": "an import builds no image; `build` in the profile can say how it is built",
    "builder": "an import builds no image; `build` in the profile can say how it is built",
    "builder_config": "an import builds no image; `build` in the profile can say how it is built",
    "pre_exec": "sparkdash runs nothing beside the engine",
    "post_exec": "sparkdash runs nothing beside the engine",
    "post_commands": "sparkdash runs nothing beside the engine",
    "benchmark": "figures are measured elsewhere",
    "max_nodes": "`nodes` says on how many boxes the profile runs",
    "executor": "podman or docker",
    "executor_config": "sparkdash makes the container in its own way",
    "min_sparkrun_version": "says nothing about the profile",
    "pull_image": "sparkdash pulls as a step of its own",
}
_PROGRAMS = {
    "vllm": "vllm serve {model}",
    "eugr-vllm": "vllm serve {model}",
    "vllm-distributed": "vllm serve {model}",
    "vllm-ray": "vllm serve {model}",
    "sglang": "python3 -m sglang.launch_server --model-path {model}",
    "llama-cpp": "llama-server --hf-repo {model}",
    "trtllm": "trtllm-serve {model}",
}
_FLAGS = {
    "sglang": {
        "tensor_parallel": "tp-size",
        "pipeline_parallel": "pp-size",
        "gpu_memory_utilization": "mem-fraction-static",
        "max_model_len": "context-length",
        "max_num_seqs": "max-running-requests",
    },
    "llama-cpp": {"served_model_name": "alias"},
    "trtllm": {"tensor_parallel": "tp_size", "pipeline_parallel": "pp_size", "max_model_len": "max_seq_len"},
}
_OF_VLLM = {"tensor_parallel": "tensor-parallel-size", "pipeline_parallel": "pipeline-parallel-size"}
_SIZES = ("tensor-parallel-size", "pipeline-parallel-size", "tp-size", "pp-size", "tp_size", "pp_size")


def import_sparkrun(text: str, name: str | None = None) -> Imported:
    """Import the recipe as one profile. Raises ProfileError: no recipe, or its command starts no known engine."""
    recipe, notes = parse_bounded_yaml(text), ImportNotes()
    _note_unread(recipe, notes)
    command, found = _engine(recipe, notes)
    container = _container(recipe, command.env, notes)
    engine = engine_line.read_engine_line(*found, notes, container["env"])
    if recipe.get("model_revision") and "hf" in engine.models["target"]:
        engine.models["target"]["revision"] = str(recipe["model_revision"])
    own = name or profile_name(str(recipe.get("name") or ""))
    made = podman_line.assemble_profile(engine, container, own, notes)
    return notes.imported("sparkrun recipe", _spread(_dress(made, recipe, notes), recipe, notes))


def _engine(recipe: dict[str, Any], notes: ImportNotes) -> tuple[Command, tuple[engine_line.EnginePart, list[str]]]:
    command = podman_line.only_engine(parse_commands(_command(recipe, notes), notes), notes)
    found = command and engine_line.recognise_engine(command.words, "")
    if command is None or found is None:
        raise import_refused("The recipe's command starts no engine that sparkdash knows.")
    return command, found


def _note_unread(recipe: dict[str, Any], notes: ImportNotes) -> None:
    for key in (key for key in recipe if key not in _READ):
        if key == "mods":  # without one of them the recipe may not work
            mods = recipe[key]
            for mod in mods if isinstance(mods, list) else [mods] if mods else ():
                why = "a patch that the recipe applies at start; bake it into the image (`build`)"
                notes.dropped(f"mods: {mod}", why)
        elif key in _WHY:
            notes.dropped(key, _WHY[key])
        else:
            notes.unknown(key)


def _command(recipe: dict[str, Any], notes: ImportNotes) -> str:
    given = recipe.get("defaults")
    defaults = given if isinstance(given, dict) else {}
    values = {str(key): _text(value) for key, value in defaults.items()} | {"model": str(recipe.get("model") or "")}
    template = recipe.get("command")
    if not isinstance(template, str):
        return _generated(recipe, defaults, values)
    for key in (key for key in values if f"{{{key}}}" not in template + "".join(values.values())):
        if key not in ("model", "host", "port"):
            notes.unknown(f"defaults.{key}", "is not named in the command, left out")
    return _fill(template, {"host": "127.0.0.1", "port": "8000"} | values, notes)


def _fill(text: str, values: dict[str, str], notes: ImportNotes) -> str:
    for _ in range(5):
        before, text = text, fill_variables(_KEY, text, values)
        if text == before:
            break
    for hit in _KEY.finditer(text):
        notes.note(hit[0], "has no default in the recipe; it stays as text")
    return text


def _generated(recipe: dict[str, Any], defaults: dict[str, Any], values: dict[str, str]) -> str:
    """Build the command that the runtime would make of the defaults."""
    runtime = str(recipe.get("runtime") or "vllm")
    if runtime not in _PROGRAMS:
        raise import_refused(f"The recipe's runtime {runtime!r} is not known here.", f"Known: {', '.join(_PROGRAMS)}.")
    names = _FLAGS.get(runtime, _OF_VLLM)
    words = [_PROGRAMS[runtime].replace("{model}", shlex.quote(values["model"]))]
    for key, value in defaults.items():
        flag = f"--{names.get(str(key)) or (str(key) if runtime == 'trtllm' else str(key).replace('_', '-'))}"
        if value is not None and value is not False:  # a 0 is a value
            words.append(flag if value is True else f"{flag} {shlex.quote(_text(value))}")
    return " ".join(words)


def _text(value: Any) -> str:
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)


def _container(recipe: dict[str, Any], exported: Mapping[str, str], notes: ImportNotes) -> dict[str, Any]:
    image, env = recipe.get("container"), recipe.get("env")
    made: dict[str, Any] = {"image": image if isinstance(image, str) else None, "env": {}, "env_from": []}
    defaults = recipe.get("defaults")
    known = {f"config.{key}": _text(value) for key, value in defaults.items()} if isinstance(defaults, dict) else {}
    for key, value in env.items() if isinstance(env, dict) else ():
        text = fill_variables(_OF_LAUNCH, f"{key}={value}", known)
        if hit := _OF_LAUNCH.search(text):
            notes.dropped(text, f"{hit[0]} is filled in by sparkrun; write the value if the image needs it")
        else:
            podman_line.add_variable(text, made, notes)
    for variable, value in exported.items():
        podman_line.add_variable(f"{variable}={value}", made, notes)
    return made


def _dress(made: dict[str, Any], recipe: dict[str, Any], notes: ImportNotes) -> dict[str, Any]:
    metadata = recipe.get("metadata")
    about = recipe.get("description") or (metadata.get("description") if isinstance(metadata, dict) else None)
    if isinstance(about, str):
        made = {"profile": made["profile"], "about": " ".join(about.split())} | made
    left_out = [str(key) for key in metadata if key != "description"] if isinstance(metadata, dict) else []
    if left_out:
        notes.dropped(f"metadata ({', '.join(left_out)})", "describes the model; a profile says only what it needs")
    return made


def _spread(made: dict[str, Any], recipe: dict[str, Any], notes: ImportNotes) -> dict[str, Any]:
    """Set the number of nodes by `min_nodes` and `cluster_only`; ranks alone are counted for every form."""
    args = made.get("args", {})
    least = recipe.get("min_nodes")
    nodes = least if isinstance(least, int) and least > 1 else made.get("nodes", 1)
    if recipe.get("solo_only") is True:
        return _alone(made, notes)
    if nodes == ranks(args) == 1 and (recipe.get("cluster_only") is True or recipe.get("mode") == "cluster"):
        nodes = 2
        notes.note("nodes", "2 boxes, as the recipe is for a cluster; write how the model is split over them")
    if nodes > 1:
        made["nodes"] = nodes
    if max(nodes, ranks(args)) > 1 and recipe.get("runtime") == "vllm-ray":
        made.setdefault("args", {}).setdefault("distributed-executor-backend", "ray")
    return made


def _alone(made: dict[str, Any], notes: ImportNotes) -> dict[str, Any]:
    args = made.get("args", {})
    if ranks(args) > 1:
        for name in _SIZES:
            args.pop(name, None)
        notes.dropped(" x ".join(_SIZES[:2]), "solo_only is one box with one GPU")
    if args.pop("distributed-executor-backend", None) is not None:
        notes.dropped("--distributed-executor-backend", "solo_only is one box, where the engine needs no other")
    drafting = args.get("speculative-config")
    if isinstance(drafting, dict) and drafting.pop("draft_tensor_parallel_size", 1) != 1:
        notes.dropped("draft_tensor_parallel_size", "solo_only is one box with one GPU")
    made.pop("nodes", None)
    return made


def ranks(args: Mapping[str, Any]) -> int:
    """Multiply the sizes by which a model is split over GPUs."""
    found = 1
    for name in _SIZES:
        size = args.get(name)
        found *= size if isinstance(size, int) and size > 0 else 1
    return found
