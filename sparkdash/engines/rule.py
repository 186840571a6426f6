"""Rule: a known mistake, as data with a finder: an engine's in its folder, general ones in `sparkdash.rules`. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparkdash.domain.profile import Profile
from sparkdash.engines.argv import version_pair

KeyPath = tuple[str | int, ...]
"""Keys from a profile's top to a value."""
Version = tuple[int, int]
"""Major and minor."""


class Severity(StrEnum):
    """Severity of a finding: an error does not start, or harms the box; a warning costs speed, memory or clarity."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Hit:
    """Violation of a rule: the key, what is wrong there, and the exact words to write instead."""

    path: KeyPath
    message: str
    hint: str
    level: Severity | None = None
    """Severity of this hit; None: the rule's."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A known mistake. `since` and `before` bound the engine's version; a profile without one is spared then."""

    name: str
    level: Severity
    about: str
    evidence: str
    find: Callable[[Profile], Iterable[Hit]]
    since: Version | None = None
    before: Version | None = None
    yields: bool = False
    """Whether a hit is left out where another rule names the same key, at least as severely."""
    always: bool = False
    """Whether the rule also covers profiles that are never started (`cannot_run`)."""

    def applies(self, profile: Profile) -> bool:
        if profile.cannot_run and not self.always:
            return False
        found = version_pair(profile.engine_version)
        if found is None:
            return self.since is None and self.before is None
        return (self.since is None or found >= self.since) and (self.before is None or found < self.before)

    def versions(self) -> str:
        """Word the version range: "0.20 and newer", "before 0.20", "any"."""
        words = [f"{_dotted(self.since)} and newer"] if self.since else []
        words += [f"before {_dotted(self.before)}"] if self.before else []
        return ", ".join(words) or "any"


def flag_path(profile: Profile, *names: str) -> KeyPath:
    """Return the path of the first of these arguments in the profile, in its own spelling; empty without any."""
    spelled = {key.replace("_", "-"): key for key, value in profile.args.items() if value is not None}
    return next((("args", spelled[name]) for name in names if name in spelled), ())


def on_several_nodes(find: Callable[[Profile], Iterator[Hit]]) -> Callable[[Profile], Iterator[Hit]]:
    def only(profile: Profile) -> Iterator[Hit]:
        if profile.nodes > 1:
            yield from find(profile)

    return only


def variables(profile: Profile) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield path, name and value of each variable, also of those for one node."""
    yield from ((("env", name), name, value) for name, value in profile.env.items())
    by_node: Mapping[str, Mapping[str, str]] = profile.env_by_node
    for node, given in by_node.items():
        yield from ((("env_by_node", node, name), name, value) for name, value in given.items())


def _dotted(number: Version) -> str:
    return f"{number[0]}.{number[1]}"
