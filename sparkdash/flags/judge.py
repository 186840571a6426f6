"""Check of a profile's args against the flag table of its engine: unknown flags, wrong values, flags given twice.

Owns: which version and image a profile means, how sure that is, and the words of each complaint. A complaint is
certain when the table has the very version, and the image is the engine's own and no fork's: its parser refuses the
line. Wrong types, limits and arities are certain in forks too, where every version of the table agrees.

Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from sparkdash.domain.profile import ArgValue, EngineKind, Profile
from sparkdash.flags.table import FlagFacts, FlagTable, Versions, flag_table, nearby
from sparkdash.flags.values import ValueComplaint, value_complaint

NAMES = {
    EngineKind.VLLM: "vLLM",
    EngineKind.SGLANG: "SGLang",
    EngineKind.LLAMACPP: "llama.cpp",
    EngineKind.TRTLLM: "TensorRT-LLM",
}
_OWN_IMAGES = re.compile(
    r"(docker\.io/)?(vllm/vllm-openai|lmsysorg/sglang)[:@]|nvcr\.io/nvidia/(vllm|sglang|tensorrt-llm/release)[:@]"
    r"|ghcr\.io/ggml-org/llama\.cpp[:@]"
)
"""Images that the engine's own makers, or NVIDIA, build from the released source."""
_IN_TAG = re.compile(
    r"(?:vllm-openai|sglang):v(\d+\.\d+[\w.]*)"
    r"|llama\.cpp:\S*?-(b\d{4,6}|v\d+\.\d+\.\d+)"
    r"|tensorrt-llm/release:(\d+\.\d+\.\d+)"
)
"""Version in the tag of such an image."""
MOST_GUESSES = 20
"""Unknown flags of a profile for which the nearest name is looked up; each takes 3 ms."""
LONGEST = 80
"""Longest part of a flag that is compared; the longest real one has 46 characters."""


class FlagFault(StrEnum):
    """Kind of a complaint."""

    UNKNOWN = "unknown"
    VALUE = "value"
    TWICE = "twice"
    DEPRECATED = "deprecated"


@dataclass(frozen=True, slots=True)
class FlagComplaint:
    """Mistake in one entry of a profile's args."""

    fault: FlagFault
    path: tuple[str | int, ...]
    """Keys below `args`."""
    message: str
    hint: str
    certain: bool


def flag_complaints(profile: Profile) -> Iterator[FlagComplaint]:
    """Judge each of the profile's args that reaches the command line; flags under `fork_flags` are left alone."""
    table = flag_table(profile.engine)
    if table is None:
        return
    judge = _Judge(profile, table)
    own = {key.lstrip("-").replace("_", "-") for key in profile.fork_flags}
    seen: dict[str, str] = {}
    for key, value in profile.args.items():
        if value is None or value is False or key.partition(".")[0].replace("_", "-") in own:
            continue
        yield from judge.entry(key, value)
        yield from judge.again(key, seen)


def engine_version(profile: Profile) -> str | None:
    """The version that the profile names, else that in the tag of the engine's own image."""
    if profile.engine_version:
        return profile.engine_version
    hit = _IN_TAG.search(profile.image or "")
    return next((one for one in hit.groups() if one), None) if hit else None


def is_own_image(profile: Profile) -> bool:
    """Whether the profile runs the engine as its makers publish it."""
    return profile.image is None or _OWN_IMAGES.match(profile.image) is not None


class _Judge:
    def __init__(self, profile: Profile, table: FlagTable) -> None:
        self._table = table
        self._versions: Versions = table.meant(engine_version(profile))
        self._certain = self._versions.exact and is_own_image(profile)
        self._engine = f"{NAMES[table.kind]} {self._versions.text}"
        self._guesses = MOST_GUESSES

    def entry(self, key: str, value: ArgValue) -> Iterator[FlagComplaint]:
        """Complain about one flag and its value."""
        head, dot, path = key.partition(".")
        facts = self._table.find(head if self._table.kind is EngineKind.VLLM else key)
        if facts is None:
            yield self._unknown(key)
            return
        here = [place for place in self._versions.places if place in facts.present]
        if not here:
            yield self._absent(key, facts)
            return
        if dot and self._table.kind is EngineKind.VLLM:
            value = _nested(path, value)
        yield from self._deprecated(key, facts, here)
        negated = head.replace("_", "-").startswith("no-") and not _is_spelling(self._table, facts, head)
        if found := value_complaint(self._table, facts, here, value, negated=negated):
            yield self._of_value(key, facts, found)

    def _of_value(self, key: str, facts: FlagFacts, found: ValueComplaint) -> FlagComplaint:
        """Word a complaint about the value: of an abbreviated flag it is the abbreviation that is wrong."""
        head = key.partition(".")[0]
        if self._is_abbreviated(head):
            text = f"{self._engine} has no such flag, and takes it for {facts.name}"
            return FlagComplaint(FlagFault.UNKNOWN, (key,), text, self._hint(head), self._certain)
        message = found.message.replace("{engine}", self._engine)
        certain = found.everywhere or self._certain
        return FlagComplaint(FlagFault.VALUE, (key, *found.path), message, found.hint, certain)

    def again(self, key: str, seen: dict[str, str]) -> Iterator[FlagComplaint]:
        """A complaint when an earlier key already gave the same flag."""
        facts = self._table.find(key)
        if facts is None or "." in key:
            return
        if facts.name in seen:
            text = f"is the same flag as {seen[facts.name]}"
            yield FlagComplaint(FlagFault.TWICE, (key,), text, "Keep one of them; the engine takes the last.", False)
        seen[facts.name] = key

    def _unknown(self, key: str) -> FlagComplaint:
        short = f"-{key}" if len(key) > 1 else f"--{key}"
        if (facts := self._table.by_word.get(short)) is not None and len(key) > 1:
            text = f"{self._engine} has no --{key}, only {short}"
            return FlagComplaint(FlagFault.UNKNOWN, (key,), text, f"Write {facts.name}.", self._certain)
        return FlagComplaint(
            FlagFault.UNKNOWN, (key,), f"{self._engine} has no such flag", self._hint(key), self._certain
        )

    @cached_property
    def _known(self) -> dict[str, str]:
        """Long names that the versions have, by their spelling with hyphens."""
        return {
            word.lstrip("-").replace("_", "-"): word.lstrip("-")
            for word, facts in self._table.by_word.items()
            if word.startswith("--") and facts.present & set(self._versions.places)
        }

    def _hint(self, key: str) -> str:
        self._guesses -= 1
        close = _nearest(key, self._known) if self._guesses >= 0 else None
        hint = f"Did you mean {close}?" if close else "Remove it."
        return hint if self._certain else f"{hint} A flag of a fork belongs under `fork_flags`."

    def _is_abbreviated(self, head: str) -> bool:
        return self._table.normal(f"--{head}" if len(head) > 1 else f"-{head}") not in self._table.by_word

    def _absent(self, key: str, facts: FlagFacts) -> FlagComplaint:
        when = ", ".join(nearby(facts, self._table)) if facts.present else "removed"
        verb = (
            "does not have it"
            if facts.present and min(facts.present) > max(self._versions.places)
            else "no longer has it"
        )
        hint = f"Write {facts.instead}." if facts.instead else "Remove it, or correct `engine_version`."
        return FlagComplaint(FlagFault.UNKNOWN, (key,), f"{self._engine} {verb} ({when})", hint, self._certain)

    def _deprecated(self, key: str, facts: FlagFacts, here: list[int]) -> Iterator[FlagComplaint]:
        if self._versions.exact and all(place in facts.having("state", "deprecated") for place in here):
            hint = f"Write {facts.instead}." if facts.instead else "The engine's `--help` names what replaces it."
            yield FlagComplaint(FlagFault.DEPRECATED, (key,), f"{self._engine} calls it deprecated", hint, False)


def _is_spelling(table: FlagTable, facts: FlagFacts, head: str) -> bool:
    return table.normal(f"--{head}") in {table.normal(word) for word in facts.spellings}


def _nearest(key: str, known: Mapping[str, str]) -> str | None:
    bare = key.replace("_", "-")
    if bare in known:
        return known[bare]
    if f"enable-{bare}" in known:
        return f"enable-{bare}"
    close = difflib.get_close_matches(bare[:LONGEST], known, n=1, cutoff=0.75)
    return known[close[0]] if close else None


def _nested(path: str, value: ArgValue) -> ArgValue:
    made = value
    for part in reversed(path.split(".")):
        made = {part.rstrip("+"): made}
    return made
