"""JSON Schema (draft 2020-12) of a profile file, made from the models that read it and their docstrings."""

from typing import Any

from pydantic import BaseModel

from sparkdash.catalog.schema import EXTENDS, MERGED, PARTS, PROFILE_KEYS
from sparkdash.domain.base import field_docstrings
from sparkdash.domain.images import ImageBuild
from sparkdash.domain.profile import Profile

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NAME = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]*$"}


def profile_schema() -> dict[str, Any]:
    made = Profile.model_json_schema()
    parts = made.get("$defs", {})
    models: list[type[BaseModel]] = [ImageBuild, *PARTS.values()]
    for model in models:
        _describe(parts[model.__name__]["properties"], model)
    parts["ModelRef"]["oneOf"] = [{"required": ["path"]}, {"required": ["hf"]}]
    keys = {key: schema for key, schema in made["properties"].items() if key in PROFILE_KEYS}
    _describe(keys, Profile)
    keys["serves"]["items"] = {"type": ["string", "object"], "additionalProperties": {"type": ["string", "object"]}}
    for each in (keys["nodes"], keys["parallel"]["additionalProperties"]):  # one number, or several as [2, 4]
        each |= {"type": ["integer", "array"], "items": {"type": "integer", "minimum": 1}}
    for name in ("MemoryNeed", "SimSpec", "ServerSpec"):  # a variant changes one figure, and null removes one
        parts[name]["properties"] = {key: _or_null(schema) for key, schema in parts[name]["properties"].items()}
    variant = {key: _nullable(key, schema) for key, schema in keys.items()}
    variant[EXTENDS] = {"type": ["string", "null"], "description": "Another variant to grow out of; null: nothing."}
    parts["Variant"] = {"type": ["object", "null"], "additionalProperties": False, "properties": variant}
    family: dict[str, Any] = {
        "profile": {**_NAME, "description": "The family's name; clients use it as the model's name."},
        "variants": {
            "type": ["object", "null"],
            "propertyNames": _NAME,
            "additionalProperties": {"$ref": "#/$defs/Variant"},
            "description": "Further profiles `family/variant`, each by what it changes of the base.",
        },
    }
    return {
        "$schema": DRAFT,
        "title": "sparkdash profile",
        "type": "object",
        "additionalProperties": False,
        "required": ["profile", "engine"],
        "properties": family | {key: _or_null(schema) for key, schema in keys.items()},
        "$defs": parts,
    }


def _describe(properties: dict[str, Any], model: type[BaseModel]) -> None:
    """Set each field's description to the docstring after it in the source; generated titles go."""
    words = field_docstrings(model)
    for key, schema in properties.items():
        schema.pop("title", None)
        if key in words:
            schema["description"] = " ".join(words[key].split())


def _nullable(key: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Allow null in a variant, which removes a key, also inside a merged mapping or of `models`."""
    inner = schema.get("additionalProperties")
    if (key in MERGED or key == "models") and isinstance(inner, dict):
        schema = {**schema, "additionalProperties": _or_null(inner)}
    return _or_null(schema)


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    outside: dict[str, Any] = {key: schema[key] for key in ("description", "default") if key in schema}
    rest = {key: value for key, value in schema.items() if key not in outside}
    return {"anyOf": [rest, {"type": "null"}], **outside}
