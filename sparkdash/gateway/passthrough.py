"""Passthrough: the life of one request between a client and an engine.

Owns: lease and waiting, and what becomes of a request when a client leaves or an engine dies; what the client is
answered is the reply's. Must not know how engines come up.
Rule 1: a true status while that is possible; after `hold_headers_s` a waiting stream gets 200 and keep-alives, and
whatever fails then is told inside the stream.
Rule 2: while no byte of an engine's answer has gone out, an engine's death costs the request nothing but time, once.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import NamedTuple, Self

import structlog

from sparkdash.domain.lease import LEASE_HEADER, RequestState
from sparkdash.domain.profile import AUTO, Profile
from sparkdash.domain.progress import waiting_text
from sparkdash.errors import AdmissionError, SparkdashError, UpstreamError
from sparkdash.gateway import asleep, fallbacks, frames, keepalive
from sparkdash.gateway.access import permitted
from sparkdash.gateway.asking import Asking
from sparkdash.gateway.breakable import Breakable
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.exchange import ClientGone, ClientStuck, Exchange
from sparkdash.gateway.inflight import InFlight
from sparkdash.gateway.names import is_background, meant, sleeper
from sparkdash.gateway.peek import PRIORITY, Peeked, is_batch, is_for_responses, peek
from sparkdash.gateway.problems import of_status
from sparkdash.gateway.reply import Reply
from sparkdash.gateway.room import Place
from sparkdash.gateway.route import Dialect, Route, understand

LOG = structlog.get_logger("sparkdash.gateway")
PROGRESS_HEADER = "x-sparkdash-progress"
"""`reasoning`: this chat wants to be told how far its engine is."""
NAME_SHOWN = 64
REMOTE_FAILED = frozenset({"remote_unreachable", "remote_died"})
"""A service elsewhere that did not answer is not asked a second time while another profile can answer."""


async def relay(deps: Deps, exchange: Exchange, route: Route | None = None) -> None:
    """Answer one request of the openai-facing side. `route`: where to, when the path alone does not say it."""
    route = route or understand(exchange.raw_path)
    if route is None:
        await exchange.refuse(of_status(404, f"There is no {exchange.raw_path[:NAME_SHOWN]} here"))
    elif route.methods and exchange.method not in route.methods:
        await _wrong_method(exchange, route)
    else:
        await _admit(deps, exchange, route)


async def _wrong_method(exchange: Exchange, route: Route) -> None:
    allowed = ", ".join(sorted(route.methods or ()))
    if "upgrade" in exchange.headers:
        error = of_status(426, f"{route.path} takes {allowed} over plain HTTP; there are no WebSockets here")
    else:
        error = of_status(405, f"{route.path} takes {allowed}, not {exchange.method}")
    await exchange.refuse(error, route.dialect)


class Want(NamedTuple):
    """What a client wants: what was read of its body, what its word for the model stands for, and whether it can wait."""

    peeked: Peeked
    name: str
    batch: bool
    asleep: Profile | None
    """Whose tokens are counted without its engine."""


async def _admit(deps: Deps, exchange: Exchange, route: Route) -> None:
    with deps.room.place() as place:
        try:
            want = await _read(deps, exchange, route, place)
            if want.asleep is not None:
                await asleep.answer(deps, exchange, route, want.peeked, place, want.asleep)
                return
        except ClientGone:
            return
        except SparkdashError as error:
            await exchange.refuse(error, route.dialect)
            return
        await _Relay(deps, exchange, route, want, place).run()


async def _read(deps: Deps, exchange: Exchange, route: Route, place: Place) -> Want:
    settings = deps.settings
    body = place.body = await exchange.body(settings.body_limit_mib, place, settings.body_s)
    if deps.capture is not None and body:
        await asyncio.to_thread(deps.capture, exchange, body, deps.clock())
    asked = peek(body, exchange.headers.get("content-type", "")) if route.profile is None else Peeked()
    batch = is_batch(exchange.headers.get(PRIORITY), asked.service_tier)
    if asked.model is None and route.needs_model:
        raise _no_model(route)
    if route.dialect is Dialect.CHAT and is_for_responses(body):
        raise _wrong_protocol(route)
    name = meant(route.profile or asked.model or AUTO, deps.catalog(), settings.model_names)
    if exchange.key is not None:
        name = permitted(exchange.key, name, deps.catalog(), deps.bus.snapshot)
    deps.exclusive.admit(exchange.headers.get(LEASE_HEADER))
    sleeps = sleeper(name, deps.catalog(), deps.bus.snapshot) if is_background(route) else None
    return Want(asked, name, batch, sleeps)


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

    def __init__(self, deps: Deps, exchange: Exchange, route: Route, want: Want, place: Place) -> None:
        self._deps = deps
        self._exchange = exchange
        self._route = route
        self._asked = want.peeked
        self._place = place
        self._name = want.name
        self._batch = want.batch
        self._client = Breakable()
        """Ended when the client leaves or takes nothing any more."""
        self._asking = Asking(deps, exchange, route, want.peeked, place, self._client.off)
        self._row = InFlight(
            deps,
            user_agent=exchange.headers.get("user-agent", ""),
            profile=_shown(deps, self._name),
            route=route.path,
            stream=self._asked.stream,
            key=exchange.key.name if exchange.key else None,
        )
        row = self._row
        exchange.row = lambda: row.request  # holds no more than the row: what hangs together goes without the collector
        told = deps.settings.progress_as_reasoning or exchange.headers.get(PROGRESS_HEADER) == "reasoning"
        self._waiting = frames.Waiting(route.dialect, self._row.id, self._name, deps.clock(), reasoning=told)
        self._reply = Reply(deps, exchange, route, self._row, self._waiting, place)

    async def run(self) -> None:
        """To its end, whatever that is. The row is ended in every case."""
        try:
            with self._client:
                self._exchange.hear(self._client.off)
                await self._to_the_end()
        except ClientStuck:
            self._reply.stuck()
        except ClientGone:
            self._reply.left()
        finally:
            self._exchange.deaf()
            self._row.ended(RequestState.FAILED, error="gateway_stopped")

    async def _to_the_end(self) -> None:
        try:
            with self._deps.running.until_cancelled(self._row.id):
                await self._leased()
        except SparkdashError as error:
            LOG.info("a request failed", id=self._row.id, profile=self._row.profile, code=error.code)
            await self._reply.fail(error)
        except Exception:  # whatever it was, the client gets an answer and the log a trace
            LOG.exception("a request met a fault in sparkdash", id=self._row.id)
            await self._reply.fail(
                SparkdashError("sparkdash itself failed on this request.", hint="Its log says more.")
            )

    async def _leased(self) -> None:
        """By the profile that was asked for, else by one of its fallbacks."""
        deps, asked = self._deps, self._name
        others = fallbacks.others(deps, self._route, asked, self._exchange.key)
        failed: list[tuple[str, SparkdashError]] = []
        for name in (asked, *others):
            try:
                await self._served(name, failed[0][1] if failed else None, others=bool(others))
            except SparkdashError as error:
                if self._reply.begun or not fallbacks.stands_in(error):
                    raise
                failed.append((name, error))
            else:
                return
        raise fallbacks.in_vain(failed)

    async def _served(self, name: str, instead: SparkdashError | None, *, others: bool) -> None:
        try:
            await self._attempt(name, instead, others=others)
        except UpstreamError as error:
            if self._reply.begun or (others and error.code in REMOTE_FAILED):
                raise
            self._row.requeued()
            await self._attempt(name, instead, others=others)

    async def _attempt(self, name: str, instead: SparkdashError | None, *, others: bool) -> None:
        """`instead`: why the profile that was asked for cannot. `others`: it has fallbacks."""
        alive = self._kept_alive() if self._asked.stream else None
        self._asking.foresee(name)
        try:
            lease = self._deps.supervisor.lease(
                name, request_id=self._row.id, on_wait=self._row.waits, batch=self._batch
            )
            async with lease as right:
                if alive is not None:
                    await alive.end()
                if instead is not None:
                    await self._stands_in(right.profile.name, instead)
                self._row.granted(right.profile.name)
                with _UnlessLost(right.lost):
                    await self._asking.at(right, self._reply, others=others)
        finally:
            if alive is not None:
                await alive.end()

    async def _stands_in(self, other: str, error: SparkdashError) -> None:
        asked = _shown(self._deps, self._name)
        fallbacks.tell(self._deps, asked, error, other)
        self._exchange.also = fallbacks.headers(asked, error, other)
        if self._exchange.started:  # too late for headers
            await self._reply.wait(f"{other} answers in the place of {asked} ({error.code})")

    def _kept_alive(self) -> keepalive.KeepAlive:
        delay = keepalive.KEEP_ALIVE_S if self._exchange.started else self._deps.settings.hold_headers_s
        return keepalive.KeepAlive(self._wait, delay, self._client.off)

    async def _wait(self) -> None:
        swap, profile = self._deps.bus.snapshot.swap, self._row.profile
        await self._reply.wait(waiting_text(swap, profile, self._deps.clock()))


class _UnlessLost(Breakable):
    """Breaks off what is inside when the lease is lost, with the reason.

    Raises:
        UpstreamError: the engine died.
        EngineError: code `cut`, the lease outlived the drain.
    """

    __slots__ = ("_lost",)

    def __init__(self, lost: asyncio.Future[SparkdashError]) -> None:
        self._lost = lost

    def __enter__(self) -> Self:
        self._lost.add_done_callback(self._break_off)
        return super().__enter__()

    def _break_off(self, lost: asyncio.Future[SparkdashError]) -> None:
        self.off(_why_lost(lost.result()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lost.remove_done_callback(self._break_off)
        super().__exit__(kind, error, trace)


def _why_lost(error: SparkdashError) -> SparkdashError:
    if error.code == "cut":
        return error
    return UpstreamError(error.message, code=error.code, hint=error.hint)


def _shown(deps: Deps, name: str) -> str:
    """What the row calls the profile until a lease says it: the profile that the client's word means, or the word."""
    if name == AUTO:
        active = deps.bus.snapshot.active
        return active.profile if active else AUTO
    try:
        return deps.catalog().find(name).name
    except SparkdashError:
        return name[:NAME_SHOWN]
