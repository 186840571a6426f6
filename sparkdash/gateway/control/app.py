"""The control API as one application: which handler a call belongs to, and what it asks for."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError

from sparkdash.api.requests import NoParameters
from sparkdash.api.rows import Row
from sparkdash.errors import AdmissionError, SparkdashError, expected
from sparkdash.gateway.admission.guard import check_json
from sparkdash.gateway.control import changing, openapi, reading
from sparkdash.gateway.control.routes import ControlCall, Handler
from sparkdash.gateway.http.channel import ClientGone
from sparkdash.gateway.protocol.problems import status_error
from sparkdash.limits import shown
from sparkdash.log import LOG

HANDLERS: Mapping[Row[...], Handler] = {**reading.HANDLERS, **changing.HANDLERS}
_PATTERNS = {row: re.compile(row.pattern, re.DOTALL) for row in HANDLERS}


async def serve_call(call: ControlCall, body: bytes) -> None:
    """Answer one call of the control API."""
    exchange = call.exchange
    try:
        if (exchange.method, exchange.head.path) == ("GET", openapi.PATH):
            await exchange.answer(200, await openapi.document(HANDLERS), openapi.HEADERS)
            return
        row, named = _find(call)
        if row.method == "POST":
            check_json(exchange.head.content_type)
        await call.answer(row, await HANDLERS[row](call, _asked(row, named, exchange.query, body)))
    except ClientGone:
        return
    except SparkdashError as error:
        await call.refuse(error)
    except Exception:
        LOG.exception("sparkdash failed on a call", path=exchange.head.path)
        await call.refuse(SparkdashError("sparkdash itself failed on this request.", hint="Its log says more."))
    if call.after_answer is not None:
        await call.after_answer()


def _find(call: ControlCall) -> tuple[Row[...], dict[str, str]]:
    """Find the call's row, and the parameters that its path names. Raises SparkdashError: 404, or 405 with Allow."""
    method, path = call.exchange.method, call.exchange.head.path
    fitting = {row: found.groupdict() for row, pattern in _PATTERNS.items() if (found := pattern.fullmatch(path))}
    for row, named in fitting.items():
        if row.method == method:
            return row, named
    if not fitting:
        raise status_error(404, f"{method} {shown(path)}: Not Found")
    exact = [row for row in fitting if row.path == path]
    allowed = ", ".join(sorted({row.method for row in exact or fitting}))
    call.exchange.add_extra_header(b"allow", allowed.encode())
    raise status_error(405, f"{method} {shown(path)}: Method Not Allowed")


def _asked(row: Row[...], named: Mapping[str, str], query: str, body: bytes) -> BaseModel:
    """Read the parameters of a call. Raises AdmissionError `invalid_request`."""
    model = row.model
    try:
        if row.method == "POST":
            asked = (NoParameters if named else model).model_validate_json(body)
            return model.model_validate(named) if named else asked
        given = parse_qs(query, keep_blank_values=True)
        values = {name: found if len(found) > 1 else found[0] for name, found in given.items()}
        known = {name: value for name, value in values.items() if name in model.model_fields}
        return model.model_validate({**known, **named}, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        text = f"{where}: {expected(first)}."
        raise AdmissionError(text, code="invalid_request", hint="See GET /api/openapi.json.") from None
