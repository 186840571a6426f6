"""The OpenAPI description of the control API, made from its table when somebody asks for it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from sparkdash import __version__
from sparkdash.api.answers import ErrorEnvelope
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import NoParameters
from sparkdash.api.rows import Call, Row
from sparkdash.domain.request import LEASE_HEADER
from sparkdash.gateway.control.routes import EVENTS, Handler

PATH = "/api/openapi.json"
HEADERS = [(b"content-type", b"application/json")]
_JSON = "application/json"
_REF = "#/components/schemas/{model}"
_EVENTS, _LINES = (EVENTS, {"type": "string"}), ("text/plain", {"type": "string"})
_STREAMS = {ControlApi.events: _EVENTS, ControlApi.pull: _EVENTS, ControlApi.logs: _LINES}
_ARGUMENTS = {
    **dict.fromkeys(
        (
            ControlApi.use, ControlApi.stop, ControlApi.toggle, ControlApi.replay,
            ControlApi.end_lease,
        ),
        (LEASE_HEADER, "The token of POST /api/lease"),
    ),
    ControlApi.events: ("last-event-id", "`since`, as browsers say it"),
}  # fmt: skip
"""Headers that a call heeds."""


async def document(handlers: Mapping[Row[...], Handler]) -> bytes:
    """Write the description; in a thread, as it takes a tenth of a second."""
    return await asyncio.to_thread(lambda: json.dumps(describe(handlers)).encode())


def describe(handlers: Mapping[Row[...], Handler]) -> dict[str, Any]:
    taken: dict[Row[...], tuple[Any, JsonSchemaMode]] = {
        row: (NoParameters if row.in_path else row.model, "validation") for row in handlers if row.method == "POST"
    }
    given: dict[Row[...], tuple[Any, JsonSchemaMode]] = {
        row: (row.answer, "serialization") for row in handlers if type(row) is Call
    }
    models = [*taken.values(), *given.values(), (ErrorEnvelope, "serialization")]
    refs, definitions = models_json_schema(models, ref_template=_REF)
    schemas: dict[Any, Any] = dict(refs)
    error = _content(_JSON, refs[ErrorEnvelope, "serialization"], "Any error")
    paths: dict[str, dict[str, Any]] = {}
    for row, handler in handlers.items():
        operation = _operation(row, handler, schemas.get(given.get(row)), schemas.get(taken.get(row)))
        operation["responses"]["default"] = error
        paths.setdefault(row.path.replace(":path}", "}"), {})[row.method.lower()] = operation
    info = {"title": "sparkdash control API", "version": __version__}
    components = {"schemas": _without_nulls(definitions["$defs"])}
    return {"openapi": "3.1.0", "info": info, "paths": _without_nulls(paths), "components": components}


def _operation(row: Row[...], handler: Handler, answer: Any, body: Any) -> dict[str, Any]:
    """Describe a call. `answer` and `body`: references to their schemas; None: it has none of the kind."""
    streamed = _content(*_STREAMS.get(row, (_JSON, {})), "A document, or a stream")
    operation = {
        "operationId": next(name for name, each in vars(ControlApi).items() if each is row),
        "summary": row.summary,
        "description": handler.__doc__ or row.summary,
        "parameters": _parameters(row),
        "responses": {
            str(getattr(row, "status", 200)): streamed if answer is None else _content(_JSON, answer, "The answer")
        },
    }
    if body is not None:
        operation["requestBody"] = {"content": {_JSON: {"schema": body}}, "required": True}
    return operation


def _without_nulls(value: Any) -> Any:
    """Leave out what is null, as the default of most members."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _content(kind: str, schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _parameters(row: Row[...]) -> list[dict[str, Any]]:
    """Describe what stands in a call's path, in the query of all but a POST, and in its headers."""
    schema = row.model.model_json_schema()
    needed, found = schema.get("required", ()), []
    for name, each in schema.get("properties", {}).items():
        place = "path" if name in row.in_path else "query"
        if place == "path" or row.method != "POST":
            told = {"description": each["description"]} if "description" in each else {}
            found.append({"name": name, "in": place, "required": name in needed, "schema": each, **told})
    if row in _ARGUMENTS:
        name, text = _ARGUMENTS[row]
        found.append(
            {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
        )
    return found
