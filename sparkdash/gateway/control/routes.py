"""How a call of the control API reaches its handler, and how its answer goes back."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Call, Row
from sparkdash.domain.container import PullProgress
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import key_check
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.frames import event_frame
from sparkdash.gateway.relay.passthrough import CancelScope
from sparkdash.keyring import Key
from sparkdash.redaction import masked
from sparkdash.wire import ResponseHeaders

_JSON = [(b"content-type", b"application/json")]
EVENTS, TEXT = "text/event-stream", "text/plain; charset=utf-8"


@dataclass(slots=True)
class ControlCall:
    """A call as its handler sees it."""

    deps: Deps
    exchange: Exchange
    key: Key | None
    key_holds: Callable[[], bool] = field(init=False)
    """Whether the caller's key is still good: for answers that have no end."""
    note: Callable[[int], Awaitable[None]] | None = None
    """Awaited with the answer's status before the caller sees it."""
    after_answer: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self.key_holds = key_check(self.key, self.deps.keys, self.deps.clock)

    def admit_holder(self) -> None:
        """Raise AdmissionError `held` while another caller has the gateway to itself."""
        self.deps.exclusive.admit(self.exchange.head.token)

    async def answer(self, row: Row[...], answer: object) -> None:
        """Send what a handler returned; None: it has answered itself."""
        if isinstance(answer, StreamedAnswer):
            await self._stream(answer)
        elif answer is not None:
            body = answer.model_dump_json().encode() if isinstance(answer, BaseModel) else answer
            assert isinstance(body, bytes)  # noqa: S101 - a document
            status = row.status if isinstance(row, Call) else 200
            await self._noted(status)
            await self.exchange.answer(status, body, _JSON)

    async def refuse(self, error: SparkdashError) -> None:
        await self._noted(error.status)
        await self.exchange.refuse(error, status=error.status)

    async def _noted(self, status: int) -> None:
        if self.note is not None:
            await self.note(status)

    async def _stream(self, answer: "StreamedAnswer") -> None:
        await self._noted(200)
        with CancelScope() as scope:
            self.exchange.on_disconnect(scope.cancel)
            self.exchange.start(200, ResponseHeaders([(b"content-type", answer.content_type.encode())]))
            self.exchange.flush()
            async with aclosing(answer.pieces) as pieces:
                async for piece in pieces:
                    await self.exchange.send(piece)
            await self.exchange.finish()


class StreamedAnswer(NamedTuple):
    """Answer that is sent piece by piece."""

    content_type: str
    pieces: AsyncGenerator[bytes, None]


Handler = Callable[[ControlCall, Any], Awaitable[object]]
"""Takes a call and what it asks for; returns the answer: a model, a document, a stream, or None if it was sent."""
T = TypeVar("T")


def by_row(*handlers: Any) -> dict[Row[...], Handler]:
    """Map handlers by the calls of the table that have their names."""
    return {getattr(ControlApi, each.__name__): each for each in handlers}


NO_BENCH = ("Nothing is measured here.", "no_bench")


def required(found: T | None, text: str, code: str, hint: str | None = None) -> T:
    """Return what this daemon has. Raises AdmissionError: 404 `code`, where it has none."""
    if found is None:
        raise AdmissionError(text, code=code, status=404, hint=hint)
    return found


async def encode_lines(lines: AsyncIterator[str], key_holds: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """Encode lines, secrets masked, until the caller's key no longer `key_holds`.

    A failure after the first line becomes the last line, as the status has gone out.
    """
    try:
        async for line in lines:
            if not key_holds():
                return
            yield masked(line).encode("utf-8", "replace") + b"\n"
    except SparkdashError as error:
        yield f"sparkdash: {error.text()}\n".encode()


async def encode_pull(steps: AsyncIterator[PullProgress]) -> AsyncGenerator[bytes, None]:
    """Encode the steps of a pull as events; a failure becomes the last event."""
    try:
        async for step in steps:
            yield event_frame("progress", step.model_dump(mode="json"))
    except SparkdashError as error:
        yield event_frame("error", problems.error_body(error))
