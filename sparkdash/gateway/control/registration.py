"""Registration of handlers by the rows of the control API's table.

Owns: which of a row's facts the framework gets: path, method, status, summary and the model of the answer. The OpenAPI
document takes its descriptions from the handlers' docstrings. A handler that answers another type than its row does not
pass the type checker. Must not know what a handler does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from fastapi import APIRouter
from fastapi.responses import Response

from sparkdash.api.rows import Call, DocumentCall, Stream

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[..., Awaitable[T]]


def serves(api: APIRouter, row: Call[P, T], handler: Handler[T]) -> None:
    """Register the handler of a call."""
    api.add_api_route(
        row.path,
        handler,
        methods=[row.method],
        status_code=row.status,
        summary=row.summary,
        response_model=row.answer,
    )


def serves_raw(
    api: APIRouter,
    row: DocumentCall[P] | Stream[P, T],
    handler: Handler[Response],
    response_class: type[Response],
    responses: dict[int | str, dict[str, Any]],
) -> None:
    """Register the handler of a stream or a document, which writes its answer itself.

    `response_class` and `responses`: how the OpenAPI document describes the answer.
    """
    api.add_api_route(
        row.path,
        handler,
        methods=[row.method],
        summary=row.summary,
        response_class=response_class,
        responses=responses,
        response_model=None,
    )
