"""An engine and a load that cost as little as Python can, so that on a small box the relay is what is measured.

Both are plain asyncio protocols that write bytes made beforehand and read no more of HTTP than they need. A body that
says `"stream":true` gets a paced stream of chat frames, with `"silent":true` one frame and no end; any other a small JSON at once.
"""

import asyncio
import json
import time
from itertools import count
from typing import cast

AGENT = b"User-Agent: perf/1\r\n"
TRACED = (
    b"Accept: application/json\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
    b"User-Agent: AsyncOpenAI/Python 1.109.1\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 1.109.1\r\n"
    b"X-Stainless-OS: Linux\r\nX-Stainless-Arch: arm64\r\nX-Stainless-Runtime: CPython\r\n"
    b"X-Stainless-Runtime-Version: 3.12.3\r\nX-Stainless-Async: async:asyncio\r\nx-stainless-retry-count: 0\r\n"
    b"x-stainless-read-timeout: 600\r\ntraceparent: 00-%032x-00f067aa0ba902b7-01\r\n"
)
"""Headers that openai-python adds, and OpenTelemetry in it: a trace of its own for each request."""
FRAME = (
    b'data: {"id":"chatcmpl-b49c08ee139e9d37","object":"chat.completion.chunk","created":1795228867,"model":"alpha",'
    b'"choices":[{"index":0,"delta":{"content":" quiet"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
    b"                          \n\n"
)
"""240 bytes, as vLLM writes them."""
STOP = FRAME.replace(b'"finish_reason":null', b'"finish_reason":"stop"')
COUNTS = (
    b'data: {"id":"chatcmpl-b49c08ee139e9d37","object":"chat.completion.chunk","created":1795228867,"model":"alpha",'
    b'"choices":[],"usage":{"prompt_tokens":9,"total_tokens":49,"completion_tokens":40}}\n\n'
)
"""Before the end, for those who ask for it with `include_usage`."""
DONE = b"data: [DONE]\n\n"
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1795228867,
        "model": "alpha",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "quiet " * 40}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49},
    }
).encode()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
MESSAGES = [{"role": "user", "content": "x" * 2000}]


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Engine(asyncio.Protocol):
    """Paces `chunks` frames at `rate` a second. All streams take the same steps, as one engine decodes its whole batch."""

    def __init__(self, chunks: int, rate: float) -> None:
        self.chunks, self.gap = chunks, 1 / rate
        self.buffer = b""
        self.end = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        lower = head.lower()
        size = int(lower.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if b"transfer-encoding" in lower:  # a proxy that does not know the length
            size = len(rest) if rest.endswith(LAST) else len(rest) + 1
        if not blank or len(rest) < size:
            return
        self.buffer = rest[size:]
        asked = rest.replace(b": ", b":")
        if b'"silent":true' in asked:
            self.transport.write(STREAM_HEAD + chunked(FRAME))
        elif b'"stream":true' in asked:
            counts = chunked(COUNTS) if b'"include_usage":true' in asked else b""
            self.end = chunked(STOP) + counts + chunked(DONE) + LAST
            self.transport.write(STREAM_HEAD + chunked(FRAME))
            self.tick(1, (asyncio.get_running_loop().time() // self.gap + 1) * self.gap)
        else:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
            self.transport.write(head + ANSWER)

    def tick(self, sent: int, due: float) -> None:
        if sent < self.chunks:
            self.timer = asyncio.get_running_loop().call_at(due, self.say, sent, due)
        else:
            self.transport.write(self.end)

    def say(self, sent: int, due: float) -> None:
        self.transport.write(chunked(FRAME))
        self.tick(sent + 1, due + self.gap)


class Client(asyncio.Protocol):
    """One connection. `first` and `over` are of the answer to the request written last."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.begun_at: asyncio.Future[float] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            when = "in the middle of" if self.first else "before"
            self.over.set_exception(ConnectionError(f"the relay hung up {when} its answer ({exc or 'closed'})"))

    def ask(self) -> asyncio.Future[float]:
        """Send the request; the result is the seconds to the first byte of the body, known when its last has come."""
        self.over: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.head, self.tail, self.left, self.first = b"", b"", -1, 0.0
        self.begun = time.perf_counter()
        self.transport.write(self.request)
        return self.over

    def begins(self) -> asyncio.Future[float]:
        """Send the request; done at the first byte of the body."""
        self.begun_at = asyncio.get_running_loop().create_future()
        self.ask()
        return self.begun_at

    def data_received(self, data: bytes) -> None:
        if not self.first:
            self.head += data
            head, _, data = self.head.partition(b"\r\n\r\n")
            if not data:
                return
            self.first = time.perf_counter() - self.begun
            if b" 200 " not in head[:16]:
                self.over.set_exception(RuntimeError(self.head.decode("latin-1")[:300]))
                return
            if self.begun_at is not None:
                self.begun_at.set_result(self.first)
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            self.left = int(length) if length else -1
        self.tail = (self.tail + data)[-len(LAST) :]
        if self.left >= 0:
            self.left -= len(data)
        if self.left == 0 or (self.left < 0 and self.tail == LAST):
            self.over.set_result(self.first)


def request(port: int, *, stream: bool, silent: bool = False) -> bytes:
    asked = {"model": "alpha", "stream": stream, "messages": MESSAGES} | ({"silent": True} if silent else {})
    body = json.dumps(asked, separators=(",", ":")).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer sk-local\r\n%bContent-Length: %d\r\n\r\n" % (port, AGENT, len(body))
    ) + body


async def connect(port: int, *, stream: bool, silent: bool = False) -> Client:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(
        lambda: Client(request(port, stream=stream, silent=silent)), "127.0.0.1", port
    )
    return client


async def streams(port: int, number: int) -> list[float]:
    """Run that many at once, each on a connection of its own; seconds to the first byte of each."""
    clients = [await connect(port, stream=True) for _ in range(number)]
    firsts = await asyncio.gather(*(client.ask() for client in clients))
    for client in clients:
        client.transport.close()
    return list(firsts)


async def unary(port: int, connections: int, total: int, *, traced: bool = False) -> float:
    """Seconds for `total` requests over these connections, each asking again as soon as it is answered. `traced`: each as a real
    client says it, and none like the one before."""
    traces = count(1)

    async def one(client: Client) -> None:
        plain = client.request
        for _ in range(total // connections):
            if traced:
                client.request = plain.replace(AGENT, TRACED % next(traces), 1)
            await client.ask()
        client.transport.close()

    clients = [await connect(port, stream=False) for _ in range(connections)]
    begun = time.perf_counter()
    await asyncio.gather(*map(one, clients))
    return time.perf_counter() - begun
