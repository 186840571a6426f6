"""Facts of a pair of boxes, for the checks of nodes.

Owns: access to the readings of each box. Must not know how they are read, or what they mean.
Rule: a section that could not be read raises UnreadFact, which makes the finding "unknown".
Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkdash.doctor.facts import UnreadFact
from sparkdash.domain.node import LOCAL, Node, NodeFacts
from sparkdash.errors import SparkdashError
from sparkdash.nodes.link.common import SharedLink, shared_links
from sparkdash.settings import Settings


@dataclass(frozen=True, slots=True)
class TwoNodeProfile:
    """Parts of a profile for several nodes that the checks look at."""

    name: str
    image: str | None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReachTrial:
    """TCP connections from one box to another: per port, the outcome at the caller and at the listener."""

    source: str
    target: str
    called: Mapping[int, str] = field(default_factory=dict)
    listened: Mapping[int, str] = field(default_factory=dict)
    problem: str | None = None
    """Why nothing was tried."""


@dataclass(frozen=True, slots=True)
class BoxFacts:
    """Facts of one box. A box that could not be asked has `problem` and nothing else."""

    name: str
    node: Node | None = None
    """Entry of nodes.toml; None for this box."""
    facts: NodeFacts | None = None
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Sections of `remote_readings`."""
    problem: SparkdashError | None = None
    settings: Settings = field(default_factory=Settings)
    """Owner's settings, which hold for all boxes."""

    @property
    def shown(self) -> str:
        """Name for people: this box's is its host name."""
        return self.facts.hostname if self.name == LOCAL and self.facts else self.name

    def known(self) -> NodeFacts:
        """Return the facts of the connection. Raises UnreadFact without them."""
        if self.facts is None:
            raise UnreadFact(f"{self.shown} was not asked")
        return self.facts

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section of the readings. Raises UnreadFact when it was not read."""
        found = self.sections.get(name)
        if found is None:
            raise UnreadFact(f"{self.shown} was not asked for {name}")
        if problem := found.get("problem"):
            raise UnreadFact(f"{name} of {self.shown} cannot be read: {problem}")
        return found

    def command(self, words: str) -> str:
        """Shell line that runs `words` on this box, to be typed on the daemon's box."""
        if self.node is None:
            return words
        port = "" if self.node.port == 22 else f"-p {self.node.port} "
        return f"ssh -t {port}{self.node.ssh} {shlex.quote(words)}"


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Facts of this box and another one."""

    here: BoxFacts
    there: BoxFacts
    profiles: Sequence[TwoNodeProfile] | UnreadFact = ()
    trials: Sequence[ReachTrial] = ()

    @property
    def settings(self) -> Settings:
        """Owner's settings."""
        return self.here.settings

    @property
    def boxes(self) -> tuple[BoxFacts, BoxFacts]:
        """Both boxes, this one first."""
        return self.here, self.there

    def shared(self) -> tuple[SharedLink, ...]:
        """Links between the boxes, the best first; only those that the owner chose, if one was chosen."""
        node = self.there.node
        chosen = (node.address, node.interface) if node else (None, None)
        return shared_links(self.here.known(), self.there.known(), *chosen)

    def link(self) -> SharedLink:
        """Return the best link. Raises UnreadFact without one, which the check `link` reports."""
        links = self.shared()
        if not links:
            raise UnreadFact("The boxes share no network, see the check link")
        return links[0]

    def wanted(self) -> Sequence[TwoNodeProfile]:
        """Return the profiles for several nodes. Raises UnreadFact."""
        if isinstance(self.profiles, UnreadFact):
            raise self.profiles
        return self.profiles
