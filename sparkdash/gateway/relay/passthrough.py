"""Passthrough: the life of one request between a client and an engine.

`reply` owns what the client gets. Rule 1: a true status while that is possible; after `hold_headers_s` a waiting
stream gets 200 and keep-alives, and a later failure is told inside the stream.
Rule 2: while no byte of an engine's answer has gone out, an engine's death costs the request only time, once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from sparkdash.domain.phrases import held_text, waiting_on, waiting_text
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import RequestState
from sparkdash.errors import SparkdashError, UpstreamError
from sparkdash.gateway.admission.access import visible_error
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.channel import ClientGone, ClientStuck
from sparkdash.gateway.http.exchange import BodyShare, Exchange
from sparkdash.gateway.protocol.peek import PeekedBody
from sparkdash.gateway.protocol.problems import status_error
from sparkdash.gateway.protocol.route import Route, find_route, shows_work
from sparkdash.gateway.relay import dispatch, fallbacks
from sparkdash.gateway.relay.admitted import (
    COUNT_TOKENS,
    RequestContext,
    admit_request,
    client_identity,
    on_replica,
    read_body,
    refuse_count,
    row_profile,
    start_replicas,
)
from sparkdash.gateway.relay.fallbacks import RetryPlan
from sparkdash.gateway.relay.reply import Reply, lost_error
from sparkdash.gateway.relay.request_row import RequestRow
from sparkdash.limits import shown
from sparkdash.log import LOG
from sparkdash.settings import Settings
from sparkdash.supervisor import Lease
from sparkdash.supervisor.leasing import AnswerProgress, QueuePlace
from sparkdash.units import duration


def watch_silence(
    profile: Profile,
    settings: Settings,
    progress: AnswerProgress,
    now: Callable[[], float],
    end: Callable[[UpstreamError], object],
) -> "SilenceTimer | None":
    """Start the timer that calls `end` once the engine was silent for too long; None where there is no limit.

    The profile's own limits, of an answer's first byte and between two pieces, come before the box's.
    """
    first = settings.first_byte_s if profile.first_byte_s is None else profile.first_byte_s
    between = settings.between_bytes_s if profile.between_bytes_s is None else profile.between_bytes_s
    if first is None and between is None:
        return None
    return SilenceTimer(profile.name, (first, between), progress, now, end)


class SilenceTimer:
    """Silence timer of one request. `cancel` it when the request has ended."""

    def __init__(
        self,
        name: str,
        limits: tuple[float | None, float | None],
        progress: AnswerProgress,
        now: Callable[[], float],
        end: Callable[[UpstreamError], object],
    ) -> None:
        self._name = name
        self._first_s, self._between_s = limits
        self._progress = progress
        self._now = now
        self._end = end
        self._began = now()
        self._handle = self._after(self._first_s)

    def cancel(self) -> None:
        """Stop the timer; `end` is no longer called."""
        if self._handle is not None:
            self._handle.cancel()

    def _after(self, seconds: float | None) -> asyncio.TimerHandle | None:
        """Look again then, and no later than a pause that begins now may last."""
        delays = [each for each in (seconds, self._between_s) if each is not None]
        return asyncio.get_running_loop().call_later(min(delays), self._look) if delays else None

    def _look(self) -> None:
        now, at = self._now(), self._progress.heard_at
        if at is not None and at < self._began:  # from an earlier engine of this request
            at = None
        limit, since = (self._first_s, self._began) if at is None else (self._between_s, at)
        if limit is None or self._progress.is_held_up:
            self._handle = self._after(self._between_s)
        elif now < since + limit:
            self._handle = self._after(since + limit - now)
        else:
            self._end(_silent(self._name, limit, begun=at is not None))


def _silent(name: str, limit_s: float, *, begun: bool) -> UpstreamError:
    what, key = ("broke off: it sent nothing more", "between_bytes_s") if begun else ("did not answer", "first_byte_s")
    return UpstreamError(
        f"{name} {what} within {duration(limit_s)}.",
        code="engine_timeout",
        status=504,
        hint=f"{key} in the profile or in config.toml sets the limit.",
    )


class CancelScope:
    """Context manager, entered in the task that may be cancelled."""

    __slots__ = ("_before", "_for_good", "_reason", "_task")

    _task: asyncio.Task[object] | None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101 - a coroutine runs in one
        self._before = self._task.cancelling()
        self._reason: BaseException | None = None
        self._for_good = False
        return self

    def cancel(self, reason: BaseException) -> None:
        """Cancel the task; `reason` is raised where the scope is left. Only the first reason counts.

        To be called while the task waits, by callbacks and other tasks. Does nothing once the scope is left.
        """
        if not self._for_good:
            self._for_good = True
            self._end(reason)

    def interrupt(self, reason: BaseException) -> None:
        """Cancel the task's present step; the task then asks `take_reason`. A `cancel` takes precedence."""
        if self._reason is None:
            self._end(reason)

    def _end(self, reason: BaseException) -> None:
        if self._task is None:
            return
        if self._reason is None:
            self._task.cancel()
        self._reason = reason

    def take_reason(self) -> BaseException | None:
        """Return and clear the reason of the cancellation, to be raised in its place; None: not ours."""
        reason, self._reason, self._for_good = self._reason, None, False
        if reason is None or self._task is None or self._task.uncancel() > self._before:
            return None
        return reason

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        why = self.take_reason() if kind is asyncio.CancelledError else None
        self._task = None
        if why is not None:
            raise why from None


KEEP_ALIVE_S = 5.0
"""Between keep-alives: the most impatient client measured gives up after 60 s without a byte."""


class KeepAlive:
    """`say` is awaited after `delay_s` and then every KEEP_ALIVE_S, until `end`; `failed` is told when it raises."""

    def __init__(
        self, say: Callable[[], Awaitable[None]], delay_s: float, failed: Callable[[BaseException], object]
    ) -> None:
        self._say = say
        self._failed = failed
        self._over: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(delay_s, self._begin)

    async def end(self) -> None:
        """Stop; returns when no further keep-alive can be sent. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None and self._over is not None:
            self._over.set()
            await self._task

    def _begin(self) -> None:
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._speak(self._over), name="keep-alive")

    async def _speak(self, over: asyncio.Event) -> None:
        try:
            while not over.is_set():
                await self._say()
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), KEEP_ALIVE_S)
        except Exception as error:  # noqa: BLE001 - the waiting request gets it
            self._failed(error)


async def relay_request(
    deps: Deps,
    exchange: Exchange,
    route: Route | None = None,
    *,
    on_row: Callable[[RequestRow], object] | None = None,
    before: Callable[[RequestContext], Awaitable[bool]] | None = None,
) -> None:
    """Answer one request of the engine API.

    `route`: set where the path alone does not tell it. `on_row`: gets the request's row. `before`: may change the body
    of an admitted request, or answer it, which it says by True.
    """
    route = route or find_route(exchange.raw_path)
    if route is None:
        await exchange.refuse(status_error(404, f"There is no {shown(exchange.raw_path)} here"))
        return
    upgrades = exchange.channel.upgraded is not None and (route.upgrades or route.profile is not None)
    if not upgrades and ((route.methods and exchange.method not in route.methods) or route.upgrades):
        await _refuse_method(exchange, route, route.methods or frozenset())
        return
    body_share = BodyShare(deps.body_budget)
    try:
        if upgrades:
            peeked = PeekedBody(None if route.profile else dispatch.model_in_query(exchange.query))
        else:
            peeked = await read_body(deps, exchange, route, body_share)
        context = admit_request(deps, exchange, route, body_share, peeked)
        if before is not None and await before(context):
            return
        if context.profile is not None and context.profile.replicas > 1 and route.profile is None:
            context = await on_replica(context, context.profile)
            await start_replicas(context)
        if route.path == COUNT_TOKENS:
            refuse_count(context.name, deps.catalog(), deps.bus.snapshot)
        await _Relay(context, on_row).run()
        if exchange.kept is not None and deps.capture is not None:
            await asyncio.to_thread(deps.capture.keep_answer, exchange, route.dialect, deps.clock())
    except ClientGone:
        return
    except SparkdashError as error:
        await exchange.refuse(error, route.dialect)
    finally:
        body_share.release()


async def _refuse_method(exchange: Exchange, route: Route, allowed: frozenset[str]) -> None:
    if route.upgrades:
        exchange.set_extra_headers(((b"upgrade", b"websocket"),))
        await exchange.refuse(
            status_error(426, f"{route.path} is a WebSocket: connect to it with ws://"), route.dialect
        )
    elif b"upgrade" in exchange.head.headers:
        words = f"{route.path} takes {', '.join(sorted(allowed))} over plain HTTP; there are no WebSockets here"
        await exchange.refuse(status_error(426, words), route.dialect)
    else:
        await exchange.refuse_method(route.path, allowed, route.dialect)


class _Relay:
    """Request that may wait for an engine, with its row, reply and cancel scope."""

    __slots__ = ("_context", "_deps", "_exchange", "_keepalive", "_lost", "_reply", "_row", "_scope")

    def __init__(self, context: RequestContext, on_row: Callable[[RequestRow], object] | None) -> None:
        deps, exchange = context.deps, context.exchange
        self._context = context
        self._deps = deps
        self._exchange = exchange
        self._scope = CancelScope()
        """Cancelled when the client leaves or takes no more bytes, and by the box's owner."""
        self._lost: asyncio.Future[SparkdashError] | None = None
        """`lost` of the current lease."""
        self._keepalive: KeepAlive | None = None
        """Set while a client with keep-alives waits for a lease."""
        row = self._row = RequestRow(
            deps,
            exchange.head,
            exchange.key.name if exchange.key else None,
            context.profile.name if context.profile is not None else row_profile(context),
            context.route.path,
            context.peeked.stream,
            prompt=context.body_share.body if context.route.generates else b"",
            request_id=exchange.kept.request_id if exchange.kept else None,
        )
        if on_row is not None:
            on_row(row)
        self._reply = Reply(context, row)

    async def run(self) -> None:
        cancel = self._scope.cancel
        try:
            with self._scope:
                self._exchange.on_disconnect(cancel)
                self._deps.running[self._row.id] = cancel
                try:
                    await self._attempt(self._context.name, None)
                except SparkdashError as error:
                    await self._attempt_others(error)
        except ClientStuck:
            self._reply.end_stuck()
        except ClientGone:
            self._reply.end_disconnected()
        except SparkdashError as error:
            LOG.info("a request failed", id=self._row.id, profile=self._row.profile, code=error.code)
            await self._reply.fail(error)
        except Exception:  # the client gets an answer and the log a traceback
            LOG.exception("sparkdash failed on a request", id=self._row.id)
            await self._reply.fail(
                SparkdashError("sparkdash itself failed on this request.", hint="Its log says more.")
            )
        except BaseException:
            self._row.ended(RequestState.FAILED, error="gateway_stopped")
            raise
        finally:
            self._exchange.channel.detach()
            self._deps.running.pop(self._row.id, None)

    async def _attempt_others(self, failure: SparkdashError) -> None:
        """Attempt the fallbacks of the requested profile, or that profile again, after the first failure."""
        plan = RetryPlan(self._context)
        while True:
            if self._reply.begun:
                raise failure
            name = plan.next_name(visible_error(self._exchange.key, failure))
            self._row.requeued()
            if plan.pause_s:
                await self._pause(plan)
            try:
                await self._attempt(name, plan.instead)
            except SparkdashError as error:
                failure = error
            else:
                return

    async def _pause(self, plan: RetryPlan) -> None:
        """Wait before an engine that takes no connection is asked again."""
        if plan.waited_s() >= self._deps.settings.hold_headers_s and self._reply.can_send_keepalives():
            await self._reply.send_keepalive(f"{self._row.profile} takes no connection; the request waits for it")
        await asyncio.sleep(plan.pause_s)

    async def _attempt(self, name: str, instead: SparkdashError | None) -> None:
        """Wait for an engine of `name`, then dispatch. `instead`: error of the requested profile, for a fallback."""
        route = self._context.route
        running = self._deps.replicas.running if self._context.conversation is not None else None
        if running is not None:
            running[name] += 1
        try:
            async with self._deps.supervisor.lease(
                name,
                request_id=self._row.id,
                on_wait=self._on_wait,
                batch=self._context.batch,
                autocomplete=self._context.autocomplete,
                task=route.task,
                client=client_identity(self._exchange),
                progress=self._reply if route.generates or shows_work(route, self._exchange.method) else None,
            ) as lease:
                if self._keepalive is not None:
                    await self._keepalive.end()
                if instead is not None:
                    await self._announce_fallback(lease.profile.name, instead)
                self._row.granted(lease)
                await self._dispatch(lease)
        finally:
            if running is not None:
                running[name] -= 1
            if self._keepalive is not None:
                await self._keepalive.end()
                self._keepalive = None

    async def _dispatch(self, lease: Lease) -> None:
        """Dispatch to the engine unless the lease is lost.

        Raises:
            UpstreamError: the engine died.
            EngineError: code `cut`, a person stopped the engine and the lease outlived the drain. A swap's cut is an
                UpstreamError of the same code.
        """
        self._lost = lease.lost
        self._lost.add_done_callback(self._on_lost)
        deps = self._deps
        timer = watch_silence(lease.profile, deps.settings, self._reply, deps.monotonic, self._scope.interrupt)
        try:
            send = dispatch.dispatch_request if self._exchange.channel.upgraded is None else dispatch.dispatch_websocket
            await send(self._context, lease, self._reply, self._scope.cancel)
        except asyncio.CancelledError:
            if why := self._scope.take_reason():
                raise why from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._lost.remove_done_callback(self._on_lost)
            self._lost = None

    def _on_lost(self, lost: asyncio.Future[SparkdashError]) -> None:
        if lost is self._lost:  # a scheduled callback cannot be removed
            self._scope.interrupt(lost_error(lost.result()))

    async def _announce_fallback(self, other: str, error: SparkdashError) -> None:
        requested = row_profile(self._context)
        fallbacks.notify_fallback(self._deps, requested, error, other)
        why = f"{requested}; {error.code}"
        self._exchange.set_extra_headers(
            [(fallbacks.ANSWERED, other.encode("latin-1")), (fallbacks.INSTEAD, why.encode("latin-1"))]
        )
        if self._exchange.started:  # too late for headers
            await self._reply.send_keepalive(f"{other} answers instead of {requested} ({error.code})")

    def _on_wait(self, place: QueuePlace) -> None:
        """Note the place in the queue; start keep-alives for a client that can take them."""
        waits = self._row.waits(place)
        if waits and self._keepalive is None and self._reply.can_send_keepalives():
            delay = KEEP_ALIVE_S if self._exchange.started else self._deps.settings.hold_headers_s
            self._keepalive = KeepAlive(self._send_keepalive, delay, self._scope.cancel)

    async def _send_keepalive(self) -> None:
        snapshot, profile = self._deps.bus.snapshot, self._row.profile
        swap = snapshot.swap_to(profile) or snapshot.swap
        engine, now = snapshot.engines.get(profile), self._deps.clock()
        stuck = waiting_on(engine.liveness, now) if engine is not None else ""
        held = held_text(self._row.request, now)
        await self._reply.send_keepalive(stuck or held or waiting_text(swap, profile, now))
