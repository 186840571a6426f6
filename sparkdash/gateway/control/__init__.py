"""Control: handlers of the `/api` routes."""

from fastapi import APIRouter, Depends, Request

from sparkdash.api.answers import ErrorEnvelope
from sparkdash.api.requests import ApiRequest
from sparkdash.gateway.admission.guard import check_json
from sparkdash.gateway.control import history, measuring, reading, switching, upkeep
from sparkdash.gateway.control.routes import set_caller

__all__ = ["router", "set_caller"]


def router() -> APIRouter:
    _build_request_models()
    api = APIRouter(
        dependencies=[Depends(_posts_json)],
        responses={"default": {"model": ErrorEnvelope, "description": "Any error"}},
    )
    for part in (reading, history, switching, measuring, upkeep):
        part.add_routes(api)
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
