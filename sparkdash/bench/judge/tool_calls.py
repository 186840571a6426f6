"""Check of one answer to a client's own request: its tool calls, its JSON, and digests of what it decided.

Owns: what makes a tool call or a structured answer valid. Must not know: runs, arms, HTTP.
Rule: the result has no word of request or answer, only outcomes and digests.
Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from sparkdash.bench.judge.schema_check import matches_schema
from sparkdash.domain.base import Frozen

CUT_OFF = "length"
"""Finish reason of an answer that reached its limit."""


class ToolOutcome(StrEnum):
    """Outcome of the tool calls of one answer: the first fault, or valid."""

    VALID = "valid"
    NONE = "no call"
    CUT_OFF = "cut off"
    """The last call is no JSON because the answer reached its limit."""
    NOT_JSON = "not JSON"
    UNKNOWN_TOOL = "unknown tool"
    """The request offers no tool of this name, or not this one."""
    ARGUMENTS = "wrong arguments"
    """Arguments that do not satisfy the tool's own schema."""


class JsonOutcome(StrEnum):
    """Outcome of an answer to a request with `response_format`."""

    VALID = "valid"
    CUT_OFF = "cut off"
    NOT_JSON = "not JSON"
    SCHEMA = "against the schema"


class ToolCall(Frozen):
    """Tool call as an answer has it."""

    name: str
    arguments: str
    """JSON text, whole or not."""


class AnswerCheck(Frozen):
    """Checked answer. None: the request has no tools, or wants no JSON."""

    tools: ToolOutcome | None = None
    required: bool = False
    """Whether the request demands a call."""
    json_answer: JsonOutcome | None = None
    decision_sha256: str
    """Digest of the names of the called tools, in order."""
    answer_sha256: str
    """Digest of calls and arguments, of the JSON value, or of the words without their spacing."""


def check_answer(
    request: Mapping[str, Any], text: str, calls: Sequence[ToolCall], finish_reason: str | None
) -> AnswerCheck:
    """Check the answer to a chat request."""
    offered = _offered(request)
    is_cut = finish_reason == CUT_OFF
    wants_call = bool(offered) and _is_call_required(request.get("tool_choice"))
    is_structured = _wants_json(request) and not calls
    return AnswerCheck(
        tools=_tool_outcome(offered, calls, is_cut) if offered or calls else None,
        required=wants_call,
        json_answer=_json_outcome(request["response_format"], text, is_cut) if is_structured else None,
        decision_sha256=_digest([call.name for call in calls]),
        answer_sha256=_digest(_meaning(text, calls, is_structured)),
    )


def _offered(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of the tools that may be called, by name."""
    tools = request.get("tools")
    choice = request.get("tool_choice")
    if not isinstance(tools, list) or choice == "none":
        return {}
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    found = {
        str(one["name"]): one.get("parameters", True) for one in functions if isinstance(one, Mapping) and "name" in one
    }
    named = _named_tool(choice)
    return found if named is None else {name: schema for name, schema in found.items() if name == named}


def _named_tool(choice: Any) -> str | None:
    """Return the one tool that a request demands; None: any."""
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None


def _is_call_required(choice: Any) -> bool:
    return choice == "required" or _named_tool(choice) is not None


def _tool_outcome(offered: Mapping[str, Any], calls: Sequence[ToolCall], is_cut: bool) -> ToolOutcome:
    outcomes = (_call_outcome(offered, call, is_cut and call is calls[-1]) for call in calls)
    found = next((one for one in outcomes if one is not ToolOutcome.VALID), ToolOutcome.VALID)
    return found if calls else ToolOutcome.NONE


def _call_outcome(offered: Mapping[str, Any], call: ToolCall, is_cut: bool) -> ToolOutcome:
    if call.name not in offered:
        return ToolOutcome.UNKNOWN_TOOL
    is_json, arguments = _parsed(call.arguments or "{}")
    if not is_json:
        return ToolOutcome.CUT_OFF if is_cut else ToolOutcome.NOT_JSON
    is_valid = isinstance(arguments, Mapping) and matches_schema(arguments, offered[call.name])
    return ToolOutcome.VALID if is_valid else ToolOutcome.ARGUMENTS


def _wants_json(request: Mapping[str, Any]) -> bool:
    wanted = request.get("response_format")
    return isinstance(wanted, Mapping) and wanted.get("type") in ("json_object", "json_schema")


def _json_outcome(wanted: Mapping[str, Any], text: str, is_cut: bool) -> JsonOutcome:
    is_json, value = _parsed(text)
    if not is_json:
        return JsonOutcome.CUT_OFF if is_cut else JsonOutcome.NOT_JSON
    named = wanted.get("json_schema")
    schema = named.get("schema", True) if isinstance(named, Mapping) else True
    is_valid = isinstance(value, Mapping) if wanted["type"] == "json_object" else matches_schema(value, schema)
    return JsonOutcome.VALID if is_valid else JsonOutcome.SCHEMA


def _meaning(text: str, calls: Sequence[ToolCall], is_structured: bool) -> Any:
    """Return what answers that mean the same have in common."""
    if calls:
        return [[call.name, _parsed(call.arguments)[1]] for call in calls]
    is_json, value = _parsed(text) if is_structured else (False, None)
    return ["json", value] if is_json else ["words", text.split()]


def _parsed(text: str) -> tuple[bool, Any]:
    """Return (whether the text is JSON, its value, else the text)."""
    try:
        return True, json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False, text


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
