"""What both users of httpx share: how long they wait, what they trust, and what its errors mean.

Must not know: what is asked. Nothing that a one-shot command needs may be here: httpx takes a tenth of a second to load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from sparkdash.client import envelope
from sparkdash.client.address import Address
from sparkdash.client.daemon_connection import CONNECT_S


def limits(silence_s: float | None) -> httpx.Timeout:
    """Those of a call whose answer may pause for so long; None: for ever."""
    return httpx.Timeout(30.0, connect=CONNECT_S, read=silence_s)


def door(at: Address) -> dict[str, Any]:
    """What a transport is made with: our own, so that no proxy of the environment gets between a box and itself, and so that the
    certificates (40 ms to read) are loaded for https only."""
    return {"uds": str(at.uds) if at.uds else None, "verify": at.url.startswith("https:")}


@contextmanager
def speaking_to(address: Address) -> Iterator[None]:
    """Whatever goes wrong on the way to the daemon and back, as a DaemonError."""
    try:
        with envelope.understood(address):
            yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise envelope.unreachable(address, str(error)) from None
    except httpx.TimeoutException:
        raise envelope.silent(address) from None
    except httpx.TransportError as error:
        raise envelope.hung_up(address, type(error).__name__) from None
