"""The FastAPI application of the control API, and its errors in the gateway's format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from http import HTTPStatus

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sparkdash import __version__
from sparkdash.api.answers import ErrorEnvelope
from sparkdash.api.requests import ApiRequest
from sparkdash.errors import AdmissionError, SparkdashError, expected
from sparkdash.gateway.admission.guard import check_json
from sparkdash.gateway.control import changing, reading
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.route import Dialect


def build_control_app() -> FastAPI:
    """Build the application; takes 50 ms."""
    api = FastAPI(
        title="sparkdash control API",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere, into the origin that may stop engines
        redoc_url=None,
        redirect_slashes=False,
    )
    routes = router()
    api.include_router(routes)
    api.add_exception_handler(SparkdashError, _expected_error)
    api.add_exception_handler(HTTPException, partial(_http_error, routes.routes))
    api.add_exception_handler(RequestValidationError, _invalid_request)
    api.add_exception_handler(Exception, _internal_error)
    return api


async def _expected_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SparkdashError)  # noqa: S101 - registered for it
    return _rendered(error)


async def _http_error(routes: Sequence[BaseRoute], request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    problem = problems.status_error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    response = _rendered(problem)
    response.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (allowed := _methods(request.url.path, routes)):
        response.headers["allow"] = ", ".join(allowed)
    return response


def _methods(path: str, routes: Iterable[BaseRoute]) -> list[str]:
    """List the methods of all routes that fit the path. Starlette itself names those of the first one only."""
    fitting = [one for one in routes if isinstance(one, Route) and one.path_regex.match(path)]
    exact = [one for one in fitting if one.path == path]
    return sorted({method for one in exact or fitting for method in one.methods or ()})


async def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    return _rendered(
        AdmissionError(f"{where}: {expected(first)}.", code="invalid_request", hint="See GET /api/openapi.json.")
    )


async def _internal_error(_request: Request, _error: Exception) -> Response:
    return _rendered(SparkdashError("sparkdash itself failed on this request.", hint="Its log says more."))


def _rendered(error: SparkdashError) -> Response:
    headers = {name.decode(): value.decode() for name, value in problems.error_headers(error)}
    return JSONResponse(problems.error_body(error, Dialect.OTHER), error.status, headers)


def router() -> APIRouter:
    _build_request_models()
    api = APIRouter(
        dependencies=[Depends(_posts_json)],
        responses={"default": {"model": ErrorEnvelope, "description": "Any error"}},
    )
    reading.add_routes(api)
    changing.add_routes(api)
    return api


def _build_request_models() -> None:
    """Build the validators that `api.requests` leaves unbuilt for the sake of the clients' start.

    FastAPI's adapter of a body would inherit that it is built late, and warn of its own alias then.
    """
    for model in ApiRequest.__subclasses__():
        model.model_config["defer_build"] = False
        model.model_rebuild()


async def _posts_json(request: Request) -> None:
    if request.method == "POST":
        check_json(request.headers.get("content-type", ""))
