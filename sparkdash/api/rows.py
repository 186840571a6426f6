"""Rows of the table of the control API: a call with one answer, a document, and a stream of items. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, Self, TypeVar, overload
from urllib.parse import quote, urlencode

from pydantic import TypeAdapter, ValidationError

from sparkdash import __version__
from sparkdash.domain.event import EVENT, Event, Withheld
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, expected
from sparkdash.sse import Frames

if TYPE_CHECKING:
    from sparkdash.api.requests import ApiRequest


T = TypeVar("T")


class OtherVersion(Exception):  # noqa: N818 - the client that knows the address words the error
    """Raised for the state of a daemon whose version cannot be followed: `version`."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version


def read_answer(adapter: TypeAdapter[T], content: bytes | str) -> T:
    """Read an answer without unknown fields. Raises ValidationError, or OtherVersion: another major version."""
    try:
        read = adapter.validate_json(content, extra="ignore")
    except ValidationError:
        refuse_other_major(_told_version(content))
        raise
    if isinstance(read, Snapshot):
        refuse_other_major(read.daemon.version)
    return read


def read_event(content: str) -> Event:
    """Read an event of the feed; a fact of a kind that this version does not know becomes `Withheld`.

    Raises:
        pydantic.ValidationError: a known fact cannot be read.
    """
    try:
        return EVENT.validate_json(content, extra="ignore")
    except ValidationError as error:
        if any(
            problem["type"] != "union_tag_invalid" for problem in error.errors(include_url=False, include_input=False)
        ):
            raise
        told = json.loads(content)
        return Event(seq=told["seq"], at=told["at"], fact=Withheld())


def refuse_other_major(version: str | None) -> None:
    """Raise OtherVersion where the daemon's first number differs from this version's; None: unknown."""
    if version is not None and version.partition(".")[0] != __version__.partition(".")[0]:
        raise OtherVersion(version)


def _told_version(content: bytes | str) -> str | None:
    try:
        told: Any = json.loads(content)
        version = told["daemon"]["version"]
    except (ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) else None


P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)
Method = Literal["GET", "POST", "DELETE"]
ANSWER_S = 30.0
"""Limit of a plain call, in seconds. The slowest asks podman, which the daemon gives less time than this."""
_PATH_PARAMETER = re.compile(r"\{(?P<name>\w+)(?P<slashes>:path)?\}")


class HttpCall(NamedTuple):
    """A request as it is sent: `target` is path and query, `body` a JSON object."""

    method: Method
    target: str
    body: Mapping[str, object] | None


class StreamError(Exception):
    """The stream ended with an error event, whose data is `envelope`."""

    def __init__(self, envelope: str) -> None:
        super().__init__(envelope)
        self.envelope = envelope


class StreamReader(Protocol[T_co]):
    """Reader of one stream: bytes in, items out."""

    def feed(self, chunk: bytes) -> Iterator[T_co]:
        """Yield the items that `chunk` completes."""
        ...

    def end(self) -> Iterator[T_co]:
        """Yield what is left when the stream ends."""
        ...


class EventReader(Generic[T]):
    """Reader of server-sent events. `parsers` has a parser for each event name; other events are skipped."""

    def __init__(self, parsers: Mapping[str, Callable[[str], T]]) -> None:
        self._frames = Frames()
        self._parsers = parsers

    def feed(self, chunk: bytes) -> Iterator[T]:
        """Raises StreamError at an error event."""
        for frame in self._frames.feed(chunk):
            if frame.name == "error":
                raise StreamError(frame.data)
            if parse := self._parsers.get(frame.name):
                yield parse(frame.data)

    def end(self) -> Iterator[T]:
        """Yield nothing: an event that is cut off is no event."""
        return iter(())


class AsyncCaller(Protocol):
    """A client whose calls are awaited."""

    def call(self, row: Call[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, T]: ...

    def stream(self, row: Stream[P, T], /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]: ...


class BlockingCaller(Protocol):
    """A client whose calls return when they are answered."""

    def call(self, row: Call[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def stream(self, row: Stream[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]: ...


class Row(Generic[P]):
    """Route with the model of its parameters, `request`.

    Parameters that the path names go there; the others go into the body of a POST, or into the query.
    """

    def __init__(self, method: Method, path: str, request: Callable[P, ApiRequest], summary: str) -> None:
        self.method = method
        self.path = path
        self.request = request
        self.summary = summary

    @property
    def model(self) -> type[ApiRequest]:
        return self.request  # type: ignore[return-value]  # its signature is what a client's method takes

    @property
    def in_path(self) -> frozenset[str]:
        """Names of the parameters in the path."""
        return frozenset(part["name"] for part in _PATH_PARAMETER.finditer(self.path))

    @property
    def pattern(self) -> str:
        """Regular expression of the path, with a group for each parameter."""
        return _PATH_PARAMETER.sub(
            lambda part: f"(?P<{part['name']}>{'.*' if part['slashes'] else '[^/]+'})", self.path
        )

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> HttpCall:
        """Build the request, without what the caller left out. Raises AdmissionError `invalid_request`."""
        try:
            rest = self.request(*args, **kwargs).model_dump(mode="json", exclude_unset=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = f"{self.path}: {'.'.join(map(str, first['loc']))}"
            raise AdmissionError(f"{where}: {expected(first)}.", code="invalid_request") from None

        def filled(part: re.Match[str]) -> str:
            return quote(str(rest.pop(part["name"])), safe="/" if part["slashes"] else "")

        target = _PATH_PARAMETER.sub(filled, self.path)
        if self.method == "POST":
            return HttpCall(self.method, target, rest)
        query = {name: int(value) if isinstance(value, bool) else value for name, value in rest.items()}
        given = {name: value for name, value in query.items() if value is not None}
        encoded = urlencode(given, doseq=True, quote_via=quote, safe="")
        return HttpCall(self.method, f"{target}?{encoded}" if given else target, None)


class Call(Row[P], Generic[P, T]):
    """Route with one answer, a JSON value of the type `answer`.

    `silence_s`: longest silence, in seconds, before the daemon counts as not answering; None: no limit.
    """

    def __init__(
        self,
        method: Method,
        path: str,
        request: Callable[P, ApiRequest],
        answer: type[T],
        summary: str,
        *,
        status: int = 200,
        silence_s: float | None = ANSWER_S,
    ) -> None:
        super().__init__(method, path, request, summary)
        self.answer = answer
        self.status = status
        self.silence_s = silence_s

    def read(self, content: bytes) -> T:
        return read_answer(TypeAdapter(self.answer), content)

    @overload
    def __get__(self, client: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, client: AsyncCaller, owner: type[object]) -> Callable[P, Coroutine[None, None, T]]: ...
    @overload
    def __get__(self, client: BlockingCaller, owner: type[object]) -> Callable[P, T]: ...
    def __get__(self, client: AsyncCaller | BlockingCaller | None, owner: type[object]) -> object:
        return self if client is None else partial(client.call, self)


class DocumentCall(Call[P, bytes]):
    """Route whose answer is JSON of a shape that only its readers know."""

    def read(self, content: bytes) -> bytes:
        return content


class Stream(Row[P], Generic[P, T]):
    """Route whose answer is a stream of items. `silence_s`: as in Call."""

    def __init__(
        self,
        method: Method,
        path: str,
        request: Callable[P, ApiRequest],
        reader: Callable[[], StreamReader[T]],
        summary: str,
        *,
        silence_s: float | None = None,
    ) -> None:
        super().__init__(method, path, request, summary)
        self.reader = reader
        self.silence_s = silence_s

    @overload
    def __get__(self, client: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, client: AsyncCaller, owner: type[object]) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, client: BlockingCaller, owner: type[object]) -> Callable[P, Iterator[T]]: ...
    def __get__(self, client: AsyncCaller | BlockingCaller | None, owner: type[object]) -> object:
        return self if client is None else partial(client.stream, self)
