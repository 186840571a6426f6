"""Admission of a request whose body is understood: its model, its key's models, its urgency."""

from __future__ import annotations

import asyncio

from sparkdash.domain.base import per_request
from sparkdash.domain.profile import AUTO, Profile
from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission.access import may_see, permitted_name
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.answer_text import KeptAnswer
from sparkdash.gateway.protocol.peek import (
    FormScanner,
    PeekedBody,
    form_boundary,
    is_batch,
    is_form,
    peek_body,
    peek_form,
)
from sparkdash.gateway.protocol.route import Route
from sparkdash.gateway.relay.destinations import find_profile, refuse_unserved, resolve_model
from sparkdash.gateway.shared.bodies import BodyShare, Upload
from sparkdash.limits import shown
from sparkdash.units import MIB


@per_request
class RequestContext:
    """Request, understood and admitted."""

    deps: Deps
    exchange: Exchange
    route: Route
    body_share: BodyShare
    """Holds the body until an engine's answer begins."""
    peeked: PeekedBody
    name: str
    """Name for the supervisor."""
    profile: Profile | None
    """Profile of `name`, if it was read; None for `auto` and for an unknown name."""
    batch: bool
    """Whether other requests may go first."""
    upload: Upload | None = None
    """Body that is on disk, in place of the share's."""


AGENT_KEPT = 200
"""Characters of a User-Agent that identify a client."""


def admit_request(
    deps: Deps,
    exchange: Exchange,
    route: Route,
    body_share: BodyShare,
    peeked: PeekedBody,
    upload: Upload | None = None,
) -> RequestContext:
    """Find what the request's model means, and whether it may have it. `upload`: its body, where it is on disk.

    Raises:
        AdmissionError: `model_missing`, `invalid_priority`, `route_not_served`, `held`, or what a key may not use.
    """
    head, key = exchange.head, exchange.key
    batch = is_batch(head.priority, peeked.service_tier, by_key=key is not None and key.batch)
    if peeked.model is None and route.needs_model:
        raise _no_model(route)
    catalog = deps.catalog()
    asked = route.profile or peeked.model or AUTO
    name, profile = resolve_model(
        asked,
        catalog,
        deps.settings.model_names,
        deps.choices(),
        lambda: deps.bus.snapshot,
        lambda one: may_see(key, one),
    )
    if key is not None:
        name = permitted_name(key, name, catalog, lambda: deps.bus.snapshot, route.task)
        profile = find_profile(name, catalog)
    refuse_unserved(profile, route)
    deps.exclusive.admit(head.token)
    return RequestContext(deps, exchange, route, body_share, peeked, name, profile, batch, upload)


def _no_model(route: Route) -> AdmissionError:
    return AdmissionError(
        f"The request to {route.path} names no model.",
        code="model_missing",
        hint='Add "model": the name of a profile (GET /v1/models lists them), or "auto" for whatever runs now.',
    )


def client_identity(exchange: Exchange) -> str | None:
    """Identify the client by its key and its User-Agent."""
    agent, key = exchange.head.agent[:AGENT_KEPT], exchange.key
    return f"{key.name} {agent}" if key is not None else agent or None


def row_profile(context: RequestContext) -> str:
    """Name the profile in the row until a lease tells it: the profile of the client's word, or the word itself."""
    if context.profile is not None:
        return context.profile.name
    runs = context.deps.bus.snapshot.auto(context.route.task) if context.name == AUTO else None
    return runs or shown(context.name)


MEMORY = MIB
"""Bytes of a form that are kept in memory; a larger one goes to the disk."""


async def read_body(deps: Deps, exchange: Exchange, route: Route, share: BodyShare) -> tuple[PeekedBody, Upload | None]:
    """Read the body into `share`, or into an upload that ends with the share; return what it says.

    Raises as `Exchange.body` does; AdmissionError: `invalid_json`, `invalid_model`, `invalid_form`, `disk_full`.
    """
    settings, content_type = deps.settings, exchange.head.content_type
    if route.generates or not is_form(content_type):
        share.body = await exchange.body(settings.body_limit_mib, share, settings.body_s)
        await _capture(deps, exchange, share.body)
        return (peek_body(share.body, content_type) if route.profile is None else PeekedBody()), None
    scanner = FormScanner(form_boundary(content_type)) if route.profile is None else None
    reader = _FormReader(deps, share, scanner)
    await exchange.read_body(reader.take, settings.upload_limit_mib, settings.body_s, "upload_limit_mib")
    upload = await reader.end()
    await _capture(deps, exchange, share.body)
    return (PeekedBody() if scanner is None else peek_form(scanner)), upload


async def _capture(deps: Deps, exchange: Exchange, body: bytes) -> None:
    """Have the capture keep the request, broken ones too; uploads are too large for it."""
    if deps.capture is not None and body:
        kept = exchange.kept = exchange.kept or KeptAnswer(deps.new_id())
        await asyncio.to_thread(deps.capture.keep, exchange, body, deps.clock(), kept.request_id)


class _FormReader:
    """Takes a form's parts; no more than MEMORY of them stays in memory."""

    def __init__(self, deps: Deps, share: BodyShare, scanner: FormScanner | None) -> None:
        self._deps = deps
        self._share = share
        self._scanner = scanner
        self._memory = bytearray()
        self._upload: Upload | None = None

    async def take(self, part: bytes) -> None:
        if self._scanner is not None:
            self._scanner.feed(part)
        if self._upload is not None:
            await self._upload.append(part)
        elif len(self._memory) + len(part) <= MEMORY:
            self._share.reserve(len(part))
            self._memory += part
        else:
            upload = self._upload = await self._deps.uploads.begin()
            self._share.release()
            self._share.on_release(upload.close)
            kept, self._memory = bytes(self._memory), bytearray()
            await upload.append(kept)
            await upload.append(part)

    async def end(self) -> Upload | None:
        """Finish what was begun; a form in memory is the share's body."""
        if self._upload is None:
            self._share.body = bytes(self._memory)
        else:
            await self._upload.flush()
        return self._upload
