"""Client and AsyncClient: the control API as methods, over the standard library for commands, awaited over httpx."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from sparkdash.api.answers import LeaseGranted
from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Call, HttpCall, Stream
from sparkdash.client import address, connection
from sparkdash.client.address import Address, credentials
from sparkdash.client.connection import FIRST_ERROR_STATUS, DaemonConnection, error_from_answer, reading_answer
from sparkdash.domain.event import Measuring
from sparkdash.domain.request import LEASE_HEADER

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    import httpx


def timeouts(silence_s: float | None) -> "httpx.Timeout":
    import httpx

    return httpx.Timeout(30.0, connect=connection.CONNECT_S, read=silence_s)


def new_client(at: Address) -> "httpx.AsyncClient":
    """Make the client of a daemon. Its transport ignores the proxies of the environment: none may get between a box
    and itself. Certificates, which take 40 ms to read, are loaded for https only.
    """
    import asyncio

    import httpx

    asyncio.get_running_loop().set_exception_handler(_report)
    transport = httpx.AsyncHTTPTransport(uds=str(at.uds) if at.uds else None, verify=at.url.startswith("https:"))
    return httpx.AsyncClient(base_url=at.url, transport=transport, headers=credentials(at))


def _report(loop: "AbstractEventLoop", context: dict[str, Any]) -> None:
    """Report as the loop does, but not data that comes for a read over a unix socket which was just cancelled.

    anyio 4.16 gives it to the cancelled future (kin of its issue 1267): nothing is lost, and the user saw a traceback.
    """
    late = type(context.get("exception")).__name__ == "InvalidStateError" and "set_result" in context["message"]
    if not late:
        loop.default_exception_handler(context)


@contextmanager
def speaking_to(address: Address) -> Iterator[None]:
    import httpx

    try:
        with reading_answer(address):
            yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise connection.unreachable_error(address, str(error)) from None
    except httpx.TimeoutException:
        raise connection.silent_error(address) from None
    except httpx.TransportError as error:
        raise connection.hung_up_error(address, type(error).__name__) from None


P = ParamSpec("P")
T = TypeVar("T")


class Client(ControlApi):
    """Client of the daemon at `url`, or where `address.find_daemon` says.

    Every method of the table raises SparkdashError; DaemonError when no daemon answers.
    """

    def __init__(self, url: str | None = None) -> None:
        self.address = address.resolve(url)
        self._connection = DaemonConnection(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def health(self) -> bool:
        """Whether a daemon answers; never raise."""
        return connection.is_serving(self.address)

    def call(self, row: Call[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        request = row.prepare(*args, **kwargs)
        with self._connection.exchange(request, row.silence_s) as reply, reading_answer(self.address):
            content = reply.read()
            if reply.status >= FIRST_ERROR_STATUS:
                raise error_from_answer(reply.status, content, self.address)
            return row.read(content)

    def stream(self, row: Stream[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        reader = row.reader()
        with reading_answer(self.address):
            for chunk in self._chunks(row.prepare(*args, **kwargs), row.silence_s):
                yield from reader.feed(chunk)
            yield from reader.end()

    def _chunks(self, request: HttpCall, silence_s: float | None) -> Iterator[bytes]:
        with self._connection.exchange(request, silence_s) as reply:
            if reply.status >= FIRST_ERROR_STATUS:
                raise error_from_answer(reply.status, reply.read(), self.address)
            while chunk := reply.read1():
                yield chunk


class AsyncClient(ControlApi):
    """`Client` whose calls are awaited."""

    def __init__(self, url: str | None = None) -> None:
        self.address = address.resolve(url)

    @cached_property
    def _http(self) -> "httpx.AsyncClient":
        """The connections; httpx is loaded with the first call, as the dashboard is on the screen before it."""
        return new_client(self.address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if "_http" in vars(self):
            await self._http.aclose()

    async def hold(
        self, holder: str, expected_s: float | None = None, measuring: Measuring | None = None
    ) -> LeaseGranted:
        """Take the lease of the gateway, or renew the one that this client holds; its later calls carry the token."""
        granted = await self.lease(
            holder=holder, token=self._http.headers.get(LEASE_HEADER), expected_s=expected_s, measuring=measuring
        )
        self._http.headers[LEASE_HEADER] = granted.token
        return granted

    async def let_go(self) -> None:
        if LEASE_HEADER in self._http.headers:
            try:
                await self.end_lease()
            finally:
                del self._http.headers[LEASE_HEADER]

    async def call(self, row: Call[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        request = row.prepare(*args, **kwargs)
        with speaking_to(self.address):
            reply = await self._http.request(
                request.method, request.target, json=request.body, timeout=timeouts(row.silence_s)
            )
            if reply.is_error:
                raise error_from_answer(reply.status_code, reply.content, self.address)
            return row.read(reply.content)

    async def stream(self, row: Stream[P, T], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        reader = row.reader()
        with speaking_to(self.address):
            async with aclosing(self._chunks(row.prepare(*args, **kwargs), row.silence_s)) as chunks:
                async for chunk in chunks:
                    for item in reader.feed(chunk):
                        yield item
            for item in reader.end():
                yield item

    async def _chunks(self, request: HttpCall, silence_s: float | None) -> AsyncGenerator[bytes, None]:
        method, target, body = request
        async with self._http.stream(method, target, json=body, timeout=timeouts(silence_s)) as reply:
            if reply.is_error:
                raise error_from_answer(reply.status_code, await reply.aread(), self.address)
            async for chunk in reply.aiter_bytes():
                yield chunk
