"""Asking: one request, put to whichever engine is granted, in words that this engine understands.

Owns: where the request is sent, and whether the translator carries it. Must not know
leases' coming and going, nor what becomes of the answer (reply does).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sparkdash.errors import UpstreamError
from sparkdash.gateway.deps import Lease
from sparkdash.gateway.http.exchange import ClientStuck
from sparkdash.gateway.http.headers import to_engine
from sparkdash.gateway.protocol import prepare
from sparkdash.gateway.relay import fallbacks, remote
from sparkdash.gateway.relay.model_names import known
from sparkdash.gateway.relay.reply import Reply
from sparkdash.gateway.relay.request_context import Want
from sparkdash.gateway.translate import words
from sparkdash.gateway.translate.needed import TRANSLATED, lacks
from sparkdash.gateway.translate.translator import Translator
from sparkdash.upstream import EngineResponse, encode_headers

UNKNOWN_PATH = frozenset({404, 405, 501})
"""How an engine answers to a protocol that it does not speak. Its model is asked for by its own name, so that is not it."""

WORDS_LIMIT = 64 * 1024
"""Of a refusal more is not read."""


def foresee(want: Want, name: str, translator: Translator) -> None:
    """It will be asked of `name`: what takes time and does not need the engine may begin."""
    if want.route.path in TRANSLATED:
        profile = known(name, want.deps.catalog())
        if profile is not None and lacks(profile, None, want.route):
            translator.foresee()


async def ask(want: Want, lease: Lease, reply: Reply, stuck: Callable[[ClientStuck], object]) -> None:
    """Ask the engine of this lease, and hand its answer to `reply`. `stuck`: see `Reply.take`. It can be asked again,
    elsewhere, until the reply lets its body go.

    Raises:
        UpstreamError: it did not answer, or broke off.
        HostError: it needs the translator, and there is none; or a service elsewhere refused.
    """
    deps, is_far = want.deps, remote.is_far(lease.profile)
    translator = deps.translator if want.route.path in TRANSLATED else None
    sent_at = deps.monotonic()
    needed = False if translator is None else _needs(want, lease, translator)
    if needed is not True:
        body, adds_usage, mirrors = _prepared(want, lease)
        opened = _opened(want, lease, body, is_far=is_far)
        del body  # nothing here keeps it: it is let go once an answer comes
        async with opened as answer:
            if needed is False or answer.status not in UNKNOWN_PATH:
                if is_far:
                    await _heard_far(want, lease, answer)
                local = None if is_far else lease
                await reply.take(answer, sent_at, stuck, lease=local, adds_usage=adds_usage, mirrors=mirrors)
                return
    assert translator is not None  # noqa: S101 - without one nothing is needed of it
    translator.learned.add(_incarnation(want, lease))
    async with _translated(want, lease, translator) as answer:
        if is_far:
            await _heard_far(want, lease, answer)
        await reply.take(answer, sent_at, stuck, lease=None if is_far else lease)


def _needs(want: Want, lease: Lease, translator: Translator) -> bool | None:
    """Must it be translated? None: the engine will say so by a 404."""
    needed = lacks(lease.profile, lease.engine.version, want.route)
    if needed is None and _incarnation(want, lease) in translator.learned:
        return True
    return needed if needed is not None or translator.installed else False


async def _heard_far(want: Want, lease: Lease, answer: EngineResponse) -> None:
    """Raises HostError: a service elsewhere answered what its client is told in our words, or by another profile."""
    if remote.is_refusal(answer.status, others=bool(fallbacks.others(want))):
        again = next((value.decode("latin-1") for name, value in answer.headers if name == b"retry-after"), None)
        raise remote.refusal(lease.profile, answer.status, await answer.read(WORDS_LIMIT), lease.headers, again)


def _prepared(want: Want, lease: Lease) -> prepare.Prepared:
    return prepare.prepare(want.place.body, want.peeked, want.route, lease.profile, lease.names, lease.engine.version)


def _opened(want: Want, lease: Lease, body: bytes, *, is_far: bool) -> AbstractAsyncContextManager[EngineResponse]:
    head, path = want.exchange.head, want.route.path
    if head.query:
        path = f"{path}?{head.query}"
    if is_far:
        url, headers = (
            remote.address(lease.profile, lease.url, path),
            encode_headers(remote.headers(head.given, lease.headers)),
        )
    else:
        url, headers = lease.url.rstrip("/") + path, head.for_engine(lease.headers)
    called = None if is_far else lease.profile.name  # a service elsewhere has words of its own
    return want.deps.upstream.open(head.method, url, headers, body, called)


@asynccontextmanager
async def _translated(want: Want, lease: Lease, translator: Translator) -> AsyncIterator[EngineResponse]:
    headers = {
        words.ENGINE: remote.address(lease.profile, lease.url, "/v1"),
        "content-type": "application/json",
        **lease.headers,
    }
    async with translator.open(want.route.path, to_engine((), b"", headers), _prepared(want, lease).body) as answer:
        if not any(name == words.FAULT for name, _ in answer.headers):
            yield answer
            return
        why = (await answer.read()).decode("utf-8", "replace")
    raise UpstreamError(f"{lease.profile.name} does not answer: {why}.", code="engine_unreachable")


def _incarnation(want: Want, lease: Lease) -> tuple[str, float | None, str]:
    """What a 404 tells holds for this incarnation of the engine."""
    return lease.url, lease.engine.ready_at, want.route.path
