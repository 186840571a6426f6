"""How a control route is registered, what its handler gets of its caller, and how streams are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from sparkdash.api.rows import Call, DocumentCall, Stream
from sparkdash.domain.container import PullProgress
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import key_check
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http import event_feed
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.frames import event_frame
from sparkdash.keyring import Key
from sparkdash.redaction import masked

_DEPS, _KEY = "sparkdash.deps", "sparkdash.key"


def set_caller(scope: Scope, deps: Deps, key: Key | None) -> None:
    """Put the caller's key and the dependencies that the caller may see into the request's scope."""
    scope[_DEPS], scope[_KEY] = deps, key


async def _caller_deps(request: Request) -> Deps:  # a plain function would be run in a thread
    deps: Deps = request.scope[_DEPS]
    return deps


async def _key_check(request: Request) -> Callable[[], bool]:
    deps: Deps = request.scope[_DEPS]
    return key_check(request.scope[_KEY], deps.keys, deps.clock)


async def _caller_key(request: Request) -> Key | None:
    key: Key | None = request.scope[_KEY]
    return key


CallerDeps = Annotated[Deps, Depends(_caller_deps)]
"""Parameter of every control route."""
CallerKey = Annotated[Key | None, Depends(_caller_key)]
"""Parameter of routes that send a request on their caller's behalf: the key, None where none was needed."""
KeyCheck = Annotated[Callable[[], bool], Depends(_key_check)]
"""Parameter of routes whose answer has no end: whether the caller's key still holds."""
LeaseToken = Annotated[str | None, Header(description="The token of POST /api/lease")]
"""Parameter of routes that a lease reserves for its holder."""


T = TypeVar("T")


NO_BENCH = ("Nothing is measured here.", "no_bench")


def required(found: T | None, text: str, code: str, hint: str | None = None) -> T:
    """Return what this daemon has. Raises AdmissionError: 404 `code`, where it has none."""
    if found is None:
        raise AdmissionError(text, code=code, status=404, hint=hint)
    return found


P = ParamSpec("P")
Handler = Callable[..., Awaitable[T]]


def serves(api: APIRouter, row: Call[P, T], handler: Handler[T]) -> None:
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
    """Register a handler that writes its answer itself; `responses` describe it in the OpenAPI document."""
    api.add_api_route(
        row.path,
        handler,
        methods=[row.method],
        summary=row.summary,
        response_class=response_class,
        responses=responses,
        response_model=None,
    )


_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
_ANY_ERROR = {"description": "Any error", "content": _ERROR}
"""Stated where an answer is no JSON: FastAPI would describe the error with the media type of the answer."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {}}}, "description": "Server-sent events"},
    "default": _ANY_ERROR,
}
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Lines, as they come"},
    "default": _ANY_ERROR,
}
DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {}}}, "description": "As `sparkdash bench show --json` writes it"}
}


class FeedResponse(Response):
    """The feed to one listener, sent as raw ASGI messages: no task and no encoding per listener and event."""

    media_type = "text/event-stream"

    def __init__(self, deps: Deps, key_holds: Callable[[], bool], since: int | None, status_code: int = 200) -> None:
        super().__init__(status_code=status_code)
        self._deps, self._key_holds, self._since = deps, key_holds, since

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        deps, exchange = self._deps, Exchange.from_asgi(scope, receive, send)
        await event_feed.serve_feed(deps.bus, deps.event_encoder, exchange, self._since, holds=self._key_holds)


async def encode_lines(lines: AsyncIterator[str], key_holds: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Encode lines, secrets masked, until the caller's key no longer `key_holds`.

    A failure after the first line becomes the last line, as the status has gone out.
    """
    try:
        async for line in lines:
            if not key_holds():
                return
            yield masked(line).encode("utf-8", "replace") + b"\n"
    except SparkdashError as error:
        yield f"sparkdash: {error.text()}\n".encode()


async def encode_pull(steps: AsyncIterator[PullProgress]) -> AsyncIterator[bytes]:
    """Encode the steps of a pull as events; a failure becomes the last event."""
    try:
        async for step in steps:
            yield event_frame("progress", step.model_dump(mode="json"))
    except SparkdashError as error:
        yield event_frame("error", problems.error_body(error))
