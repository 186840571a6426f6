"""Exchange: one HTTP request and its one answer."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from sparkdash.domain.profile import Profile
from sparkdash.domain.request import LEASE_HEADER
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.http.channel import ClientChannel, ClientGone
from sparkdash.gateway.http.headers import VIA, HeaderList, RequestHeaders, session_of
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.answer_text import KeptAnswer
from sparkdash.gateway.protocol.peek import PRIORITY
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.keyring import Key
from sparkdash.limits import AGENT, CONTROL_BODY_MIB
from sparkdash.units import MIB
from sparkdash.upstream import EngineRequest
from sparkdash.wire import ResponseHeaders
from sparkdash.wire.request_channel import Address, RequestHead, by_name

RETRY_S = 10.0


class BodyBudget:
    """Budget of the gateway. `taken`: bytes in use."""

    def __init__(self, limit_mib: int) -> None:
        self.limit = limit_mib * MIB
        self.taken = 0

    def share(self) -> "BodyShare":
        """Open one request's share; use it as a context manager."""
        return BodyShare(self)


class BodyShare:
    """Bytes reserved for one request's body, and the `body` itself, which no other object keeps."""

    __slots__ = ("_budget", "body", "taken")

    def __init__(self, budget: BodyBudget) -> None:
        self.body = b""
        self._budget = budget
        self.taken = 0

    def reserve(self, size: int) -> None:
        """Reserve that many more bytes. Raises AdmissionError: code `bodies_full`, status 503 with Retry-After."""
        budget = self._budget
        if budget.taken + size > budget.limit:
            taken, limit = budget.taken // MIB, budget.limit // MIB
            raise AdmissionError(
                f"The bodies of waiting requests take {taken} MiB; the limit is {limit} MiB.",
                code="bodies_full",
                status=503,
                retry_after=RETRY_S,
                hint="Come back later, or raise `bodies_limit_mib` in config.toml.",
            )
        budget.taken += size
        self.taken += size

    def release(self) -> None:
        """Drop the body and return its bytes. Idempotent."""
        self.body = b""
        self._budget.taken -= self.taken
        self.taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()


UNCHANGED = "/upstream/"
"""Prefix of paths that go to an engine with every slash. Elsewhere `//` comes from a base URL's last slash."""
_SLASHES = re.compile("//+")
_PRIORITY, _LEASE = PRIORITY.encode(), LEASE_HEADER.encode()


class ParsedHead:
    """Method, path, headers and what follows from them; shared by all requests with the same head.

    `headers` and `raw_headers` hold all of the client's headers but the body's length; `raw_headers` are in the
    client's order, with names in lower case.
    """

    __slots__ = (
        "agent", "coding", "connection", "content_type", "engine_memo", "headers", "key_memo", "method", "path",
        "priority", "query", "raw_headers", "raw_path", "session", "token", "unix", "via",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        raw_path: bytes,
        query: bytes,
        raw_headers: HeaderList,
        named: Mapping[bytes, bytes],
        *,
        unix: bool,
    ) -> None:
        """Parse a head. `named`: `raw_headers` by name; `unix`: it came through the unix socket."""
        self.method = method
        self.raw_path = raw_path.decode("latin-1")
        self.path = path
        if self.raw_path.find("//") >= 0 and not self.raw_path.startswith(UNCHANGED):
            self.raw_path = _SLASHES.sub("/", self.raw_path)
            self.path = unquote(self.raw_path)
        self.query = query.decode("latin-1")
        self.raw_headers = raw_headers
        self.headers = headers = RequestHeaders(named)
        self.unix = unix
        """Whether the client is a program of this box: only those can open the unix socket."""
        coding = (headers.get(b"content-encoding") or "").strip().lower()
        self.coding = "" if coding == "identity" else coding
        """Compression of the body; empty without one."""
        self.content_type = headers.get(b"content-type") or ""
        self.agent = (headers.get(b"user-agent") or "")[:AGENT]
        self.session = session_of(headers)
        self.priority = headers.get(_PRIORITY)
        self.token = headers.get(_LEASE)
        """Token of the client that holds the gateway exclusively."""
        self.via = headers.get(VIA.encode())
        """Gateways that the request has passed, where it has passed any."""
        self.connection = named.get(b"connection", b"")
        self.engine_memo: tuple[Profile, str, str, Mapping[str, str], EngineRequest] | None = None
        """Profile, engine's URL, path and the lease's headers of the last request with this head, and that request."""
        self.key_memo: tuple[tuple[Key, ...], Key] | None = None
        """Key found for this head, behind all the keys among which it was found."""

    @classmethod
    def of_wire(cls, head: RequestHead) -> "ParsedHead":
        server, headers = head.listener[0], head.headers
        unix = server is not None and server[1] is None
        return cls(head.method, head.path, head.raw_path, head.query, headers, head.named, unix=unix)

    def inner(self, method: str, path: str, headers: HeaderList, query: bytes = b"") -> "ParsedHead":
        """Make the head of a request that a handler makes for this one's client."""
        return ParsedHead(method, path, path.encode(), query, headers, by_name(headers), unix=self.unix)


Headers = Iterable[tuple[bytes, bytes]]

STREAM_HEADERS = ResponseHeaders(
    [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
)
_BODILESS = frozenset((HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))
CODING_SHOWN = 40
SLOWEST_BODY = 64 * 1024
"""Bytes per second; a slower body is refused once its time limit is over."""


class Exchange:
    """HTTP request and its answer. `key`: the caller's key once it is known; None when no key was needed.

    `collected`: another handler collects the answer and sends it in its own format.
    """

    __slots__ = (
        "_extra", "channel", "collected", "finished", "granted", "head", "kept", "key", "method", "query",
        "raw_path", "started",
    )  # fmt: skip

    def __init__(
        self, head: ParsedHead, channel: ClientChannel, key: Key | None = None, *, collected: bool = False
    ) -> None:
        self.head = head
        self.key = key
        self.method = head.method
        self.raw_path = head.raw_path
        self.query = head.query
        self.collected = collected
        self.kept: KeptAnswer | None = None
        """Keeps the answer of a captured request or a replay, and has the request's id; None for all others."""
        self.started = False
        self.finished = False
        self.channel = channel
        self.granted: HeaderList = []
        """CORS headers of the answer."""
        self._extra: Headers = ()

    def ends(self) -> tuple[Address, Address]:
        """Return the addresses of the client and of the server, as far as they are known."""
        return self.channel.ends()

    def set_extra_headers(self, headers: Headers) -> None:
        """Set further headers of the answer; replaces those set before."""
        self._extra = headers

    def add_extra_header(self, name: bytes, value: bytes) -> None:
        """Set one further header of the answer beside the others."""
        self._extra = (*(pair for pair in self._extra if pair[0] != name), (name, value))

    async def body(self, limit_mib: int, share: BodyShare, limit_s: float, setting: str = "body_limit_mib") -> bytes:
        """Read the whole request body, reserving its bytes in `share`.

        The body must come within `limit_s`, and a second more for every 64 KiB. `setting`: the key of config.toml that
        sets `limit_mib`.

        Raises:
            AdmissionError: 415 `body_encoded` before anything is read, for a compressed body; 413 `body_too_large`; 408
                `body_too_slow`; 503 `bodies_full` from `share`.
            ClientGone: the client hung up before the end.
        """
        if self.head.coding:
            raise _encoded(self.head.coding)
        limit, whole = limit_mib * MIB, self.channel.body()
        if (int(self.channel.length or 0) if whole is None else len(whole)) > limit:
            raise _too_large(limit_mib, setting)
        if whole is not None:
            share.reserve(len(whole))
            return whole
        body = bytearray()  # a list would take forty times as much for a body that comes byte by byte
        more = True
        try:
            async with asyncio.timeout(limit_s) as deadline:
                while more:
                    received = await self.channel.receive()
                    if received is None:
                        raise ClientGone
                    part, more = received
                    if len(body) + len(part) > limit:
                        raise _too_large(limit_mib, setting)
                    share.reserve(len(part))
                    body += part
                    deadline.reschedule((deadline.when() or 0.0) + len(part) / SLOWEST_BODY)
        except TimeoutError:
            raise AdmissionError(
                f"The request's body did not come within {limit_s:g} s (and a second for every 64 KiB of it).",
                code="body_too_slow",
                status=408,
                hint="body_s in config.toml sets the limit.",
            ) from None
        return bytes(body)

    def on_disconnect(self, gone: Callable[[ClientGone], object]) -> None:
        """Have `gone` called if the client hangs up before the answer is finished. Call after the body was read."""
        self.channel.on_disconnect(lambda: None if self.finished else gone(ClientGone()))

    async def client_gone(self) -> None:
        """Wait for the client to hang up. Call after the body was read, instead of `on_disconnect`.

        Raises:
            ClientGone: the client hung up before the answer was finished.
        """
        while await self.channel.receive() is not None:
            pass
        if not self.finished:
            raise ClientGone

    def switch_protocols(self, headers: ResponseHeaders) -> None:
        """Answer a request for a WebSocket with 101; afterwards bytes go out as they are."""
        self.channel.switch_protocols(headers)
        self.started = True

    def end_tunnel(self) -> None:
        self.finished = True
        self.channel.finish(b"")

    def start(self, status: int, headers: ResponseHeaders, length: int | None = None) -> None:
        """Send the status line and the headers. `length`: bytes of the body, where `headers` has none."""
        if self.granted or self._extra:
            length = headers.length if length is None else length
            headers = ResponseHeaders((*headers.headers, *self.granted, *self._extra))
        self.channel.start(status, headers, length)
        self.started = True

    def flush(self) -> None:
        """Send the status line and the headers now, and not with the first piece."""
        self.channel.flush()

    async def send(self, chunk: bytes) -> None:
        """Send a piece of the body; wait while the client is slow."""
        self.channel.write(chunk)
        await self.channel.sent()

    def finish(self, last: bytes = b"") -> Awaitable[None]:
        """Send the last piece; wait while the client is slow."""
        self.finished = True
        return self.channel.end(last)

    def finish_now(self, last: bytes) -> None:
        """Send the last piece to a client that is not full."""
        self.finished = True
        self.channel.finish(last)

    def break_off(self, last: bytes) -> None:
        """Send `last` and close the connection without the answer's end, so that the client sees a failure."""
        self.finished = True
        self.channel.break_off(last)

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        self.start(status, ResponseHeaders(headers), None if status in _BODILESS else len(body))
        await self.finish(b"" if self.method == "HEAD" else body)

    async def refuse_method(self, what: str, allowed: Collection[str], dialect: Dialect = Dialect.OTHER) -> None:
        """Answer 405 with the methods that `what` takes."""
        methods = ", ".join(sorted(allowed))
        self.set_extra_headers(((b"allow", methods.encode()),))
        await self.refuse(problems.status_error(405, f"{what} takes {methods}, not {self.method}"), dialect)

    async def refuse(self, error: SparkdashError, dialect: Dialect = Dialect.OTHER, status: int | None = None) -> None:
        """Answer with an error in the format of the client's protocol; without `status` with that for model clients."""
        body = problems.encode_json(problems.error_body(error, dialect))
        await self.answer(status or problems.client_status(error), body, problems.error_headers(error))


def _encoded(coding: str) -> AdmissionError:
    return AdmissionError(
        f"The request's body is compressed ({coding[:CODING_SHOWN]}), which sparkdash does not read.",
        code="body_encoded",
        status=415,
        hint="Send it plain, without Content-Encoding.",
    )


def _too_large(limit_mib: int, setting: str) -> AdmissionError:
    return AdmissionError(
        f"The request's body is larger than {limit_mib} MiB.",
        code="body_too_large",
        status=413,
        hint=f"`{setting}` in config.toml sets the limit; control requests may have {CONTROL_BODY_MIB} MiB.",
    )
