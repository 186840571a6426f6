"""Reading of a request's body: into memory, or a large form of audio or pictures onto the disk.

Owns: which bodies go where. Must not know what becomes of the request. The model's name may stand behind a file of any
size, so a form is searched while it comes, and nobody waits for an engine before all of it is here.
"""

from __future__ import annotations

import asyncio

from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.form import FormScanner, form_boundary
from sparkdash.gateway.protocol.peek import PeekedBody, is_form, peek_body, peek_form
from sparkdash.gateway.protocol.route import Route
from sparkdash.gateway.shared.body_budget import BodyShare
from sparkdash.gateway.shared.kept_answer import KeptAnswer
from sparkdash.gateway.shared.upload import Upload
from sparkdash.units import MIB

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
        """Take the next part."""
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
