"""A workaround for asyncio servers that close in the turn in which they accept a connection.

CPython's `Server._attach` asserts that the server still listens, after the new transport has taken the socket. The
transport is then nobody's, and the garbage collector reports it as unclosed in some later test. Seen with 3.11.7.
"""

import asyncio.selector_events
from typing import Any

_Transport: Any = asyncio.selector_events._SelectorTransport
_taken_over = _Transport.__init__


def _take_over(self: Any, loop: Any, sock: Any, *given: Any, **named: Any) -> None:
    try:
        _taken_over(self, loop, sock, *given, **named)
    except AssertionError:
        self._sock = None
        sock.close()
        raise


def fix() -> None:
    """Close such a connection, as the kernel does with one that nobody has accepted yet."""
    _Transport.__init__ = _take_over
