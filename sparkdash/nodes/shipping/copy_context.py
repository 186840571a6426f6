"""Context of a copy to one node: its sessions, the known checksums, the meter, and error messages.

Owns: opening and ending sessions, and turning what they raise into errors for people. Must not know which files are
sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sparkdash.errors import HostError
from sparkdash.host.hub_download import Stopped
from sparkdash.nodes.shipping import copy_errors
from sparkdash.nodes.shipping.copy_meter import CopyMeter
from sparkdash.nodes.shipping.known_sums import KnownSums
from sparkdash.nodes.shipping.receiver_session import LinkLost, ReceiverRefusal, ReceiverSession


class Sessions:
    """Opens sessions with one node's receiver, and ends them all from another thread."""

    def __init__(self, command: Callable[[], Iterable[str]]) -> None:
        self._command = command
        self._open: set[ReceiverSession] = set()
        self._lock = threading.Lock()
        self._over = False

    def open(self) -> ReceiverSession:
        """Open one more session. Raises Stopped after `kill_all`, LinkLost."""
        session = ReceiverSession(tuple(self._command()))
        with self._lock:
            self._open = {each for each in self._open if not each.closed} | {session}
            if not self._over:
                return session
        session.close()
        raise Stopped

    def kill_all(self) -> None:
        """End all sessions, now and later."""
        with self._lock:
            self._over = True
            for session in self._open:
                session.kill()


@dataclass(frozen=True, slots=True)
class CopyContext:
    """Tools of a copy to one node."""

    node: str
    sessions: Sessions
    sums: KnownSums
    meter: CopyMeter
    refusal: Callable[[str], HostError | None] = lambda _: None
    """Error of a node that may not be used, by the connection's last words; None for a link that broke."""
    pauses_s: tuple[float, ...] = (0.5, 2.0, 5.0, 10.0, 20.0)
    """Pauses before further tries after a broken connection, counted anew once bytes have arrived."""

    @contextmanager
    def session(self, what: str, root: str) -> Iterator[ReceiverSession]:
        """Open a session for the length of the block; what fails in it becomes an error about `what`.

        Raises:
            HostError: node_unreachable, copy_refused and the like.
        """
        try:
            with self.sessions.open() as session:
                yield session
        except LinkLost as lost:
            self.meter.pause(0.0)  # ended from outside: no error
            raise self.lost(lost, what) from None
        except ReceiverRefusal as refusal:
            raise copy_errors.refused(self.node, what, root, refusal.facts) from None

    def lost(self, lost: LinkLost, what: str) -> HostError:
        """Error for a connection that broke, or could not be made."""
        return self.refusal(lost.words) or copy_errors.link_lost(self.node, what, lost.code, lost.words)
