"""The published schema agrees with what the loader takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sparkdash.catalog.document import Document, read_document
from sparkdash.catalog.jsonschema import profile_schema
from sparkdash.paths import shipped_profiles

CHECKER = jsonschema.Draft202012Validator(profile_schema())
GOOD: dict[str, Any] = {"profile": "tiny", "engine": "vllm", "image": "i", "models": {"target": {"path": "/m"}}}


@pytest.mark.parametrize("path", sorted(shipped_profiles().glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_profile_is_valid(path: Path) -> None:
    document = read_document(path)
    assert isinstance(document, Document)
    assert [error.message for error in CHECKER.iter_errors(document.data)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"imgae": "x"}, {"engine": "vlm"}, {"engine_version": 0.19}, {"nodes": 0}, {"profile": "a/b"},
        {"models": {"target": {"pth": "/m"}}}, {"models": {"target": {"path": "/m", "hf": "a/b"}}},
        {"memory": {"weights_gib": -1}}, {"env": {"A": 1}}, {"env_from": ["A=b"]}, {"silence": {"enforce-eager": ""}},
        {"published": [{"workload": "w"}]}, {"variants": ["a"]}, {"variants": {"a b": {}}},
        {"variants": {"a": {"arg": {}}}}, {"source": "x"}, {"name": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_planted_mistakes_are_marked(wrong: dict[str, Any]) -> None:
    assert CHECKER.is_valid(GOOD)
    assert not CHECKER.is_valid(GOOD | wrong)


def test_a_variant_may_remove_what_its_base_gives() -> None:
    variant = {"env": {"A": None}, "models": {"drafter": None}, "memory": {"kv_gib": None}, "extends": None}
    assert CHECKER.is_valid(GOOD | {"variants": {"v": variant, "empty": None}})


def test_keys_carry_their_descriptions() -> None:
    schema = profile_schema()
    assert schema["properties"]["command"]["description"].startswith("The program in the container")
    assert schema["$defs"]["Published"]["properties"]["kv_tokens"]["description"] == "Tokens that the KV cache holds."
