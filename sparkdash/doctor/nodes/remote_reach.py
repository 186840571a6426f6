"""TCP connections between two boxes, one end each; piped to a box, so it uses the standard library alone.

Each end ends by itself.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any


def run(words: str) -> None:
    request = json.loads(words)
    signal.alarm(int(request["seconds"]) + 10)
    work = listen if request["role"] == "listen" else connect
    sys.stdout.write(json.dumps({"ports": work(request)}) + "\n")


def listen(request: dict[str, Any]) -> dict[str, str]:
    """Listen on the ports until each has had a connection of the peer, or the time is over."""
    found: dict[str, str] = {}
    due = time.monotonic() + request["seconds"]
    with selectors.DefaultSelector() as selector:
        for port in request["ports"]:
            try:
                listener = socket.create_server((request["address"], port))
            except OSError as error:
                found[str(port)] = f"not tried: {error.strerror or error}"
            else:
                selector.register(listener, selectors.EVENT_READ, port)
        while selector.get_map() and (left := due - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                stream, source = key.fileobj.accept()  # type: ignore[union-attr]  # our sockets
                stream.close()
                if source[0] == request["peer"]:
                    found[str(key.data)] = "accepted"
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]  # our sockets
        for key in list(selector.get_map().values()):
            found[str(key.data)] = "nobody came"
            key.fileobj.close()  # type: ignore[union-attr]  # our sockets
    return found


def connect(request: dict[str, Any]) -> dict[str, str]:
    """Connect to each port of the peer, again and again while it refuses: it may not listen yet."""
    due = time.monotonic() + request["seconds"]
    waiting: dict[int, str] = dict.fromkeys(request["ports"], "not tried")
    found: dict[str, str] = {}
    while waiting and time.monotonic() < due:
        for port in list(waiting):
            try:
                socket.create_connection((request["peer"], port), 1.0, (request["address"], 0)).close()
            except OSError as error:
                waiting[port] = os.strerror(error.errno) if error.errno else "timed out"
            else:
                found[str(port)] = "connected"
                del waiting[port]
        time.sleep(0.05)
    return {**found, **{str(port): why for port, why in waiting.items()}}
