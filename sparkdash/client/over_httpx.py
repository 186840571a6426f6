"""Shared use of httpx: time limits, transports, and what its errors mean.

Must not know: what is asked. Rule: nothing that a one-shot command needs is here: httpx takes a tenth of a second to
load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkdash.client import envelope
from sparkdash.client.address import Address, credentials
from sparkdash.client.daemon_connection import CONNECT_S

if TYPE_CHECKING:
    import httpx


def timeouts(silence_s: float | None) -> httpx.Timeout:
    """Return the limits of a call whose answer may pause for `silence_s`; None: for ever."""
    import httpx

    return httpx.Timeout(30.0, connect=CONNECT_S, read=silence_s)


def new_client(at: Address) -> httpx.AsyncClient:
    """Make the client of a daemon. Its transport ignores the proxies of the environment: none may get between a box
    and itself. Certificates, which take 40 ms to read, are loaded for https only.
    """
    import httpx

    transport = httpx.AsyncHTTPTransport(uds=str(at.uds) if at.uds else None, verify=at.url.startswith("https:"))
    return httpx.AsyncClient(base_url=at.url, transport=transport, headers=credentials(at))


@contextmanager
def speaking_to(address: Address) -> Iterator[None]:
    """Raise whatever goes wrong on the way to the daemon and back as a DaemonError."""
    import httpx

    try:
        with envelope.reading_answer(address):
            yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise envelope.unreachable_error(address, str(error)) from None
    except httpx.TimeoutException:
        raise envelope.silent_error(address) from None
    except httpx.TransportError as error:
        raise envelope.hung_up_error(address, type(error).__name__) from None
