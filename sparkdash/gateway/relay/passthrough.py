"""Passthrough: the life of one request between a client and an engine.

Owns: lease and waiting, and what becomes of a request when a client leaves or an engine dies; what the client is
answered is the reply's. Must not know how engines come up.
Rule 1: a true status while that is possible; after `hold_headers_s` a waiting stream gets 200 and keep-alives, and
whatever fails then is told inside the stream.
Rule 2: while no byte of an engine's answer has gone out, an engine's death costs the request nothing but time, once.
"""

from __future__ import annotations

import asyncio
from copy import copy

import structlog

from sparkdash.domain.lease import RequestState
from sparkdash.domain.profile import AUTO
from sparkdash.domain.repair_text import waiting_on
from sparkdash.domain.swap_text import waiting_text
from sparkdash.errors import AdmissionError, SparkdashError, UpstreamError
from sparkdash.gateway.admission.access import permitted
from sparkdash.gateway.deps import Deps, Lease
from sparkdash.gateway.http.exchange import ClientGone, ClientStuck, Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.peek import Peeked, is_batch, is_for_responses, peek
from sparkdash.gateway.protocol.problems import of_status
from sparkdash.gateway.protocol.route import Dialect, Route, shows_work, understand
from sparkdash.gateway.relay import dispatch, fallbacks, keepalive, offline_count, silence
from sparkdash.gateway.relay.cancel_scope import Breakable
from sparkdash.gateway.relay.fallbacks import Chances
from sparkdash.gateway.relay.model_names import COUNT_TOKENS, known, meant, sleeper
from sparkdash.gateway.relay.reply import Reply
from sparkdash.gateway.relay.request_context import Want
from sparkdash.gateway.relay.request_row import InFlight
from sparkdash.gateway.shared.body_budget import Place
from sparkdash.limits import shown

LOG = structlog.get_logger("sparkdash.gateway")
AGENT_KEPT = 200
"""Characters of a `User-Agent` that identify a client."""


async def relay(deps: Deps, exchange: Exchange, route: Route | None = None) -> None:
    """Answer one request of the openai-facing side. `route`: where to, when the path alone does not say it."""
    route = route or understand(exchange.raw_path)
    if route is None:
        await exchange.refuse(of_status(404, f"There is no {shown(exchange.raw_path)} here"))
        return
    if route.methods and exchange.method not in route.methods:
        await _refuse_method(exchange, route, route.methods)
        return
    place = deps.room.place()
    try:
        place.body = await exchange.body(deps.settings.body_limit_mib, place, deps.settings.body_s)
        if deps.capture is not None and place.body:
            await asyncio.to_thread(deps.capture, exchange, place.body, deps.clock())
        want = _understood(deps, exchange, route, place)
        if route.path == COUNT_TOKENS and (profile := sleeper(want.name, deps.catalog(), deps.bus.snapshot)):
            await offline_count.answer(want, profile)
        else:
            await _Relay(want).run()
    except ClientGone:
        return
    except SparkdashError as error:
        await exchange.refuse(error, route.dialect)
    finally:
        place.give_back()


async def _refuse_method(exchange: Exchange, route: Route, allowed: frozenset[str]) -> None:
    if b"upgrade" in exchange.head.headers:
        words = f"{route.path} takes {', '.join(sorted(allowed))} over plain HTTP; there are no WebSockets here"
        await exchange.refuse(of_status(426, words), route.dialect)
    else:
        await exchange.refuse_method(route.path, allowed, route.dialect)


def _understood(deps: Deps, exchange: Exchange, route: Route, place: Place) -> Want:
    body, head, key = place.body, exchange.head, exchange.key
    asked = peek(body, head.content_type) if route.profile is None else Peeked()
    batch = is_batch(head.priority, asked.service_tier, by_key=key is not None and key.batch)
    if asked.model is None and route.needs_model:
        raise _no_model(route)
    if route.dialect is Dialect.CHAT and is_for_responses(body):
        raise _wrong_protocol(route)
    catalog = deps.catalog()
    name, profile = meant(route.profile or asked.model or AUTO, catalog, deps.settings.model_names)
    if key is not None:
        name = permitted(key, name, catalog, deps.bus.snapshot, route.task)
        profile = known(name, catalog)
    deps.exclusive.admit(head.token)
    return Want(deps, exchange, route, place, asked, name, profile, batch)


def _no_model(route: Route) -> AdmissionError:
    return AdmissionError(
        f"The request to {route.path} names no model.",
        code="model_missing",
        hint='Add "model": the name of a profile (GET /v1/models lists them), or "auto" for whatever runs now.',
    )


def _wrong_protocol(route: Route) -> AdmissionError:
    return AdmissionError(
        f"The request to {route.path} has `input` and no `messages`: it is one for /v1/responses.",
        code="wrong_protocol",
        hint="Post it there, or have the client use the chat completions protocol.",
    )


class _Relay:
    """One request that has a right to wait for an engine."""

    __slots__ = ("_alive", "_deps", "_exchange", "_held", "_reply", "_row", "_stretch", "_want")

    def __init__(self, want: Want) -> None:
        deps, exchange = want.deps, want.exchange
        self._want = want
        self._deps = deps
        self._exchange = exchange
        self._stretch = Breakable()
        """Ended when the client leaves or takes nothing any more, and by the box's owner."""
        self._held: asyncio.Future[SparkdashError] | None = None
        """Of the lease that is held, when it is lost."""
        self._alive: keepalive.KeepAlive | None = None
        """While a streaming client waits for a lease."""
        row = self._row = InFlight(
            deps,
            exchange.head.agent,
            exchange.key.name if exchange.key else None,
            _shown(want),
            want.route.path,
            want.peeked.stream,
        )
        exchange.row = lambda: row.request  # holds no more than the row: what hangs together goes without the collector
        self._reply = Reply(want, row)

    async def run(self) -> None:
        """To its end, whatever that is. Whoever ends it ends its row."""
        off = self._stretch.off
        try:
            with self._stretch:
                self._exchange.on_disconnect(off)
                self._deps.running.begun(self._row.id, off)
                await self._answered()
        except ClientStuck:
            self._reply.stuck()
        except ClientGone:
            self._reply.left()
        except SparkdashError as error:
            LOG.info("a request failed", id=self._row.id, profile=self._row.profile, code=error.code)
            await self._reply.fail(error)
        except Exception:  # whatever it was, the client gets an answer and the log a trace
            LOG.exception("a request met a fault in sparkdash", id=self._row.id)
            await self._reply.fail(
                SparkdashError("sparkdash itself failed on this request.", hint="Its log says more.")
            )
        except BaseException:
            self._row.ended(RequestState.FAILED, error="gateway_stopped")
            raise
        finally:
            self._exchange.detach()
            self._deps.running.ended(self._row.id)

    async def _answered(self) -> None:
        """By the profile that was asked for, else by one of its fallbacks."""
        name, chances = self._want.name, None
        while True:
            try:
                await self._attempt(name, chances.instead if chances else None)
            except SparkdashError as error:
                if self._reply.begun:
                    raise
                chances = chances or Chances(self._want)
                name = chances.after(error)
                self._row.requeued()
            else:
                return

    async def _attempt(self, name: str, instead: SparkdashError | None) -> None:
        """`instead`: why the profile that was asked for cannot."""
        if self._deps.translator is not None:
            dispatch.foresee(self._want, name, self._deps.translator)
        try:
            async with self._deps.supervisor.lease(
                name,
                request_id=self._row.id,
                on_wait=self._waits,
                batch=self._want.batch,
                task=self._want.route.task,
                client=_client(self._exchange),
                progress=self._reply if shows_work(self._want.route, self._exchange.method) else None,
            ) as right:
                if self._alive is not None:
                    await self._alive.end()
                if instead is not None:
                    await self._stands_in(right.profile.name, instead)
                self._row.granted(right.profile.name)
                await self._asked(right)
        finally:
            if self._alive is not None:
                await self._alive.end()
                self._alive = None

    async def _asked(self, right: Lease) -> None:
        """The engine, unless the lease is lost.

        Raises:
            UpstreamError: the engine died.
            EngineError: code `cut`, a person stopped the engine and the lease outlived the drain. A swap's cut is an
                UpstreamError of the same code.
        """
        self._held = right.lost
        self._held.add_done_callback(self._lost)
        deps = self._deps
        timer = silence.watch(right.profile, deps.settings, self._reply, deps.monotonic, self._stretch.interrupt)
        try:
            await dispatch.ask(self._want, right, self._reply, self._stretch.off)
        except asyncio.CancelledError:
            if why := self._stretch.why():
                raise why from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._held.remove_done_callback(self._lost)
            self._held = None

    def _lost(self, lost: asyncio.Future[SparkdashError]) -> None:
        if lost is self._held:  # a call that is on its way is not called back
            self._stretch.interrupt(_why_lost(lost.result()))

    async def _stands_in(self, other: str, error: SparkdashError) -> None:
        asked = _shown(self._want)
        fallbacks.tell(self._deps, asked, error, other)
        self._exchange.also = fallbacks.headers(asked, error, other)
        if self._exchange.started:  # too late for headers
            await self._reply.wait(f"{other} answers in the place of {asked} ({error.code})")

    def _waits(self, position: int) -> None:
        """Note the place in the queue; from the first one on, keep a client alive that can take keep-alives."""
        waits = self._row.waits(position)
        if waits and self._alive is None and self._reply.can_wait_aloud():
            delay = keepalive.KEEP_ALIVE_S if self._exchange.started else self._deps.settings.hold_headers_s
            self._alive = keepalive.KeepAlive(self._say, delay, self._stretch.off)

    async def _say(self) -> None:
        snapshot, profile = self._deps.bus.snapshot, self._row.profile
        swap = snapshot.swap_to(profile) or snapshot.swap
        engine, now = snapshot.engines.get(profile), self._deps.clock()
        stuck = waiting_on(engine.liveness, now) if engine is not None else ""
        await self._reply.wait(stuck or waiting_text(swap, profile, now))


def _client(exchange: Exchange) -> str | None:
    """Identify the client by its key and its User-Agent."""
    agent, key = exchange.head.agent[:AGENT_KEPT], exchange.key
    return f"{key.name} {agent}" if key is not None else agent or None


def _why_lost(error: SparkdashError) -> SparkdashError:
    if error.code == problems.CUT:
        return copy(error)  # many requests are cut by one error, and a traceback belongs to one
    return UpstreamError(error.message, code=error.code, hint=error.hint)


def _shown(want: Want) -> str:
    """What the row calls the profile until a lease says it: the profile that the client's word means, or the word."""
    if want.profile is not None:
        return want.profile.name
    runs = want.deps.bus.snapshot.auto(want.route.task) if want.name == AUTO else None
    return runs or shown(want.name)
