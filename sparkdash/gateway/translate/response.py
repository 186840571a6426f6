"""TranslatedResponse: an engine's answer to a chat, read as the answer to the client's own request."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from sparkdash.domain.profile import Profile
from sparkdash.engines.registry import adapter_of
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.route import Dialect, Route
from sparkdash.gateway.translate.answers import ChatAnswer, MessagesAnswer, ResponsesAnswer, engine_error
from sparkdash.gateway.translate.requests import TRANSLATED, ChatRequest
from sparkdash.upstream import EngineResponse, ResponseHead

EVENT_STREAM = "text/event-stream"


def needs_translation(profile: Profile, version: str | None, route: Route) -> bool | None:
    """Return whether to translate: False: not needed or impossible; None: only the engine's 404 tells."""
    protocol = TRANSLATED.get(route.path) if route.profile is None else None
    return False if protocol is None else adapter_of(profile).lacks_protocol(profile, version, protocol)


def answer_writer(dialect: Dialect, asked: Mapping[str, Any], chat: ChatRequest) -> ChatAnswer:
    return (MessagesAnswer if dialect is Dialect.MESSAGES else ResponsesAnswer)(asked, chat)


class TranslatedResponse(EngineResponse):
    """Answer whose body is translated as it comes."""

    __slots__ = ("_decoded", "_dialect", "_writer")

    def __init__(self, answer: EngineResponse, dialect: Dialect, writer: ChatAnswer) -> None:
        super().__init__(answer.connection)
        self.length = None
        self._decoded: Callable[[bytes], bytes] = bytes
        if self.head.coding in ("gzip", "deflate"):  # nobody asked for it
            self._decoded = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress
            self.head = ResponseHead([pair for pair in self.headers if pair[0] != b"content-encoding"])
            self.headers = self.head.headers
        self._dialect = dialect
        self._writer = writer

    async def read_error(self) -> None:
        """Read an engine's refusal, and keep it in the client's protocol."""
        error = engine_error(self._decoded(await self.read()), self.status)
        body = problems.error_body(error, self._dialect)
        body["error"] |= {"src": "engine"}
        self._body = problems.encode_json(body)

    def whole_body(self) -> bytes | None:
        return self._body

    async def pour(self, take: Callable[[bytes], object]) -> bytes:
        """Give each translated piece to `take`; return the last. Raises UpstreamError, and the engine's own error."""
        if self._body is not None:
            return self._body
        if self.content_type != EVENT_STREAM:
            return self._writer.whole(self._decoded(b"".join([piece async for piece in self.chunks()])))

        def translated(piece: bytes) -> None:
            made = bytearray()
            try:
                for frame in self._writer.feed(self._decoded(piece)):
                    made += frame
            finally:
                if made:  # also what came before an error
                    take(bytes(made))

        translated(await super().pour(translated))
        return b"".join(self._writer.end())
