"""Dispatch: sends one request to the engine that was granted, in a form that this engine understands.

Owns: where the request is sent, and whether the translator carries it. Must not know how a lease is got, nor what
becomes of the answer (`reply` does).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sparkdash.errors import UpstreamError
from sparkdash.gateway.http.flow_control import ClientStuck
from sparkdash.gateway.http.headers import headers_for_engine
from sparkdash.gateway.ports import LeasePort
from sparkdash.gateway.protocol.prepare import PreparedBody, engine_name
from sparkdash.gateway.relay import fallbacks, remote, tunnel
from sparkdash.gateway.relay.answer_errors import log_hint
from sparkdash.gateway.relay.model_names import find_profile
from sparkdash.gateway.relay.reply import Reply
from sparkdash.gateway.relay.request_context import RequestContext
from sparkdash.gateway.relay.served_routes import refuse_unserved, server_path
from sparkdash.gateway.shared.upload import Upload, UploadBody
from sparkdash.gateway.translate import words
from sparkdash.gateway.translate.needed import TRANSLATED, needs_translation
from sparkdash.gateway.translate.translator import Translator
from sparkdash.units import duration
from sparkdash.upstream import EngineResponse, encode_headers

UNKNOWN_PATH = frozenset({404, 405, 501})
"""Statuses of an engine that does not speak the protocol. The model is requested by its own name, so it is not the
cause."""

WORDS_LIMIT = 64 * 1024
"""Bytes of an error body that are read."""


def start_translator_early(context: RequestContext, name: str, translator: Translator) -> None:
    """Start the translator while the request waits, if the engine of `name` will need it."""
    if context.route.path in TRANSLATED:
        profile = find_profile(name, context.deps.catalog())
        if profile is not None and needs_translation(profile, None, context.route):
            translator.start_early()


async def dispatch_request(
    context: RequestContext, lease: LeasePort, reply: Reply, on_client_stuck: Callable[[ClientStuck], object]
) -> None:
    """Send the request to the engine of this lease, and hand its answer to `reply`.

    `on_client_stuck`: see `Reply.take`. The request can be dispatched again until the reply releases its body.

    Raises:
        UpstreamError: the engine did not answer, or broke off.
        HostError: there is no translator, and the engine needs one; or a remote service refused.
    """
    refuse_unserved(lease.profile, context.route)  # `auto` may mean a server with other routes
    deps, is_remote = context.deps, remote.is_remote(lease.profile)
    translator = deps.translator if context.route.path in TRANSLATED else None
    sent_at = deps.monotonic()
    needed = False if translator is None else _must_translate(context, lease, translator)
    if needed is not True:
        prepared = _prepare(context, lease)
        uploaded = None if context.upload is None else _renamed_upload(context.upload, context, lease)
        opened = _open(context, lease, uploaded or prepared.body, is_remote=is_remote)
        prepared = prepared._replace(body=b"")  # the body is freed once an answer comes
        async with opened as answer:
            if needed is False or answer.status not in UNKNOWN_PATH:
                if is_remote:
                    await _raise_remote_refusal(context, lease, answer)
                local = None if is_remote else lease
                await reply.take(answer, sent_at, on_client_stuck, lease=local, prepared=prepared)
                return
    assert translator is not None  # noqa: S101 - without one nothing is needed of it
    translator.unsupported.add(_incarnation(context, lease))
    async with _open_translated(context, lease, translator) as answer:
        if is_remote:
            await _raise_remote_refusal(context, lease, answer)
        await reply.take(answer, sent_at, on_client_stuck, lease=None if is_remote else lease)


async def dispatch_websocket(
    context: RequestContext, lease: LeasePort, reply: Reply, cancel: Callable[[BaseException], object]
) -> None:
    """Ask the engine of this lease for a WebSocket, and pass its bytes; a refusal is passed on as any answer.

    Raises UpstreamError: the engine did not answer.
    """
    deps, local = context.deps, None if remote.is_remote(lease.profile) else lease
    try:
        async with asyncio.timeout(tunnel.HANDSHAKE_S) as limit, _open_websocket(context, lease) as answer:
            limit.reschedule(None)
            if answer.upgraded is not None:
                reply.open_tunnel(answer)
                await tunnel.Tunnel(context, answer.upgraded, cancel).run()
                reply.end_tunnel()
                return
            if local is None:
                await _raise_remote_refusal(context, lease, answer)
            await reply.take(answer, deps.monotonic(), cancel, lease=local)
    except TimeoutError:
        raise UpstreamError(
            f"{lease.profile.name} did not answer the WebSocket's handshake within {duration(tunnel.HANDSHAKE_S)}.",
            code="engine_timeout",
            status=504,
            hint=log_hint(lease.profile.name),
        ) from None


def _open_websocket(context: RequestContext, lease: LeasePort) -> AbstractAsyncContextManager[EngineResponse]:
    head, path = context.exchange.head, server_path(lease.profile, context.route.path)
    if query := tunnel.query_for_engine(head.query, context.peeked.model, lease.names):
        path = f"{path}?{query}"
    if remote.is_remote(lease.profile):
        url, called = remote.remote_url(lease.profile, lease.url, path), None
        passed = list(remote.headers_for_remote(head.raw_headers, lease.headers))
    else:
        url, called = lease.url.rstrip("/") + path, lease.profile.name
        passed = headers_for_engine(head.raw_headers, b"", lease.headers)
    headers = encode_headers(tunnel.handshake_headers(head.raw_headers, passed))
    return context.deps.upstream.open("GET", url, headers, b"", called, upgrades=True)


def _must_translate(context: RequestContext, lease: LeasePort, translator: Translator) -> bool | None:
    """Whether the request must be translated; None: the engine's 404 will tell."""
    needed = needs_translation(lease.profile, lease.engine.version, context.route)
    if needed is None and _incarnation(context, lease) in translator.unsupported:
        return True
    return needed if needed is not None or translator.installed else False


async def _raise_remote_refusal(context: RequestContext, lease: LeasePort, answer: EngineResponse) -> None:
    """Raise HostError for an answer of a remote service that is reworded, or that a fallback may replace."""
    if remote.is_reworded(answer.status, others=bool(fallbacks.fallback_names(context))):
        again = next((value.decode("latin-1") for name, value in answer.headers if name == b"retry-after"), None)
        raise remote.remote_refusal(lease.profile, answer.status, await answer.read(WORDS_LIMIT), lease.headers, again)


def _prepare(context: RequestContext, lease: LeasePort) -> PreparedBody:
    if context.upload is not None:
        return PreparedBody(b"")
    return context.deps.preparer.prepare(
        context.body_share.body, context.peeked, context.route, lease.profile, lease.names, lease.engine.version
    )


def _renamed_upload(upload: Upload, context: RequestContext, lease: LeasePort) -> UploadBody:
    name = engine_name(context.peeked, lease.names)
    return upload.replaced(context.peeked.model_span if name else None, (name or "").encode())


def _open(
    context: RequestContext, lease: LeasePort, body: bytes | UploadBody, *, is_remote: bool
) -> AbstractAsyncContextManager[EngineResponse]:
    head, path = context.exchange.head, server_path(lease.profile, context.route.path)
    if head.query:
        path = f"{path}?{head.query}"
    if is_remote:
        url, headers = (
            remote.remote_url(lease.profile, lease.url, path),
            encode_headers(remote.headers_for_remote(head.raw_headers, lease.headers)),
        )
    else:
        url, headers = lease.url.rstrip("/") + path, head.for_engine(lease.headers)
    called = None if is_remote else lease.profile.name  # a remote service reports under its own name
    return context.deps.upstream.open(head.method, url, headers, body, called)


@asynccontextmanager
async def _open_translated(
    context: RequestContext, lease: LeasePort, translator: Translator
) -> AsyncIterator[EngineResponse]:
    headers = {
        words.ENGINE: remote.remote_url(lease.profile, lease.url, "/v1"),
        "content-type": "application/json",
        **lease.headers,
    }
    async with translator.open(
        context.route.path, headers_for_engine((), b"", headers), _prepare(context, lease).body
    ) as answer:
        if not any(name == words.FAULT for name, _ in answer.headers):
            yield answer
            return
        why = (await answer.read()).decode("utf-8", "replace")
    raise UpstreamError(f"{lease.profile.name} does not answer: {why}.", code="engine_unreachable")


def _incarnation(context: RequestContext, lease: LeasePort) -> tuple[str, float | None, str]:
    """Identify the incarnation of an engine and the path; a 404 is remembered for both."""
    return lease.url, lease.engine.ready_at, context.route.path
