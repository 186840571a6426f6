"""JSON schemas of tools: the keywords that clients use, drafts of the past included."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.bench.judge.schema_check import matches_schema


@pytest.mark.parametrize(
    ("value", "schema", "is_valid"),
    [
        ([1], {"contains": {"type": "string"}}, False),
        ([1, "a"], {"contains": {"type": "string"}}, True),
        ([1], {"contains": {"type": "string"}, "minContains": 0}, True),
        (["a", "b"], {"contains": {"type": "string"}, "maxContains": 1}, False),
        ({"a": 1}, {"dependentRequired": {"a": ["b"]}}, False),
        ({"c": 1}, {"dependentRequired": {"a": ["b"]}}, True),
        ({"a": 1}, {"propertyNames": {"pattern": "^b"}}, False),
        ({"b": 1}, {"propertyNames": {"pattern": "^b"}}, True),
        (0.5, {"minimum": 0, "exclusiveMinimum": True}, True),
        (0.5, {"maximum": 1, "exclusiveMaximum": False}, True),
    ],
)
def test_a_value_is_checked_as_the_schema_says(value: Any, schema: Any, is_valid: bool) -> None:
    """A boolean bound is draft 4's, as OpenAPI 3.0 writes it: it constrains nothing, rather than everything above 1."""
    assert matches_schema(value, schema) is is_valid
