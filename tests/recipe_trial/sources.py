"""Recipes in a folder of clones: each with its text, and the command lines that it runs by its own rules."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ENGINES = ("vllm", "sglang", "llama-server", "trtllm-serve")
_STARTS = re.compile(r"(vllm\s+serve|sglang\s+serve|sglang\.launch_server|llama-server|trtllm-serve|api_server)\b")
_FENCE = re.compile(r"^[ \t]*```(?:bash|sh|shell|console)?[ \t]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_SPARKRUN = {
    "vllm": {"tensor_parallel": "tensor-parallel-size", "pipeline_parallel": "pipeline-parallel-size"},
    "sglang": {
        "gpu_memory_utilization": "mem-fraction-static", "max_model_len": "context-length",
        "max_num_seqs": "max-running-requests", "tensor_parallel": "tp-size", "pipeline_parallel": "pp-size",
        "max_num_batched_tokens": "max-num-batched-tokens", "chunked_prefill": "chunked-prefill-size",
    },
    "llama-cpp": {"max_model_len": "ctx-size", "served_model_name": "alias"},
}  # fmt: skip
"""How sparkrun's runtimes turn the keys of `defaults` into flags, where a recipe has no command."""
_PROGRAM = {
    "vllm": "vllm serve {model}", "sglang": "python3 -m sglang.launch_server --model-path {model}",
    "llama-cpp": "llama-server -hf {model}", "trtllm": "trtllm-serve {model}",
}  # fmt: skip


@dataclass
class Recipe:
    """One input for an import. `runs` is None where its own rules are not worked out here."""

    name: str
    form: str
    text: str
    runs: list[list[str]] | None = None
    mods: list[str] = field(default_factory=list)
    solo: bool = False
    ranks: int = 1


def recipes(folder: Path) -> Iterator[Recipe]:
    """Everything in the folder that looks like a recipe."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink() or ".git" in path.parts or path.stat().st_size > 400_000:
            continue
        name = str(path.relative_to(folder))
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix in (".yaml", ".yml"):
            yield from _of_yaml(name, text)
        elif path.suffix in (".sh", "") and _STARTS.search(text) and "#!" in text[:40]:
            yield Recipe(name, "script", text)
        elif path.suffix == ".md":
            for index, block in enumerate(_FENCE.findall(text)):
                if _STARTS.search(block) and not re.search(r"<<|\bpip\b|\bcmake\b|^\s*apt", block):
                    yield Recipe(f"{name}#{index}", "readme", block)
        elif path.name.endswith((".container", ".service")) and _STARTS.search(text):
            yield Recipe(name, "quadlet", text)


def _of_yaml(name: str, text: str) -> Iterator[Recipe]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        if re.search(r"^(recipe_version|container|models):", text, re.MULTILINE):
            yield Recipe(name, "recipe", text)
        return
    if not isinstance(data, dict):
        return
    if "meta" in data and "model" in data and "variants" in data:
        yield from _of_vllm(name, data)
    elif isinstance(data.get("services"), dict) and _STARTS.search(text):
        yield Recipe(name, "compose", text)
    elif isinstance(data.get("models"), dict) and "cmd:" in text:
        yield Recipe(name, "llama-swap", text)
    elif isinstance(data.get("model"), str) and ("container" in data or "runtime" in data):
        mods = [str(one) for one in data.get("mods") or ()]
        ranks = (data.get("defaults") or {}).get("tensor_parallel") or 1
        yield Recipe(name, "recipe", text, _of_recipe(data), mods, data.get("solo_only") is True, int(ranks))


def _of_recipe(data: dict[str, Any]) -> list[list[str]] | None:
    defaults = {str(key): value for key, value in (data.get("defaults") or {}).items()}
    values = {"model": data["model"], "host": "127.0.0.1", "port": 8000} | defaults
    command = data.get("command")
    if not isinstance(command, str):
        runtime = str(data.get("runtime") or "vllm")
        kind = next((one for one in _PROGRAM if runtime.startswith(one)), None)
        if kind is None:
            return None
        words = shlex.split(_PROGRAM[kind].replace("{model}", shlex.quote(str(data["model"]))))
        for key, value in defaults.items():
            flag = _SPARKRUN.get(kind, {}).get(key, key if kind == "trtllm" else key.replace("_", "-"))
            if value is True or value == "":
                words.append(f"--{flag}")
            elif value not in (None, False):
                words += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
        return [words]
    if str(data.get("recipe_version")) == "1":
        command = _formatted(command, values)
    else:
        for _ in range(10):
            before = command
            for key, value in values.items():
                text = json.dumps(value) if isinstance(value, dict | list) else str(value)
                command = command.replace(f"{{{key}}}", text)
            if command == before:
                break
    return commands(command)


def _formatted(text: str, values: dict[str, Any]) -> str:
    """`str.format` of known names, without its access to attributes."""

    def put(hit: re.Match[str]) -> str:
        word = hit[0]
        if word in ("{{", "}}"):
            return word[0]
        return str(values.get(word[1:-1], word))

    return re.sub(r"\{\{|\}\}|\{[\w-]+\}", put, text)


def commands(text: str) -> list[list[str]] | None:
    """Words of the commands in a shell text that start an engine; None where splitting alone does not tell."""
    joined = re.sub(r"\\[ \t]*\n", " ", text)
    found = []
    for line in joined.splitlines():
        if not _STARTS.search(line) or line.lstrip().startswith("#"):
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            return None
        start = next(
            (place for place, word in enumerate(words) if _STARTS.search(" ".join(words[place : place + 2]))), 0
        )
        found.append(words[start:])
    return found or None


def _of_vllm(name: str, data: dict[str, Any]) -> Iterator[Recipe]:
    """Lines of vLLM's own recipes: base, features and each variant with each hardware's arguments."""
    model = data["model"]
    base = [*(model.get("base_args") or ())]
    for feature in (data.get("features") or {}).values():
        base += feature.get("args") or ()
    for variant, told in (data.get("variants") or {}).items():
        target = told.get("model_id") or model["model_id"]
        own = [*base, *(told.get("extra_args") or ())]
        lines = {"": own} | {
            hardware: [*own, *(override.get("extra_args") or ())]
            for hardware, override in (told.get("hardware_overrides") or {}).items()
        }
        for hardware, words in lines.items():
            argv = ["vllm", "serve", str(target), *map(str, words)]
            yield Recipe(f"{name}#{variant}/{hardware}", "vllm recipe", shlex.join(argv), [argv])
