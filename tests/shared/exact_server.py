"""A server of OpenAI's API whose speed is exact and whose chunks are as large as asked, the first one included.

Real engines pack several tokens into a chunk (speculation, `--stream-interval`, a proxy that joins chunks) and tell more
or less of it. What this one tells is chosen: counts in every chunk, token ids, a /tokenize route, or only the whole
`usage` at the end. It can refuse keys that OpenAI does not know, and it can pose as a sparkdash gateway.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

KNOWN = {"model", "messages", "max_tokens", "temperature", "seed", "stream", "stream_options"}
"""Keys that a strict server takes."""


@dataclass
class ExactServer:
    """Server of known truth. Rates in tokens per second; times in seconds."""

    per_chunk: int = 1
    decode: float = 100.0
    prefill: float = 4000.0
    counts: bool = True
    """Whether chunks have counts where `continuous_usage_stats` or `return_token_ids` asks for them."""
    tokenizes: bool = True
    strict: bool = False
    """Refuses keys that OpenAI's API does not have."""
    natural: int = 5
    """Tokens of an answer whose length is not forced."""
    owner: str = "vllm"
    model: str = "alpha"
    pages: Mapping[str, Any] = field(default_factory=dict)
    """Answers of other routes, by path."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the chats, first to last."""
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connection, "127.0.0.1", port)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for one in self._connections:
                one.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (mine := asyncio.current_task()) is not None:
            self._connections.add(mine)
            mine.add_done_callback(self._connections.discard)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                    first, *lines = head.split("\r\n")
                    headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
                    data = await reader.readexactly(int(headers.get("content-length", 0)))
                    await self._answer(writer, first.split(" ")[1].partition("?")[0], data)
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, path: str, data: bytes) -> None:
        body = json.loads(data) if data else {}
        if path == "/v1/chat/completions":
            self.asked.append(body)
            if self.strict and body.keys() - KNOWN:
                return await _send(writer, {"error": {"message": f"unknown: {sorted(body.keys() - KNOWN)}"}}, 400)
            return await (self._stream(writer, body) if body.get("stream") else _send(writer, self._whole(body)))
        if path == "/tokenize" and self.tokenizes:
            ids = self._ids(_text(body))
            return await _send(writer, {"count": len(ids), "tokens": ids})
        if path == "/v1/models":
            card = {"id": self.model, "object": "model", "owned_by": self.owner, "root": self.model}
            return await _send(writer, {"object": "list", "data": [card]})
        if path in self.pages:
            return await _send(writer, self.pages[path])
        return await _send(
            writer, {} if path == "/health" else {"error": "no such route"}, 200 if path == "/health" else 404
        )

    def _ids(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def _usage(self, body: Mapping[str, Any], tokens: int) -> dict[str, Any]:
        prompt = len(self._ids(_text(body)))
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}

    def _length(self, body: Mapping[str, Any]) -> tuple[int, str]:
        most = body.get("max_tokens") or body.get("max_completion_tokens") or 64
        if body.get("ignore_eos") or body.get("min_tokens") == most:
            return most, "length"
        return (most, "length") if most <= self.natural else (self.natural, "stop")

    def _whole(self, body: Mapping[str, Any]) -> dict[str, Any]:
        count, finish = self._length(body)
        message = {"role": "assistant", "content": "paris " + _words(0, count)}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": self._usage(body, count)}

    async def _stream(self, writer: asyncio.StreamWriter, body: Mapping[str, Any]) -> None:
        """Each chunk is written when its last token is due: (tokens after the first chunk) / decode."""
        loop = asyncio.get_running_loop()
        count, finish = self._length(body)
        options = body.get("stream_options") or {}
        first_at = loop.time() + len(self._ids(_text(body))) / self.prefill
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        done = 0
        while done < count:
            size = min(self.per_chunk, count - done)
            done += size
            choice: dict[str, Any] = {
                "index": 0, "delta": {"content": _words(done - size, done)},
                "finish_reason": finish if done == count else None,
            }  # fmt: skip
            if self.counts and body.get("return_token_ids"):
                choice["token_ids"] = list(range(done - size, done))
            told = {"usage": self._usage(body, done)} if self.counts and options.get("continuous_usage_stats") else {}
            await asyncio.sleep(max(0.0, first_at + max(0, done - self.per_chunk) / self.decode - loop.time()))
            _event(writer, {"id": "x", "object": "chat.completion.chunk", "choices": [choice], **told})
            await writer.drain()
        if options.get("include_usage"):
            _event(writer, {"id": "x", "choices": [], "usage": self._usage(body, count)})
        _frame(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _text(body: Mapping[str, Any]) -> str:
    said = [str(turn.get("content")) for turn in body.get("messages") or ()]
    return " ".join([*said, str(body.get("prompt") or "")])


def _words(start: int, end: int) -> str:
    """One token is a word; every seventh is a long one, so that characters are no exact measure of tokens."""
    return "".join("considerably " if number % 7 == 0 else "so " for number in range(start, end))


def _event(writer: asyncio.StreamWriter, event: Mapping[str, Any]) -> None:
    _frame(writer, b"data: " + json.dumps(event).encode() + b"\n\n")


def _frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _send(writer: asyncio.StreamWriter, body: Any, status: int = 200) -> None:
    data = json.dumps(body).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
    )
    await writer.drain()
