"""Catalog: every readable profile, and the problems of the others; the summary of a profile for lists. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING

from sparkdash.domain.memory import Need
from sparkdash.domain.profile import Ability, Profile, ProfileSummary, Published, base_name
from sparkdash.engines.generic.known_servers import known_server
from sparkdash.errors import AdmissionError
from sparkdash.limits import NAME, shown
from sparkdash.redaction import masked
from sparkdash.units import counted, natural

if TYPE_CHECKING:
    from sparkdash.engines.adapter import EngineAdapter

NEAREST = 3
"""Number of names offered for an unknown one."""
NO_TAG = "latest"
"""Tag that clients of Ollama append to an untagged name."""
FAMILIES = 12
"""Number of families named when no name is near: the hint must fit into a chat client's error."""

LONGEST = 1000
"""Characters of a problem's text: a name of 100 KB would be in every snapshot."""


@dataclass(frozen=True, slots=True)
class ProfileProblem:
    """A mistake that the author of a profile must correct."""

    file: str
    line: int | None
    """Line from 1; None for the whole file or folder."""
    key: str
    """Dotted path of the key, "" for the whole file."""
    message: str
    hint: str | None = None
    column: int | None = None
    code: str = "wrong-value"
    """Stable word for programs; a rule's name for its findings."""

    def __post_init__(self) -> None:
        for name in ("key", "message", "hint"):  # all repeat what the author wrote, and everybody may read them
            if (text := getattr(self, name)) is not None:
                seen = text[: 2 * LONGEST] if name == "key" else masked(text[: 2 * LONGEST])
                object.__setattr__(self, name, seen if len(seen) <= LONGEST else f"{seen[:LONGEST]}…")

    def __str__(self) -> str:
        """`file:line: key: message. hint`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        what = f"{self.key}: {self.message}" if self.key else self.message
        return f"{place}: {what}. {self.hint}" if self.hint else f"{place}: {what}."


ProblemAt = Callable[[tuple[str | int, ...], str, str | None], ProfileProblem]
"""Makes a problem of a key's path, a message and a hint, at the key's line, wherever it was inherited from."""


@dataclass(frozen=True)
class Catalog:
    """Immutable set of profiles; reading the files again makes a new one."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Bases and variants by name."""
    problems: tuple[ProfileProblem, ...] = ()
    problem_at: Mapping[str, ProblemAt] = field(default_factory=dict, compare=False, repr=False)
    """Locates a problem in the profile's file, by profile name."""

    def find(self, name: str) -> Profile:
        """Find a profile: exact name, alias, what follows a slash; then without case, mode, Ollama's tag."""
        if found := self._by_name.get(name):
            return found
        if len(name) > NAME:
            text = f"No profile or alias is called {shown(name)!r}: a name has at most {NAME} characters."
            raise AdmissionError(text, code="model_not_found", status=404)
        if found := self._named(name):
            return found
        base, colon, mode = name.rpartition(":")
        owner = self._named(base) if colon else None
        if owner is not None and mode in (*owner.modes, NO_TAG):
            return owner
        if mistakes := self._mistakes_in(name):
            text = f"The file of profile {name!r} was left out: it has {counted(mistakes, 'mistake')}."
            hint = "`sparkdash profiles check` shows each with its line."
            raise AdmissionError(text, code="model_not_found", status=404, hint=hint)
        hint = f"Modes of {owner.name}: {', '.join(owner.modes)}." if owner and owner.modes else self._nearest(name)
        raise AdmissionError(f"No profile or alias is called {name!r}.", code="model_not_found", status=404, hint=hint)

    def exactly(self, name: str) -> Profile | None:
        return self._by_name.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self.profiles) + tuple(alias for p in self.profiles.values() for alias in p.serves)

    def _mistakes_in(self, name: str) -> int:
        """Count the problems of the file that has the profile's name, which is how most files are called."""
        base = name.partition("/")[0]
        return sum(PurePath(problem.file).stem == base for problem in self.problems)

    def _named(self, name: str) -> Profile | None:
        if found := self._by_name.get(name):
            return found
        parts = name.rsplit("/", self._most_slashes + 1)  # with more slashes than any known name has none can be meant
        words = ["/".join(parts[i:]) for i in range(len(parts))]
        exactly = next((found for word in words if (found := self._by_name.get(word))), None)
        return exactly or next((found for word in words if (found := self._by_fold.get(word.casefold()))), None)

    @cached_property
    def _by_name(self) -> dict[str, Profile]:
        """Profiles by name and alias; a name precedes an alias, and of two aliases the first counts."""
        aliases = [(alias, profile) for profile in self.profiles.values() for alias in profile.serves]
        return {**dict(reversed(aliases)), **self.profiles}

    @cached_property
    def _most_slashes(self) -> int:
        return max((name.count("/") for name in self._by_name), default=0)

    @cached_property
    def _by_fold(self) -> dict[str, Profile]:
        """Profiles by case-folded name, as the hub and Ollama know names; ambiguous ones are left out."""
        found: dict[str, Profile] = {}
        for name, profile in self._by_name.items():
            found.setdefault(name.casefold(), profile)
        twice = {name.casefold() for name, profile in self._by_name.items() if found[name.casefold()] is not profile}
        return {name: profile for name, profile in found.items() if name not in twice}

    def _nearest(self, name: str) -> str:
        close = nearest(name, self.names()) or nearest(name.rsplit("/", 1)[-1], self.names())
        if close:
            return f"Did you mean {' or '.join(close)}?"
        if not self.profiles:
            return "The catalog is empty."
        families = sorted({profile.family for profile in self.profiles.values()}, key=natural)
        shown = ", ".join(families[:FAMILIES])
        whole = len(self.profiles) == len(families) <= FAMILIES
        return f"Known: {shown}." if whole else f"Known: {shown} and more; `sparkdash profiles` lists them all."


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return up to NEAREST of the known words by similarity, best first; case does not count."""
    by_fold = {item.casefold(): item for item in known}
    return [by_fold[hit] for hit in get_close_matches(word.casefold(), by_fold, n=NEAREST, cutoff=0.6)]


def with_replicas(catalog: Catalog, nodes: Sequence[str]) -> Catalog:
    """Add `NAME@NODE` for each further node of a profile with `replicas`; `nodes` has this box first."""
    if len(nodes) == 1 or all(profile.replicas == 1 for profile in catalog.profiles.values()):
        return catalog
    found: dict[str, Profile] = {}
    for name, profile in catalog.profiles.items():
        if base_name(name) != name:
            continue  # of an earlier reading
        found[name] = profile if profile.replicas == 1 else profile.replace(node=nodes[0])
        for node in nodes[1 : profile.replicas]:
            replica = f"{name}@{node}"
            found[replica] = profile.replace(name=replica, node=node, replicas=1)
    return Catalog(found, catalog.problems, catalog.problem_at)


def replica_names(profiles: Iterable[str], name: str) -> tuple[str, ...]:
    """List the profile and its replicas, those for `name@…`; a replica's own name alone for a replica."""
    return tuple(each for each in profiles if name in (each, base_name(each)))


def summarize(
    profile: Profile, adapter: "EngineAdapter", need: Need | None = None, *, sees: bool | None = None
) -> ProfileSummary:
    """Summarize a profile for a list, with its best published decode rate, else whole-request rate.

    `need`: the known need of a launch; None: the declared one. `sees`: whether the model reads images; None: unknown.
    """
    rate, note = _best(profile.published)
    known = known_server(profile)
    return ProfileSummary(
        name=profile.name,
        about=profile.about,
        engine=profile.engine,
        engine_version=profile.engine_version,
        image=profile.image,
        build=profile.build,
        built_by=profile.built_by,
        weights=profile.weights,
        serves=profile.serves,
        modes=tuple(profile.modes),
        context=adapter.context(profile),
        needs_bytes=need.total_bytes if need else profile.memory.total_bytes,
        nodes=profile.nodes,
        fallbacks=profile.fallbacks,
        fewer={count: profile.on(count).fingerprint for count in profile.fewer},
        cannot_run=profile.cannot_run,
        nearest=profile.nearest,
        published_decode_tok_s=rate,
        published_note=note,
        speculation=adapter.speculation(profile),
        fingerprint=profile.fingerprint,
        simulated=profile.engine.is_simulated,
        sees=sees if profile.can is None else Ability.VISION in profile.can,
        server=known.title if known else None,
    )


def _best(published: tuple[Published, ...]) -> tuple[float | None, str | None]:
    decode = [(row.decode_tok_s, row) for row in published if row.decode_tok_s is not None]
    whole = [(row.e2e_tok_s, row) for row in published if row.e2e_tok_s is not None]
    if not decode and not whole:
        return None, None
    rate, row = max(decode or whole, key=lambda pair: pair[0])
    note = f"{row.workload} ({row.source})"
    return rate, note if decode else f"{note}, whole request with prefill"
