"""Client: the daemon's control API as methods that wait, for the one-shot commands.

Rule: as in `client`, whose methods these are without the loop. Must not know: terminals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Self, TypeVar

from sparkdash.client import calls, routes
from sparkdash.client.daemon_connection import DaemonConnection
from sparkdash.client.envelope import error_of, understood
from sparkdash.client.routes import Ask, ProfileList, Toggle
from sparkdash.domain.container import PullProgress
from sparkdash.domain.incident import IncidentList
from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import SparkdashError
from sparkdash.sse import Frames, Lines

T = TypeVar("T")
FAILED = 400
"""The first status that is an error."""


class Client:
    """The daemon at `url`, behind the socket `uds`, or where `address.find` says. Use it as a context manager."""

    def __init__(self, url: str | None = None, *, uds: Path | None = None) -> None:
        self.address = calls.address(url, uds)
        self._line = DaemonConnection(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def state(self) -> Snapshot:
        """All that is known now."""
        return self._ask(routes.state())

    def profiles(self) -> ProfileList:
        """Every profile, and the problems of those left out."""
        return self._ask(routes.profiles())

    def profile(self, name: str) -> Profile:
        """One whole profile, by name or alias."""
        return self._ask(routes.profile(name))

    def plan(self, name: str) -> Plan:
        """What `use` would evict, and whether it fits."""
        return self._ask(routes.plan(name))

    def incidents(self, profile: str | None = None) -> IncidentList:
        """Times that an engine stood still, newest first; of one profile, or of all."""
        return self._ask(routes.incidents(profile))

    def memory(self) -> MemoryAccount:
        """Who holds the memory of the daemon's box."""
        return self._ask(routes.memory())

    def use(self, name: str) -> Plan:
        """Bring a profile up. Returns at once."""
        return self._ask(routes.use(name))

    def stop(self, name: str | None = None) -> None:
        """Stop one engine, or all of them; return when they are gone."""
        self._ask(routes.stop(name))

    def release(self, name: str | None = None) -> None:
        """Let one parked profile, or all of them, be tried again."""
        self._ask(routes.release(name))

    def cancel(self) -> None:
        """Cancel every swap under way; return when what they began is cleaned away."""
        self._ask(routes.cancel())

    def cancel_request(self, request_id: str) -> None:
        """End one request, by the id of its row."""
        self._ask(routes.cancel_request(request_id))

    def toggle(self, a: str | None = None, b: str | None = None, *, flip: bool = False) -> Toggle:
        """Set the A/B pair (None leaves a side as it is) and, with `flip`, use the one that does not run."""
        return self._ask(routes.toggle(a, b, flip=flip))

    def reload(self) -> ProfileList:
        """Make the daemon read the profiles again; what it has found."""
        return self._ask(routes.reload())

    def traffic(self, *, on: bool) -> None:
        """Switch the demo's own traffic."""
        self._ask(routes.traffic(on=on))

    def shutdown(self, engines: Literal["keep", "stop"] = "keep") -> None:
        """End the daemon."""
        self._ask(routes.shutdown(engines))

    def health(self) -> bool:
        """Does a daemon answer? Never raises for one that does not."""
        try:
            self._ask(Ask("/health", bool, silence_s=calls.HEALTH_S))
        except SparkdashError:
            return False
        return True

    def logs(self, name: str, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Lines of an engine's log."""
        lines = Lines()
        for chunk in self._chunks("GET", routes.logs(name, follow=follow, tail=tail)):
            yield from lines.feed(chunk)
        yield from lines.end()

    def pull(self, name: str) -> Iterator[PullProgress]:
        """Fetch a profile's image; the last item has `done`."""
        frames = Frames()
        for chunk in self._chunks("POST", "/api/pull-image", {"profile": name}):
            for frame in frames.feed(chunk):
                yield calls.pulled(frame, self.address)

    def _ask(self, ask: Ask[T]) -> T:
        with self._line.asked(ask.method, ask.path, ask.body, ask.silence_s) as reply, understood(self.address):
            content = reply.read()
            if reply.status >= FAILED:
                raise error_of(reply.status, content, self.address)
            return ask.read(content)

    def _chunks(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Iterator[bytes]:
        with self._line.asked(method, path, body, calls.STREAM_S) as reply:
            if reply.status >= FAILED:
                raise error_of(reply.status, reply.read(), self.address)
            while chunk := reply.read1():
                yield chunk
