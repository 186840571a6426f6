"""Engine part of a sparkrun recipe for Atlas, which has no command: its `defaults` are the server's flags.

Pure.
"""

from __future__ import annotations

from typing import Any

from sparkdash.catalog.importers.engine_line import EnginePart
from sparkdash.catalog.importers.report import ImportNotes, import_refused
from sparkdash.catalog.importers.values import model_ref

RUNTIME = "atlas"
_FLAGS = {
    "max_model_len": "max-seq-len",
    "max_num_batched_tokens": "max-prefill-tokens",
    "tensor_parallel": "tp-size",
    "served_model_name": "model-name",
}
"""Keys of `defaults` whose flag has another name (sparkrun 0.2.40, runtimes/atlas.py)."""
HUB = {"source": "~/.cache/huggingface", "target": "/root/.cache/huggingface", "read_only": False}
"""Where Atlas looks for weights, and the owner's own cache."""


def atlas_engine(recipe: dict[str, Any], notes: ImportNotes) -> EnginePart:
    """Return the engine part of a recipe with `runtime: atlas`.

    Raises:
        ProfileError: the recipe names no model, or has a command.
    """
    if not isinstance(model := recipe.get("model"), str) or "command" in recipe:
        raise import_refused("The recipe for Atlas has no `model`, or a command of its own.")
    engine = EnginePart("generic", models={"target": model_ref(model)})
    defaults = recipe.get("defaults")
    for key, value in defaults.items() if isinstance(defaults, dict) else ():
        name = _FLAGS.get(str(key), str(key).replace("_", "-"))
        if name in ("host", "port"):
            notes.dropped(f"--{name}", "sparkdash sets the address itself")
        elif name == "model-name":
            engine.names.append(str(value))
        elif value is not None and value is not False:  # a 0 is a value
            engine.args[name] = value
    return engine


def as_atlas(made: dict[str, Any]) -> dict[str, Any]:
    """Make the assembled profile one of the known server Atlas; it starts on one box only."""
    made |= {"server": {"kind": "atlas"}, "mounts": [HUB]}
    if (nodes := made.pop("nodes", 1)) > 1:
        made["cannot_run"] = f"it needs {nodes} boxes, and sparkdash starts Atlas on one"
    return made
