"""Answers to the owner's own requests: which tool calls and JSON are valid, and which answers are the same."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from sparkdash.bench.judge.schema_check import matches_schema
from sparkdash.bench.judge.tool_calls import AnswerCheck, JsonOutcome, ToolCall, ToolOutcome, check_answer
from sparkdash.bench.measure.call_parts import CallParts

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}, {"function": {"name": "now"}}]
STRUCTURED = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}


def called(name: str, arguments: str, finish: str = "tool_calls", **more: Any) -> ToolOutcome | None:
    call = ToolCall(name=name, arguments=arguments)
    return check_answer({"tools": TOOLS, **more}, "", [call], finish).tools


@pytest.mark.parametrize(
    ("outcome", "name", "arguments"),
    [
        (ToolOutcome.VALID, "weather", '{"city": "Ulm", "days": 2}'),
        (ToolOutcome.VALID, "now", ""),
        (ToolOutcome.ARGUMENTS, "weather", "{}"),
        (ToolOutcome.ARGUMENTS, "weather", '{"city": "Ulm", "days": 2.5}'),
        (ToolOutcome.ARGUMENTS, "weather", '{"city": "Ulm", "land": "DE"}'),
        (ToolOutcome.ARGUMENTS, "weather", '["Ulm"]'),
        (ToolOutcome.ARGUMENTS, "now", '"at once"'),
        (ToolOutcome.NOT_JSON, "weather", '{"city": "Ulm"'),
        (ToolOutcome.NOT_JSON, "weather", '{"city": NaN}'),
        (ToolOutcome.UNKNOWN_TOOL, "wether", '{"city": "Ulm"}'),
    ],
)
def test_a_call_is_checked_against_the_requests_own_schema(outcome: ToolOutcome, name: str, arguments: str) -> None:
    """A tool without parameters takes any object; no arguments are an empty one."""
    assert called(name, arguments) is outcome


def test_the_choice_of_tool_is_part_of_the_check() -> None:
    """`none` allows none, a named tool no other; what the limit cut off is no broken call."""
    named = {"type": "function", "function": {"name": "now"}}
    assert called("weather", '{"city": "Ulm"}', tool_choice="none") is ToolOutcome.UNKNOWN_TOOL
    assert called("weather", '{"city": "Ulm"}', tool_choice=named) is ToolOutcome.UNKNOWN_TOOL
    assert called("weather", '{"city": "U', "length") is ToolOutcome.CUT_OFF
    silent = check_answer({"tools": TOOLS, "tool_choice": named}, "It is noon.", [], "stop")
    assert (silent.tools, silent.required) == (ToolOutcome.NONE, True)
    assert check_answer({"messages": []}, "Hi.", [], "stop").tools is None


@pytest.mark.parametrize(
    ("outcome", "text", "finish"),
    [
        (JsonOutcome.VALID, ' {"city": "Ulm"} ', "stop"),
        (JsonOutcome.SCHEMA, '{"city": 1}', "stop"),
        (JsonOutcome.NOT_JSON, '```json\n{"city": "Ulm"}\n```', "stop"),
        (JsonOutcome.CUT_OFF, '{"city": "U', "length"),
    ],
)
def test_json_is_checked_where_the_request_wants_it(outcome: JsonOutcome, text: str, finish: str) -> None:
    """As its reader would parse it: a fence around it breaks it. A tool call is another answer."""
    assert check_answer({"response_format": STRUCTURED}, text, [], finish).json_answer is outcome
    call = ToolCall(name="now", arguments="{}")
    assert check_answer({"tools": TOOLS, "response_format": STRUCTURED}, "", [call], "tool_calls").json_answer is None
    assert check_answer({"response_format": {"type": "text"}}, text, [], finish).json_answer is None


def test_a_json_object_is_any_object() -> None:
    """`json_object` has no schema; a list is no object."""
    wanted = {"response_format": {"type": "json_object"}}
    assert check_answer(wanted, "{}", [], "stop").json_answer is JsonOutcome.VALID
    assert check_answer(wanted, "[]", [], "stop").json_answer is JsonOutcome.SCHEMA


def test_answers_agree_when_they_mean_the_same() -> None:
    """The order of keys and the spacing mean nothing, arguments and words do. No word is kept."""

    def calls(*arguments: str) -> AnswerCheck:
        return check_answer({"tools": TOOLS}, "", [ToolCall(name="weather", arguments=one) for one in arguments], None)

    one, same, other = calls('{"city":"Ulm","days":2}'), calls('{"days": 2, "city": "Ulm"}'), calls('{"city":"Bonn"}')
    assert one == same
    assert (one.answer_sha256 == other.answer_sha256, one.decision_sha256 == other.decision_sha256) == (False, True)
    assert calls("{}", "{}").decision_sha256 != calls("{}").decision_sha256
    said = [
        check_answer({}, text, [], "stop").answer_sha256 for text in ("It is  noon.\n", "It is noon.", "It is one.")
    ]
    assert said[0] == said[1] != said[2]
    wanted = {"response_format": STRUCTURED}
    assert check_answer(wanted, '{"a":1,"b":2}', [], None) == check_answer(wanted, '{"b": 2, "a": 1}', [], None)
    assert "Ulm" not in one.model_dump_json()


SCHEMAS: list[Any] = [
    True,
    CITY,
    {"type": ["string", "null"], "minLength": 2, "maxLength": 3},
    {"enum": [1, "a", None, [True]]},
    {"const": {"a": 1}},
    {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "uniqueItems": True},
    {"uniqueItems": True},
    {"anyOf": [{"type": "string"}, {"type": "integer", "multipleOf": 2}]},
    {"oneOf": [{"type": "number"}, {"minimum": 2}]},
    {"allOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}]},
    {"if": {"type": "string"}, "then": {"pattern": "^a"}, "else": {"type": "object"}},
    {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"minProperties": 1, "maxProperties": 1},
    {"$defs": {"node": {"properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["a"]}}, "$ref": "#/$defs/node"},
    {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}},
]
VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, 2.0, 2.5, -1, "", "a", "ab", "abcd", [], [True], [1], [1, 1], [1, True], ["a"], ["a", "a"],
    [1.5, 2, 3], {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"a": {}, "b": 2}, {"a": {"a": 1}}, {"a": 1, "b": 2}, {"ab": 1, "c": "d"},
    {"city": "Ulm"}, {"city": "Ulm", "days": 8}, {"city": "Ulm", "days": True}, {"city": "Ulm", "x": 1},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:40])
def test_values_satisfy_a_schema_as_the_reference_says(schema: Any) -> None:
    """By the jsonschema package, value by value."""
    reference = jsonschema.Draft202012Validator(schema)
    found = {json.dumps(value): matches_schema(value, schema) for value in VALUES}
    assert found == {json.dumps(value): reference.is_valid(value) for value in VALUES}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "object"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"required": 3},
        {"properties": None},
        {"multipleOf": 0},
        {"pattern": "("},
        {"$ref": "https://example.com/other.json"},
    ],
)
def test_a_schema_that_cannot_be_followed_constrains_nothing(schema: Any) -> None:
    """Malformed, endless or elsewhere: the check ends, and blames no answer."""
    assert all(matches_schema(value, schema) for value in ({"a": 1}, {}))


def test_calls_are_joined_from_their_pieces() -> None:
    """By index; a whole call without one is a call of its own, and anything else is left out."""
    parts = CallParts()
    for pieces in (
        [{"index": 0, "id": "x", "function": {"name": "a", "arguments": ""}}],
        [{"index": 1, "function": {"name": "b", "arguments": "{}"}}, {"index": 0, "function": {"arguments": '{"c"'}}],
        [{"index": 0, "function": {"name": None, "arguments": ":1}"}}],
        [{"function": {"name": "d"}}, {"function": 3}, 4],
        None,
    ):
        parts.add(pieces)
    assert [(call.name, call.arguments) for call in parts.joined()] == [("a", '{"c":1}'), ("b", "{}"), ("d", "")]
