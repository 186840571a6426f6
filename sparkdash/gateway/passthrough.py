"""Passthrough: the life of one request between a client and an engine.

Owns: lease, waiting, relay, and what becomes of a request when a client leaves or an engine dies.
Must not know how engines come up, nor what the bytes mean (peek, tap and frames do).
Rule 1: on the hot path a chunk costs one note in the tap and one `send`: no task, JSON, log line or lock.
Rule 2: a true status while that is possible; after `hold_headers_s` a waiting stream gets 200 and keep-alives, and
whatever fails then is told inside the stream.
Rule 3: while no byte of an engine's answer has gone out, an engine's death costs the request nothing but time, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

import structlog

from sparkdash.domain.lease import LEASE_HEADER, RequestState
from sparkdash.domain.profile import AUTO
from sparkdash.domain.progress import waiting_text
from sparkdash.errors import AdmissionError, SparkdashError, UpstreamError
from sparkdash.gateway import care, frames
from sparkdash.gateway.access import permitted
from sparkdash.gateway.deps import Deps, Lease
from sparkdash.gateway.exchange import STREAM_HEADERS, ClientGone, ClientStuck, Exchange
from sparkdash.gateway.headers import to_client, to_engine
from sparkdash.gateway.inflight import InFlight
from sparkdash.gateway.names import meant, refuse_in_background
from sparkdash.gateway.overflow import overflow
from sparkdash.gateway.peek import PRIORITY, Peeked, is_batch, is_for_responses, peek
from sparkdash.gateway.problems import of_status
from sparkdash.gateway.room import Place
from sparkdash.gateway.route import Dialect, Route, understand
from sparkdash.gateway.splices import MessageGoesOn, ResponseGoesOn, Splice, WithoutUsage
from sparkdash.gateway.tap import Tap, error_code
from sparkdash.upstream import Answer, engine_words

LOG = structlog.get_logger("sparkdash.gateway")
KEEP_ALIVE_S = 5.0
"""Between keep-alives: the most impatient client measured gives up after 60 s without a byte."""
PROGRESS_HEADER = "x-sparkdash-progress"
"""`reasoning`: this chat wants to be told how far its engine is."""
EVENT_STREAM = "text/event-stream"
ERROR_LIMIT = 64 * 1024
NAME_SHOWN = 64


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
    """What a client wants: its body, what was read of it, what its word for the model stands for, and whether it can wait."""

    body: bytes
    peeked: Peeked
    name: str
    batch: bool


async def _admit(deps: Deps, exchange: Exchange, route: Route) -> None:
    with deps.room.place() as place:
        try:
            want = await _read(deps, exchange, route, place)
        except ClientGone:
            return
        except SparkdashError as error:
            await exchange.refuse(error, route.dialect)
            return
        relay = _Relay(deps, exchange, route, want, place)
        del want  # the relay lets the body go before the answer is over
        await relay.run()


async def _read(deps: Deps, exchange: Exchange, route: Route, place: Place) -> Want:
    settings = deps.settings
    body = await exchange.body(settings.body_limit_mib, place, settings.body_s)
    asked = peek(body, exchange.headers.get("content-type", "")) if route.profile is None else Peeked()
    batch = is_batch(exchange.headers.get(PRIORITY), asked.service_tier)
    if asked.model is None and route.needs_model:
        raise _no_model(route)
    if route.dialect is Dialect.CHAT and is_for_responses(body):
        raise _wrong_protocol(route)
    name = meant(route.profile or asked.model or AUTO, deps.catalog(), settings.model_names)
    name = permitted(exchange.key, name, deps.catalog(), deps.bus.snapshot)
    deps.exclusive.admit(exchange.headers.get(LEASE_HEADER))
    refuse_in_background(route, name, deps.catalog(), deps.bus.snapshot)
    return Want(body, asked, name, batch)


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
        self._body = want.body
        self._place = place
        self._name = want.name
        self._batch = want.batch
        self._adds_usage = False
        self._row = InFlight(
            deps,
            user_agent=exchange.headers.get("user-agent", ""),
            profile=_shown(deps, self._name),
            route=route.path,
            stream=self._asked.stream,
            key=exchange.key.name if exchange.key else None,
        )
        exchange.request_id = self._row.request.id
        told = deps.settings.progress_as_reasoning or exchange.headers.get(PROGRESS_HEADER) == "reasoning"
        self._waiting = frames.Waiting(route.dialect, self._row.request.id, self._name, deps.clock(), reasoning=told)
        self._tap = Tap(route.dialect)
        self._splice: Splice | None = None
        """What must differ in the answer's stream; None: nothing, as for nearly all."""
        self._answering = False
        """Has a byte of an engine's answer gone out?"""
        self._framed = False
        """Does the client read an event stream? Any other answer that breaks off is simply cut: it has no words."""

    async def run(self) -> None:
        """To its end, whatever that is. The row is ended in every case."""
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(self._exchange.client_gone(), name="client")
                await self._to_the_end(group)
                watcher.cancel()
        except* ClientStuck:
            self._row.ended(RequestState.GONE, error="client_stuck", **self._figures())
        except* ClientGone:
            self._left()
        finally:
            self._row.ended(RequestState.FAILED, error="gateway_stopped")

    async def _to_the_end(self, group: asyncio.TaskGroup) -> None:
        try:
            async with self._deps.running.until_cancelled(self._row.request.id):
                await self._leased(group)
        except SparkdashError as error:
            LOG.info("a request failed", id=self._row.request.id, profile=self._row.request.profile, code=error.code)
            await self._fail(error)
        except ClientStuck:
            raise
        except Exception:  # whatever it was, the client gets an answer and the log a trace
            LOG.exception("a request met a fault in sparkdash", id=self._row.request.id)
            await self._fail(SparkdashError("sparkdash itself failed on this request.", hint="Its log says more."))

    async def _leased(self, group: asyncio.TaskGroup) -> None:
        try:
            await self._attempt(group)
        except UpstreamError:
            if self._answering:
                raise
            self._row.requeued()
            await self._attempt(group)

    async def _attempt(self, group: asyncio.TaskGroup) -> None:
        request_id = self._row.request.id
        async with self._kept_alive(group) as granted:
            lease = self._deps.supervisor.lease(
                self._name, request_id=request_id, on_wait=self._row.waits, batch=self._batch
            )
            async with lease as right:
                await granted()
                self._row.granted(right.profile.name)
                async with _unless_lost(right):
                    await self._ask(right)

    @asynccontextmanager
    async def _kept_alive(self, group: asyncio.TaskGroup) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Keep-alives begin after `hold_headers_s` and end when the given function is awaited, or with the context."""
        over = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        def begin() -> None:
            tasks.append(group.create_task(self._keep_alive(over), name="keep-alive"))

        async def end() -> None:
            if timer is not None:
                timer.cancel()
            over.set()
            for task in tasks:
                await task

        delay = KEEP_ALIVE_S if self._exchange.started else self._deps.settings.hold_headers_s
        timer = asyncio.get_running_loop().call_later(delay, begin) if self._asked.stream else None
        try:
            yield end
        finally:
            await end()

    async def _keep_alive(self, over: asyncio.Event) -> None:
        while not over.is_set():
            if not self._exchange.started:
                self._framed = True
                await self._exchange.start(200, STREAM_HEADERS)
            await self._exchange.send(self._waiting.next(self._waits_for()))
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), KEEP_ALIVE_S)

    def _waits_for(self) -> str:
        return waiting_text(self._deps.bus.snapshot.swap, self._row.request.profile, self._deps.clock())

    async def _ask(self, lease: Lease) -> None:
        exchange, route = self._exchange, self._route
        sent_at = self._deps.monotonic()
        async with self._opened(lease) as answer:
            if exchange.started and (answer.status >= 400 or answer.content_type != EVENT_STREAM):
                await self._refused_in_stream(answer)
            elif answer.status == HTTPStatus.BAD_REQUEST and route.generates:
                await self._refused(answer)
            else:
                self._splice = self._spliced(answer)
                async with exchange.taken_within(self._deps.settings.slow_client_s):
                    await self._pass_on(answer, sent_at)

    def _opened(self, lease: Lease) -> AbstractAsyncContextManager[Answer]:
        """The request at its engine. Nothing here keeps the body, which is let go once an answer comes."""
        exchange, path = self._exchange, self._route.path
        url = lease.url.rstrip("/") + path + (f"?{exchange.query}" if exchange.query else "")
        reader = care.Reader(lease.profile, lease.names, lease.engine.version)
        prepared = care.prepare(self._body, self._asked, self._route, reader)
        self._adds_usage = prepared.adds_usage
        headers = to_engine(exchange.scope["headers"], dict(lease.headers))
        return self._deps.upstream.open(exchange.method, url, headers, prepared.body)

    def _answers(self) -> None:
        """From here on the request cannot be sent again."""
        self._answering = True
        self._body = b""
        self._place.give_back()

    async def _pass_on(self, answer: Answer, sent_at: float) -> None:
        splice = self._splice
        exchange, now = self._exchange, self._deps.monotonic
        stream = self._framed = answer.content_type == EVENT_STREAM
        tap = self._tap = Tap(self._route.dialect, stream=stream, on_first=lambda: self._row.streams(now() - sent_at))
        async with aclosing(answer.chunks()) as chunks:
            first = await anext(chunks, b"")
            tap.feed(first, now())
            self._answers()
            if not exchange.started:
                length_holds = splice is None
                await exchange.start(answer.status, to_client(answer.headers, stream=stream, length=length_holds))
            if len(first) == answer.length and splice is None:  # a whole answer in one piece needs no second look
                await exchange.finish(first)
                self._done(answer.status)
                return
            await exchange.send(first if splice is None else splice.feed(first))
            async for chunk in chunks:
                tap.feed(chunk, now())
                if splice is None:
                    await exchange.send(chunk)
                elif ready := splice.feed(chunk):
                    await exchange.send(ready)
        await exchange.finish(b"" if splice is None else splice.end())
        self._done(answer.status)

    def _spliced(self, answer: Answer) -> Splice | None:
        waiting, dialect = self._waiting, self._route.dialect
        if answer.content_type != EVENT_STREAM:
            return None
        if self._adds_usage:
            return WithoutUsage()
        if waiting.said and dialect is Dialect.RESPONSES:
            return ResponseGoesOn(waiting.response_id, waiting.said)
        return MessageGoesOn() if waiting.thinks else None

    async def _refused(self, answer: Answer) -> None:
        """Passed on as it is, unless it says that the prompt is too long: for that clients have words of their own."""
        body = await answer.read()
        self._answers()
        if error := overflow(body):
            raise error
        self._tap.feed(body, 0.0)
        passed = to_client(answer.headers, stream=False, length=False)
        await self._exchange.answer(answer.status, body, passed)
        self._done(answer.status)

    async def _refused_in_stream(self, answer: Answer) -> None:
        """The engine refuses what has waited too long for a status: its own words go into the stream."""
        body = await answer.read(ERROR_LIMIT)
        if error := overflow(body):
            raise error
        family = AdmissionError if 400 <= answer.status < 500 else SparkdashError
        raise family(engine_words(body), code=error_code(body) or "engine_refused", status=max(answer.status, 400))

    async def _fail(self, error: SparkdashError) -> None:
        # first, as a client that stands still may never take the words
        self._row.ended(RequestState.FAILED, status=error.status, error=error.code, **self._figures())
        if not self._exchange.started:
            await self._exchange.refuse(error, self._route.dialect)
        elif self._framed:
            await self._exchange.finish(self._last_words(error))

    def _last_words(self, error: SparkdashError) -> bytes:
        """Ends a frame that was cut, then says what happened."""
        tap, waiting, splice = self._tap, self._waiting, self._splice
        last = frames.failure(
            error,
            self._route.dialect,
            model=self._name,
            now=self._deps.clock(),
            response_id=(None if waiting.said else tap.response_id) or waiting.response_id,
            sequence=splice.number if isinstance(splice, ResponseGoesOn) else max(tap.sequence, waiting.said - 1),
        )
        return last if tap.between_frames else b"\n\n" + last

    def _left(self) -> None:
        """The client hung up. Most do so at the stream's last event, before the engine has closed: those have all they came for."""
        if self._tap.complete:
            self._done(HTTPStatus.OK)
        else:
            self._row.ended(RequestState.GONE, error="client_gone", **self._figures())

    def _done(self, status: int) -> None:
        failed = status >= 400 or self._tap.failed
        error = (error_code(self._tap.tail()) or "engine_error") if failed else None
        state = RequestState.FAILED if failed else RequestState.DONE
        self._row.ended(state, status=status, error=error, **self._figures())

    def _figures(self) -> dict[str, object]:
        usage = self._tap.usage()
        return {
            "prompt_tokens": usage.prompt,
            "cached_tokens": usage.cached,
            "completion_tokens": usage.completion,
            "reasoning_tokens": usage.reasoning,
            "decode_tok_s": self._tap.decode_tok_s(usage.completion),
            "finish_reason": self._tap.finish_reason,
        }


@asynccontextmanager
async def _unless_lost(lease: Lease) -> AsyncIterator[None]:
    """Break off what is inside when the lease is lost, with the reason.

    Raises:
        UpstreamError: the engine died.
        EngineError: code `cut`, the lease outlived the drain.
    """
    task, lost = asyncio.current_task(), lease.lost
    assert task is not None  # noqa: S101 - a coroutine runs in one
    before = task.cancelling()

    def break_off(_lost: object) -> None:
        task.cancel()

    lost.add_done_callback(break_off)
    try:
        yield
    except asyncio.CancelledError:
        if not lost.done() or task.uncancel() > before:
            raise
        raise _why_lost(lost.result()) from None
    finally:
        lost.remove_done_callback(break_off)


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
