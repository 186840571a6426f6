"""KnownServer: the description of one server that profiles name by its kind.

Owns: the form of a description. Must not know any server.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparkdash.domain.profile import ArgValue
from sparkdash.domain.servers.spec import ServerSpec

NO_ARGS: Mapping[str, ArgValue] = MappingProxyType({})
NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """Server as its own source describes it; a profile's keys precede these."""

    title: str
    spec: ServerSpec
    source: str
    """Document and date of the description."""
    command: tuple[str, ...] = ()
    """Program with its first words, for a profile without `command`."""
    args: Mapping[str, ArgValue] = field(default_factory=lambda: NO_ARGS)
    """Flags that the server needs to be reachable, and to be called by the profile's name."""
    env: Mapping[str, str] = field(default_factory=lambda: NO_ENV)
    context_env: str | None = None
    """Variable that tells the server the profile's `context`."""
    shm_size: str | None = None
    speculation: Callable[[Mapping[str, ArgValue]], str | None] = lambda _: None
    """Speculation that a profile's args switch on, such as "mtp k=2"; None without."""
    tried: str = "not tried on hardware"
    """Where the description was seen to work."""

    def variables(self, context: int | None) -> Mapping[str, str]:
        """Return the variables of a server whose profile has this context."""
        told = {self.context_env: str(context)} if self.context_env and context else {}
        return {**self.env, **told}
