"""TCP stream measurement of one end; piped to a box, so it uses the standard library alone.

Owns: one end of the measurement: {"role": "receive" or "send", "address", "peer", "port", "token", "streams",
"seconds", "pings"} in, figures out. Each end ends by itself: every socket has a timeout, and an alarm ends the process
when all else fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from typing import Any

CHUNK = 1 << 20
BEGIN_S = 8.0
"""Longest wait for the other end to begin."""
SILENT_S = 3.0
"""Longest silence of a link under measurement."""


def main() -> None:
    """Read the request and print the figures of this end."""
    request = json.loads(sys.argv[1])
    hard_end(BEGIN_S + SILENT_S + 2 * request["seconds"] + 2 * SILENT_S)
    work = receive if request["role"] == "receive" else send
    try:
        found: dict[str, Any] = work(request)
    except OSError as error:
        found = {"error": str(error.strerror or error) or type(error).__name__, "began": False}
    sys.stdout.write(json.dumps(found))


def hard_end(seconds: float) -> None:
    """Have the kernel end this process after `seconds`, and with the process that started it."""
    signal.alarm(int(seconds) + 1)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG of prctl(2)


def receive(request: dict[str, Any]) -> dict[str, Any]:
    """Accept the streams of the other end, count their bytes, and answer its pings."""
    with socket.create_server((request["address"], request["port"])) as listener:
        streams = accepted(listener, request)
    if request["pings"]:
        return attempted(lambda: echo(streams[0], request["pings"]))
    return in_children([lambda one=one: count_bytes(one) for one in streams], request)


def accepted(listener: socket.socket, request: dict[str, Any]) -> list[socket.socket]:
    """Accept connections of the peer that know the token, and close all others."""
    due = time.monotonic() + BEGIN_S
    streams: list[socket.socket] = []
    token = request["token"].encode()
    while len(streams) < request["streams"]:
        listener.settimeout(max(0.01, due - time.monotonic()))
        stream, source = listener.accept()
        stream.settimeout(SILENT_S)
        if source[0] == request["peer"] and read_exactly(stream, len(token)) == token:
            stream.sendall(b"+")
            streams.append(stream)
        else:
            stream.close()
    return streams


def read_exactly(stream: socket.socket, count: int) -> bytes:
    """Read `count` bytes; fewer when the stream ended before."""
    found = b""
    while len(found) < count and (more := stream.recv(count - len(found))):
        found += more
    return found


def count_bytes(stream: socket.socket) -> dict[str, Any]:
    """Read a stream to its end; return its bytes and the seconds since its first one."""
    buffer = memoryview(bytearray(CHUNK))
    total, first = 0, None
    while count := stream.recv_into(buffer):
        first = first or time.monotonic()
        total += count
    return {"bytes": total, "seconds": time.monotonic() - (first or time.monotonic())}


def echo(stream: socket.socket, pings: int) -> dict[str, Any]:
    """Send every byte of the other end back."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    count = 0
    while count < pings and (byte := stream.recv(1)):
        stream.sendall(byte)
        count += 1
    return {"pings": count}


def send(request: dict[str, Any]) -> dict[str, Any]:
    """Connect the streams, and send for some seconds or ping."""
    streams = [connected(request) for _ in range(request["streams"])]
    if request["pings"]:
        return attempted(lambda: ping(streams[0], request["pings"]))
    return in_children([lambda one=one: pour(one, request["seconds"]) for one in streams], request)


def connected(request: dict[str, Any]) -> socket.socket:
    """Connect to the other end, which may not listen yet."""
    due = time.monotonic() + BEGIN_S
    while True:
        try:
            stream = socket.create_connection((request["peer"], request["port"]), SILENT_S, (request["address"], 0))
            break
        except ConnectionRefusedError:
            if time.monotonic() > due:
                raise
            time.sleep(0.05)
    stream.settimeout(SILENT_S)
    stream.sendall(request["token"].encode())
    if not stream.recv(1):
        raise ConnectionResetError("the other end refused the stream")
    return stream


def pour(stream: socket.socket, seconds: float) -> dict[str, Any]:
    """Send zeros for some seconds."""
    block, total, began = bytes(CHUNK), 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        stream.sendall(block)
        total += CHUNK
    stream.shutdown(socket.SHUT_WR)  # other processes hold the socket too: a mere close would end nothing
    return {"bytes": total, "seconds": passed}


def ping(stream: socket.socket, pings: int) -> dict[str, Any]:
    """Send a byte and wait for it, again and again; return the round trips in microseconds."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trips = []
    for _ in range(pings):
        began = time.perf_counter()
        stream.sendall(b".")
        if not stream.recv(1):
            raise ConnectionResetError("the other end closed the stream")
        trips.append((time.perf_counter() - began) * 1e6)
    return {"round_trips_us": trips}


def in_children(works: list[Any], request: dict[str, Any]) -> dict[str, Any]:
    """Run each stream in a process of its own: one interpreter alone is slower than the link."""
    limit = BEGIN_S + SILENT_S + request["seconds"] + SILENT_S
    pipes = []
    for work in works:
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            os.write(writer, json.dumps(child(work, limit)).encode())
            os._exit(0)
        os.close(writer)
        pipes.append(reader)
    found = []
    for reader in pipes:
        with os.fdopen(reader, "rb") as file:
            found.append(json.loads(file.read() or b'{"error": "its process was killed", "began": true}'))
    for _ in works:
        os.wait()
    errors = [one["error"] for one in found if "error" in one]
    return {"error": errors[0], "began": True} if errors else {"streams": found}


def child(work: Any, limit: float) -> dict[str, Any]:
    """Run one stream in a process of its own."""
    hard_end(limit)
    return attempted(work)


def attempted(work: Any) -> dict[str, Any]:
    """Run what follows the first byte; a failure is its answer."""
    try:
        found: dict[str, Any] = work()
    except OSError as error:
        return {"error": str(error.strerror or error) or type(error).__name__, "began": True}
    return found


if __name__ == "__main__":
    main()
