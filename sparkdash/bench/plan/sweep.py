"""Sweep: one profile with one parameter of its engine at several values. Pure.

Owns: the profiles of a sweep as a document. Must not know: files, the daemon; which value to choose (report/advice.py).
Rule: only the parameter differs between the arms; the first value is the baseline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from sparkdash.bench.run import Arm
from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import ArgValue, Profile
from sparkdash.errors import AdmissionError
from sparkdash.redaction import MASK

MOST = 16
"""Values in a sweep: each is a launch, twice in standard mode."""
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NUMBER = re.compile(r"-?\d+")
_KEEPS = frozenset({"name", "source", "serves", "published", "cannot_run", "nearest", "silence"})
"""Of the profile, what its copies do not take over: names of its own, and what is said of it."""


class Sweep(Frozen):
    """What `NAME=VALUES` asks for."""

    name: str
    values: tuple[str, ...]

    def family(self, profile: Profile) -> str:
        """The name of the family that its profiles make."""
        return f"sweep-{profile.name.replace('/', '-')}-{_word(self.name)}"

    def known(self, profile: Profile) -> tuple[str, ...]:
        """What could have been meant: the profile's flags, and the names inside its mappings."""
        inner = (name for value in profile.args.values() if isinstance(value, dict) for name in value)
        return (*profile.args, *inner)

    def is_set(self, profile: Profile) -> bool:
        """Has the profile that parameter? What it lacks is added as a flag."""
        return _word(self.name) in map(_word, self.known(profile))

    def arms(self, profile: Profile) -> tuple[Arm, ...]:
        """One per value, in the given order."""
        family = self.family(profile)
        return tuple(
            Arm(
                name=f"{self.name}={value}",
                profile=f"{family}/{_word(value)}",
                parameters={self.name: value},
                swept=profile.name,
            )
            for value in self.values
        )

    def document(self, profile: Profile) -> dict[str, Any]:
        """A profile file: the profile, and a variant per value.

        Raises:
            AdmissionError: `sweep_invalid`: a secret of the profile is masked, and its engines would be started with
                the mask.
        """
        base = profile.model_dump(mode="json", exclude_defaults=True, exclude=set(_KEEPS))
        if MASK in json.dumps([base.get(key) for key in ("env", "args", "command")]):
            raise AdmissionError(
                f"{profile.name} has a secret in its file, which the daemon tells nobody, so a sweep cannot copy it.",
                code="sweep_invalid",
                hint="Name the variable in the profile's `env_from`, and set it in the daemon's environment.",
            )
        variants = {_word(value): {"args": _over(profile.args, self.name, value)} for value in self.values}
        about = f"{profile.name} with {self.name} at {', '.join(self.values)}"
        return {"profile": self.family(profile), **base, "about": about, "variants": variants}


def parse_sweep(text: str) -> Sweep:
    """ "num_speculative_tokens=0..5" or "max-num-seqs=8,16,32".

    Raises:
        AdmissionError: `sweep_invalid`.
    """
    name, _, given = text.partition("=")
    values: list[str] = []
    for part in filter(None, given.split(",")):
        bounds = _RANGE.fullmatch(part)
        values += map(str, range(int(bounds[1]), int(bounds[2]) + 1)) if bounds else [part]
    if not name or not 2 <= len(set(values)) == len(values) <= MOST:
        raise AdmissionError(
            f"{text!r} is no sweep of 2 to {MOST} different values.",
            code="sweep_invalid",
            hint="Write it like num_speculative_tokens=0..5 or max-num-seqs=8,16,32.",
        )
    return Sweep(name=name, values=tuple(values))


def sweep_of(arms: Sequence[Arm]) -> tuple[str, str] | None:
    """The profile and the NAME=VALUES that these arms came of; None: they are no sweep."""
    if not arms or arms[0].swept is None:
        return None
    (name,) = arms[0].parameters
    return arms[0].swept, f"{name}={','.join(arm.parameters[name] for arm in arms)}"


def _over(args: dict[str, ArgValue], name: str, value: str) -> dict[str, Any]:
    """The arguments that a value changes: where the profile has the name, at the top or inside one of its mappings."""
    parsed: Any = int(value) if _NUMBER.fullmatch(value) else {"true": True, "false": False}.get(value, value)
    for flag in args:
        if _word(flag) == _word(name):
            return {flag: parsed}
    for flag, inner in args.items():
        for key in inner if isinstance(inner, dict) else ():
            if _word(key) == _word(name):
                # no drafted tokens is no speculation: engines refuse a drafter that drafts nothing
                return {flag: None if parsed == 0 and "spec" in flag else {key: parsed}}
    return {name: parsed}


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
