"""Reply: the answer to one client, from the first keep-alive to the last byte.

Rule: on the hot path a chunk costs one note in the tap and one write, both in the call that brings it: no task, JSON,
log line or lock.
"""

import re
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from http import HTTPStatus

from sparkdash.domain.request import RequestState
from sparkdash.errors import AdmissionError, BadAnswerError, EngineDeadError, SparkdashError, UpstreamError
from sparkdash.gateway.http.channel import ClientStuck, FlowControl
from sparkdash.gateway.http.exchange import STREAM_HEADERS
from sparkdash.gateway.http.headers import headers_for_client
from sparkdash.gateway.protocol import frames, problems
from sparkdash.gateway.protocol.prepare import AS_IT_IS, AnswerChanges
from sparkdash.gateway.protocol.problems import client_status, overflow_error
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.gateway.protocol.splices import (
    ContinuedMessage,
    ContinuedResponse,
    Splice,
    WithoutUsage,
    mirror_splice,
    rank_splice,
)
from sparkdash.gateway.protocol.tap import Tap, error_code
from sparkdash.gateway.relay.admitted import RequestContext
from sparkdash.gateway.relay.request_row import RequestRow
from sparkdash.supervisor import Lease
from sparkdash.upstream import SWITCHED, EngineResponse, engine_error_text
from sparkdash.wire import ResponseHeaders


def log_hint(profile: str) -> str:
    return f"Its log says more: `sparkdash logs {profile}`."


def bad_answer_error(profile: str, fault: str) -> BadAnswerError:
    """Build the error of an answer with status 200 that is none."""
    return BadAnswerError(f"{profile} answered 200 with {fault}.", hint=log_hint(profile))


def reworded_error(status: int, body: bytes) -> SparkdashError:
    """Reword an engine's refusal for a client that already has status 200."""
    if error := overflow_error(body):
        return error
    family = AdmissionError if 400 <= status < 500 else SparkdashError
    return family(engine_error_text(body), code=error_code(body) or "engine_refused", status=max(status, 400))


def lost_error(error: SparkdashError) -> SparkdashError:
    """Turn the reason of a lost lease into an error of one request: its engine died, or the lease was cut."""
    if error.code == problems.CUT:
        return copy(error)  # one error cuts many requests, and each needs its own traceback
    return UpstreamError(error.message, code=error.code, hint=error.hint)


EVENT_STREAM = "text/event-stream"
PROGRESS_HEADER = b"x-sparkdash-progress"
"""Header; `reasoning`: this chat wants progress as reasoning text."""
ERROR_LIMIT = 64 * 1024
OK = HTTPStatus.OK.value
SERVER_ERROR = HTTPStatus.INTERNAL_SERVER_ERROR.value
BAD_REQUEST = HTTPStatus.BAD_REQUEST.value
"""A bare int: it is compared for every answer, and comparing a member of an enum runs Python code."""
_NOTHING_YET = {dialect: Tap(dialect) for dialect in Dialect}
"""Taps of answers that have not begun."""
_DONE, _FAILED = RequestState.DONE, RequestState.FAILED
LAST_ENDINGS = (b"}}\n\n", b"[DONE]\n\n")
"""Ends of pieces that are searched for an engine's last words: pieces with a mere text end in other ways."""
LAST_WORDS = re.compile(rb'data: ?\{"error"|event: ?(?:error|response\.failed)[\r\n]')


class Reply:
    """Answer to one request. Its body is released once no other engine can answer any more."""

    __slots__ = (
        "_context", "_deps", "_exchange", "_flow", "_framed", "_is_refusal", "_lease", "_route", "_row", "_splice",
        "_tap", "_waiting", "begun",
    )  # fmt: skip

    def __init__(self, context: RequestContext, row: RequestRow) -> None:
        self._context = context
        self._deps = context.deps
        self._exchange = context.exchange
        self._route = context.route
        self._row = row
        self._waiting: frames.KeepAliveFrames | None = None
        """Set once the client was sent a keep-alive."""
        self._tap = _NOTHING_YET[context.route.dialect]
        self._lease: Lease | None = None
        """Lease of the engine that answers; None before an answer, and for a remote service."""
        self._flow: FlowControl | None = None
        """Flow control to the client, once an answer comes."""
        self._splice: Splice | None = None
        """Changes of the answer; None for nearly all answers."""
        self._is_refusal = False
        """Whether the answer has an error's status, which an engine's server gives alone."""
        self._framed = False
        """Whether the client reads an event stream. Any other answer that breaks off is cut without an error text."""
        self.begun = False
        """Whether a byte of an engine's answer has gone out."""

    def can_send_keepalives(self) -> bool:
        """Whether the client can be sent anything while it waits: it reads a stream, or asked for white space."""
        context = self._context
        if context.peeked.stream:
            return True
        head, padded = self._exchange.head, self._deps.settings.padded_clients
        return not self._exchange.collected and frames.wants_padding(
            head.headers.get(frames.PADDING_HEADER), head.agent, context.route, padded
        )

    async def send_keepalive(self, waits_for: str) -> None:
        """Send one keep-alive; the first opens the answer. `waits_for` is one line of text."""
        if not self._context.peeked.stream:
            if not self._exchange.started:
                self._exchange.start(200, frames.PADDED_HEADERS)
            await self._exchange.send(frames.PADDING)
            return
        if not self._exchange.started:
            self._framed = True
            self._exchange.start(200, STREAM_HEADERS)
        if self._waiting is None:
            self._waiting = self._keepalive_frames()
        await self._exchange.send(self._waiting.next(waits_for))

    def _keepalive_frames(self) -> frames.KeepAliveFrames:
        wants_progress = self._exchange.head.headers.get(PROGRESS_HEADER) == "reasoning"
        reasoning = self._deps.settings.progress_as_reasoning or wants_progress
        now = self._deps.clock()
        return frames.KeepAliveFrames(self._route.dialect, self._row.id, self._context.name, now, reasoning=reasoning)

    @property
    def heard_at(self) -> float | None:
        """Time of the last piece of the answer, or of the end of a pause; None before the first, and for a refusal."""
        at, flow = None if self._is_refusal else self._tap.heard_at, self._flow
        return at if at is None or flow is None else max(at, flow.resumed_at)

    @property
    def is_held_up(self) -> bool:
        """Whether the engine waits for a slow client."""
        return self._flow is not None and self._flow.is_full

    def take(
        self,
        answer: EngineResponse,
        sent_at: float,
        on_client_stuck: Callable[[ClientStuck], object],
        *,
        lease: Lease | None = None,
        changes: AnswerChanges = AS_IT_IS,
    ) -> Awaitable[None]:
        """Relay an engine's answer to the request that was sent at `sent_at`.

        `lease` is the engine's, None for a remote service. `changes`: of the answer.
        `on_client_stuck` is called when the client takes no more bytes.

        Raises: AdmissionError: the engine refused, and the client gets the refusal in other words. UpstreamError: the
        engine broke off, is dead, or gave no usable answer; the client was sent none of it.
        """
        exchange, self._lease = self._exchange, lease
        self._is_refusal = answer.status >= BAD_REQUEST
        if answer.status >= SERVER_ERROR and lease is not None:
            return self._broken(answer, lease)
        if exchange.started and not self._can_continue(answer):
            return self._refused_late(answer)
        if answer.status == BAD_REQUEST and self._route.generates:
            return self._refused(answer)
        self._framed = answer.content_type == EVENT_STREAM
        self._splice = None
        if not answer.head.coding and (changes is not AS_IT_IS or self._waiting is not None):
            self._splice = self._spliced(changes)
        return self._pass_on(answer, sent_at, on_client_stuck)

    async def _pass_on(
        self, answer: EngineResponse, sent_at: float, on_client_stuck: Callable[[ClientStuck], object]
    ) -> None:
        row, exchange, stream = self._row, self._exchange, self._framed
        on_first = partial(row.streams, sent_at) if stream else None
        tap = self._tap = Tap(self._route.dialect, stream=stream, on_first=on_first)
        note: Callable[[bytes, float], object] = tap.feed
        if (kept := exchange.kept) is not None:
            note = kept.begin(tap.feed, stream=stream)
            if self._waiting is not None:
                kept.own_id = self._waiting.response_id
        whole = None
        if stream:
            row.answers(tap)
        elif not exchange.channel.is_full:
            whole = answer.whole_body()
        if whole is None:
            await self._pour(answer, note, on_client_stuck)
        else:  # as most answers without a stream
            note(whole, self._deps.monotonic())
            self._begin(answer, whole)
            splice = self._splice
            exchange.finish_now(whole if splice is None else splice.feed(whole) + splice.end())
        failed = tap.failed
        if failed and self._reports_death():
            raise EngineDeadError(f"{row.profile} reported in its stream that it is dead.")
        if kept is not None:
            kept.is_whole = answer.status == OK and not failed
        self._done(answer.status, failed=failed)

    async def _pour(
        self,
        answer: EngineResponse,
        note: Callable[[bytes, float], object],
        on_client_stuck: Callable[[ClientStuck], object],
    ) -> None:
        """Relay each piece of the answer as it comes, and its end."""
        splice, now = self._splice, self._deps.monotonic

        def take(piece: bytes) -> None:
            note(piece, now())
            if not self.begun:
                self._begin(answer, piece)
            elif piece.endswith(LAST_ENDINGS):
                self._check_last_words(piece, push)
            push(piece if splice is None else splice.feed(piece))

        limit_s = self._deps.settings.slow_client_s
        flow = self._flow = FlowControl(self._exchange.channel, answer, limit_s, on_client_stuck)
        with flow as push:
            last = await answer.pour(take)
            note(last, now())
            if answer.ends_with_connection:
                self._check_end(answer)
            if not self.begun:
                self._begin(answer, last)
            elif last.endswith(LAST_ENDINGS):
                self._check_last_words(last, push)
            await self._exchange.finish(last if splice is None else splice.feed(last) + splice.end())

    def _begin(self, answer: EngineResponse, first: bytes) -> None:
        """Send the head, unless the first piece shows that the answer is none."""
        if self._lease is not None and answer.status == OK and self._route.generates:
            self._check_first(first, self._lease, answer.head.coding)
        self.begun = True  # no other engine can answer any more
        self._context.body_share.release()
        if not self._exchange.started:
            length = answer.length if self._splice is None else None
            self._exchange.start(answer.status, _client_headers(answer, stream=self._framed), length)

    def _check_first(self, first: bytes, lease: Lease, coding: str) -> None:
        name, engine = lease.profile.name, lease.profile.engine
        if self._framed:
            if self._tap.failed and problems.calls_itself_dead(engine, first):
                raise EngineDeadError(f"{name} reported in its stream that it is dead.", hint=log_hint(name))
        elif not coding and (fault := problems.answer_fault(first)):
            raise bad_answer_error(name, fault)

    def _check_last_words(self, piece: bytes, push: Callable[[bytes], object]) -> None:
        """Keep the last words of a dying engine from the client, who gets the reason of its death instead."""
        lease, found = self._lease, LAST_WORDS.search(piece)
        if lease is None or found is None:
            return
        before, words = piece[: found.start()], piece[found.start() :]
        if problems.calls_itself_dead(lease.profile.engine, words):
            if before:
                push(before if self._splice is None else self._splice.feed(before))
            name = lease.profile.name
            raise EngineDeadError(f"{name} reported in its stream that it is dead.", hint=log_hint(name))

    def _reports_death(self) -> bool:
        lease = self._lease
        return lease is not None and problems.calls_itself_dead(lease.profile.engine, self._tap.tail())

    def _mark_begun(self) -> None:
        """Mark the answer begun: no other engine can answer any more."""
        self.begun = True
        self._context.body_share.release()

    def _check_end(self, answer: EngineResponse) -> None:
        is_readable = answer.status < BAD_REQUEST and not answer.head.coding
        if is_readable and self._tap.lacks_its_end:
            raise answer.broke_off("the connection was closed before the stream's last event")

    def _spliced(self, changes: AnswerChanges) -> Splice | None:
        splice: Splice | None = None
        if self._framed and changes.drops_usage:
            splice = WithoutUsage()
        elif self._framed and (waiting := self._waiting) is not None:
            if self._route.dialect is Dialect.RESPONSES:
                splice = ContinuedResponse(waiting.response_id, waiting.events_sent)
            elif waiting.has_open_thinking:
                splice = ContinuedMessage()
        if changes.mirrors:
            splice = mirror_splice(stream=self._framed, before=splice)
        return splice if changes.ranking is None else rank_splice(changes.ranking)

    async def _broken(self, answer: EngineResponse, lease: Lease) -> None:
        """Handle an engine's own error: the client gets it once a probe shows that the engine lives."""
        body, name = await answer.read(), lease.profile.name
        words = answer.words_of(body)
        text = f"{name} answered {answer.status}: {engine_error_text(words)}"
        if problems.calls_itself_dead(lease.profile.engine, words):
            raise EngineDeadError(text, hint=log_hint(name))
        if why := await self._deps.supervisor.sickness(lease.profile, lease.url):
            raise UpstreamError(f"{text}; {why}.", code="engine_died", hint=log_hint(name))
        if self._exchange.started:
            raise reworded_error(answer.status, words)
        await self._pass_whole(answer, body)

    async def _refused(self, answer: EngineResponse) -> None:
        """Pass on a 400 of the engine; a too long prompt is reworded for agents."""
        body = await answer.read()
        self._mark_begun()
        if error := overflow_error(answer.words_of(body)):
            raise error
        await self._pass_whole(answer, body)

    async def _pass_whole(self, answer: EngineResponse, body: bytes) -> None:
        self._mark_begun()
        self._tap = Tap(self._route.dialect, stream=False)
        self._tap.feed(body, 0.0)
        passed = headers_for_client(answer.headers, stream=False)
        await self._exchange.answer(answer.status, body, passed)
        self._done(answer.status, failed=self._tap.failed)

    def _can_continue(self, answer: EngineResponse) -> bool:
        """Whether the answer has the format that was promised to the client while it waited."""
        if self._framed:
            return answer.status < 400 and answer.content_type == EVENT_STREAM and not answer.head.coding
        return frames.padding_can_precede(answer.status, answer.content_type, answer.headers)

    async def _refused_late(self, answer: EngineResponse) -> None:
        """Put an engine's refusal into an answer that has already begun with status 200."""
        body, lease = answer.words_of(await answer.read(ERROR_LIMIT)), self._lease
        whole = lease is not None and answer.status == OK and answer.content_type != EVENT_STREAM
        if lease is not None and whole and (fault := problems.answer_fault(body)):
            raise bad_answer_error(lease.profile.name, fault)
        raise reworded_error(answer.status, body)

    async def fail(self, error: SparkdashError) -> None:
        """Tell the client of a failure: with its true status, or inside the stream."""
        if self._framed and self.begun and self._tap.complete and not (self._tap.failed or self._exchange.finished):
            await self._end_whole()
            return
        # before the answer: a stalled client may never take it
        self._row.ended(RequestState.FAILED, self._tap, client_status(error), error.code)
        if not self._exchange.started:
            await self._exchange.refuse(error, self._route.dialect)
        elif self._exchange.finished:
            return
        elif self._framed:
            await self._exchange.finish(self._last_words(error))
        else:
            # programs read the body; SDKs see the connection break off, post once more and get the true status
            last_words = b"" if self.begun else problems.encode_json(problems.error_body(error, self._route.dialect))
            self._exchange.break_off(last_words)

    async def _end_whole(self) -> None:
        """End a stream that had its last event: it lacks nothing that the engine could still send."""
        if self._exchange.kept is not None:
            self._exchange.kept.is_whole = True
        self._done(OK, failed=False)
        await self._exchange.finish(b"" if self._splice is None else self._splice.end())

    def _last_words(self, error: SparkdashError) -> bytes:
        """Build the last frames: end a cut frame, then tell the failure."""
        tap, waiting, splice = self._tap, self._waiting or self._keepalive_frames(), self._splice
        last = frames.failure_frames(
            error,
            self._route.dialect,
            model=self._context.name,
            now=self._deps.clock(),
            response_id=(None if waiting.events_sent else tap.response_id) or waiting.response_id,
            sequence=max(
                splice.number if isinstance(splice, ContinuedResponse) else tap.sequence, waiting.events_sent - 1
            ),
        )
        return last if tap.between_frames else b"\n\n" + last

    def open_tunnel(self, answer: EngineResponse) -> None:
        """Pass on an engine's 101: what follows is no answer, and nobody reads it."""
        self._mark_begun()
        passed = [pair for pair in answer.headers if not pair[0].startswith(b"access-control-")]
        self._exchange.switch_protocols(ResponseHeaders(passed))
        self._row.streams(None)

    def end_tunnel(self) -> None:
        self._row.ended(RequestState.DONE, status=SWITCHED)

    def end_disconnected(self) -> None:
        """End the row of a client that hung up: most clients do so at the stream's last event."""
        failed = self._tap.failed
        if failed or self._tap.complete:  # SDKs also hang up at an error event
            self._done(HTTPStatus.OK, failed=failed)
        else:
            self._row.ended(RequestState.GONE, self._tap, error="client_gone")

    def end_stuck(self) -> None:
        """End the row of a client that took no bytes and was cut."""
        self._row.ended(RequestState.GONE, self._tap, error="client_stuck")

    def _done(self, status: int, *, failed: bool) -> None:
        failed = failed or status >= 400
        error = None
        if failed:
            error = error_code(self._tap.tail()) or ("engine_died" if self._reports_death() else "engine_error")
        state = _FAILED if failed else _DONE
        self._row.ended(state, self._tap, status, error)


def _client_headers(answer: EngineResponse, *, stream: bool) -> ResponseHeaders:
    """Return the engine's headers for the client, made once for all answers that share a head."""
    head = answer.head
    memo = head.memo
    if not isinstance(memo, ResponseHeaders):
        memo = head.memo = ResponseHeaders(headers_for_client(head.headers, stream=stream))
    return memo
