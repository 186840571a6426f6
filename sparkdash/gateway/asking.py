"""Asking: one request, put to whichever engine is granted, in words that this engine understands.

Owns: where the request is sent, and whether the translator carries it. Must not know
leases' coming and going, nor what becomes of the answer (reply does).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from sparkdash.domain.profile import AUTO
from sparkdash.errors import SparkdashError, UpstreamError
from sparkdash.gateway import care, far
from sparkdash.gateway.deps import Deps, Lease
from sparkdash.gateway.exchange import ClientStuck, Exchange
from sparkdash.gateway.headers import to_engine
from sparkdash.gateway.peek import Peeked
from sparkdash.gateway.reply import Reply
from sparkdash.gateway.room import Place
from sparkdash.gateway.route import Route
from sparkdash.gateway.translate import words
from sparkdash.gateway.translate.needed import TRANSLATED, lacks
from sparkdash.gateway.translate.translator import Translator
from sparkdash.upstream import Answer

UNKNOWN_PATH = frozenset({404, 405, 501})
"""How an engine answers to a protocol that it does not speak. Its model is asked for by its own name, so that is not it."""

WORDS_LIMIT = 64 * 1024
"""Of a refusal more is not read."""


class Asking:
    """One request's. It can be asked again, elsewhere, until the reply lets its body go. `stuck`: see `Reply.take`."""

    def __init__(
        self,
        deps: Deps,
        exchange: Exchange,
        route: Route,
        asked: Peeked,
        place: Place,
        stuck: Callable[[ClientStuck], object],
    ) -> None:
        self._deps = deps
        self._exchange = exchange
        self._route = route
        self._asked = asked
        self._place = place
        self._stuck = stuck

    def foresee(self, name: str) -> None:
        """It will be asked of `name`: what takes time and does not need the engine may begin."""
        translator = self._deps.translator
        if translator is not None and self._route.path in TRANSLATED and name != AUTO:
            with suppress(SparkdashError):
                if lacks(self._deps.catalog().find(name), None, self._route):
                    translator.foresee()

    async def at(self, lease: Lease, reply: Reply, *, others: bool = False) -> None:
        """Ask the engine of this lease, and hand its answer to `reply`. `others`: there are fallbacks.

        Raises:
            UpstreamError: it did not answer, or broke off.
            HostError: it needs the translator, and there is none; or a service elsewhere refused.
        """
        sent_at, translator = self._deps.monotonic(), self._deps.translator
        needed = False if translator is None else self._needs(lease, translator)
        if needed is not True:
            prepared = self._prepared(lease)
            async with self._opened(lease, prepared.body) as answer:
                if needed is False or answer.status not in UNKNOWN_PATH:
                    adds_usage = prepared.adds_usage
                    del prepared  # nothing here keeps the body, which is let go once an answer comes
                    await self._taken(lease, answer, others=others)
                    await reply.take(answer, sent_at, self._stuck, adds_usage=adds_usage)
                    return
        assert translator is not None  # noqa: S101 - without one nothing is needed of it
        translator.learned.add(self._incarnation(lease))
        async with self._translated(lease, translator) as answer:
            await self._taken(lease, answer, others=others)
            await reply.take(answer, sent_at, self._stuck, adds_usage=False)

    def _needs(self, lease: Lease, translator: Translator) -> bool | None:
        """Must it be translated? None: the engine will say so by a 404."""
        needed = lacks(lease.profile, lease.engine.version, self._route)
        if needed is None and self._incarnation(lease) in translator.learned:
            return True
        return needed if needed is not None or translator.installed else False

    async def _taken(self, lease: Lease, answer: Answer, *, others: bool) -> None:
        """Raises HostError: a service elsewhere answered what its client is told in our words, or by another profile."""
        profile = lease.profile
        if far.is_far(profile) and far.is_refusal(answer.status, others=others):
            again = next((value.decode("latin-1") for name, value in answer.headers if name == b"retry-after"), None)
            raise far.refusal(profile, answer.status, await answer.read(WORDS_LIMIT), lease.headers, again)

    def _prepared(self, lease: Lease) -> care.Prepared:
        reader = care.Reader(lease.profile, lease.names, lease.engine.version)
        return care.prepare(self._place.body, self._asked, self._route, reader)

    def _opened(self, lease: Lease, body: bytes) -> AbstractAsyncContextManager[Answer]:
        exchange, head = self._exchange, self._exchange.head
        url = far.address(lease.profile, lease.url, self._route.path) + (f"?{exchange.query}" if exchange.query else "")
        own = lease.headers
        headers = far.headers(head.given, own) if far.is_far(lease.profile) else head.for_engine(own)
        return self._deps.upstream.open(exchange.method, url, headers, body)

    @asynccontextmanager
    async def _translated(self, lease: Lease, translator: Translator) -> AsyncIterator[Answer]:
        headers = {
            words.ENGINE: far.address(lease.profile, lease.url, "/v1"),
            "content-type": "application/json",
            **lease.headers,
        }
        async with translator.open(self._route.path, to_engine((), headers), self._prepared(lease).body) as answer:
            if not any(name == words.FAULT for name, _ in answer.headers):
                yield answer
                return
            why = (await answer.read()).decode("utf-8", "replace")
        raise UpstreamError(f"{lease.profile.name} does not answer: {why}.", code="engine_unreachable")

    def _incarnation(self, lease: Lease) -> tuple[str, float | None, str]:
        """What a 404 tells holds for this incarnation of the engine."""
        return lease.url, lease.engine.ready_at, self._route.path
