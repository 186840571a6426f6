"""A burst of requests: a few begin in each turn of the loop, in the order they came, and all are answered."""

from __future__ import annotations

import asyncio
from typing import Any

from sparkdash.listen import Server
from sparkdash.wire import RequestChannel, ResponseHeaders, Turns
from sparkdash.wire.connection import MOST

ANSWER = ResponseHeaders([(b"content-length", b"0")])
ASK = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_no_more_than_a_few_begin_in_a_turn() -> None:
    """And nobody overtakes those that wait."""
    turns, loop = Turns(), asyncio.get_running_loop()
    begun: list[int] = []

    def ask(name: int) -> None:
        if turns.take(loop):
            begun.append(name)
        else:
            turns.wait(lambda: begun.append(name))

    for name in range(2 * MOST + 1):
        ask(name)
    sizes = [len(begun)]
    for late in ("one comes while others wait", "and none"):
        await asyncio.sleep(0)
        if late != "and none":
            ask(2 * MOST + 1)
        sizes.append(len(begun))
    assert sizes == [MOST, 2 * MOST, 2 * MOST + 2]
    assert begun == list(range(2 * MOST + 2))
    for _ in range(2):
        await asyncio.sleep(0)
    assert [turns.take(loop) for _ in range(MOST + 1)] == [True] * MOST + [False], (
        "a turn without requests ends the count"
    )


class Handed:
    """An application that answers at once, and remembers whom."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    async def serve_channel(self, line: RequestChannel) -> None:
        self.begun.append(line.head.path)
        line.start(200, ANSWER)
        line.finish(b"")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it has a way of its own")


class Client(asyncio.Transport):
    """A connection to a server, and what was said on it."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.heard = b""
        self.wire: Any = server.config.http_protocol_class(
            config=server.config, server_state=server.server_state, app_state={}
        )
        self.wire.connection_made(self)

    def write(self, data: Any) -> None:
        self.heard += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def test_the_connections_of_a_server_share_its_turns() -> None:
    """Each is answered; one whose client left while it waited holds up nobody."""
    app = Handed()
    server = Server(app)
    server.config.load()
    clients = [Client(server) for _ in range(3 * MOST)]
    for number, client in enumerate(clients):
        client.wire.data_received(ASK % number)
    clients[-1].wire.connection_lost(None)
    await asyncio.sleep(0)
    assert app.begun == [f"/{number}" for number in range(MOST)]
    for _ in range(4):
        await asyncio.sleep(0)
    assert app.begun == [f"/{number}" for number in range(3 * MOST)]
    assert [client.heard[:15] for client in clients] == [b"HTTP/1.1 200 OK"] * (3 * MOST - 1) + [b""]
    for client in clients[:-1]:
        client.wire.connection_lost(None)
