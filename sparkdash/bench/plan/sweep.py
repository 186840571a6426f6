"""Sweep over one engine parameter: one profile at several values, and the file with its temporary profiles."""

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.run import Arm
from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import ArgValue, Profile
from sparkdash.errors import AdmissionError, writing
from sparkdash.paths import read_small_text
from sparkdash.redaction import MASK

HEAD = "# Written by sparkdash ab --sweep, and taken away when nothing of the sweep is missing.\n"


def write_sweep_file(family: str, text: str) -> Path:
    """Write the profiles into a file of their own; return its path.

    Raises:
        AdmissionError: `sweep_taken`: the owner has a file of that name.
        HostError: `sweep_unwritable`.
    """
    file = sweep_file_path(family)
    if file.exists() and not _is_sweeps(file):
        raise AdmissionError(
            f"{file} is a file of your own. The sweep's profiles need that name.",
            code="sweep_taken",
            status=409,
            hint="Give it another name.",
        )
    with writing(file, "sweep_unwritable"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD + text, encoding="utf-8")
    return file


def sweep_file_path(family: str) -> Path:
    return paths.config_dir() / "profiles" / f"{family}.yaml"


def is_needed(family: str) -> bool:
    for run in run_folder.list_runs():
        with contextlib.suppress(AdmissionError):
            told = run_folder.read_run(run)
            if told.ended_at is None and any(arm.profile.split("/", 1)[0] == family for arm in told.arms):
                return True
    return False


def delete_sweep_file(family: str) -> bool:
    file = sweep_file_path(family)
    there = file.exists() and _is_sweeps(file)
    if there:
        file.unlink(missing_ok=True)
    return there


def _is_sweeps(file: Path) -> bool:
    try:
        return read_small_text(file).startswith(f"{HEAD}profile: {file.stem}\n")
    except (OSError, ValueError):
        return False


MOST = 16
"""Most values in a sweep: each is a launch, two in standard mode."""
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NUMBER = re.compile(r"-?\d+")
_KEEPS = frozenset({"name", "source", "serves", "published", "cannot_run", "nearest", "silence"})
"""Profile fields that the copies do not inherit: names, and statements about the original."""


class Sweep(Frozen):
    """Parsed `NAME=VALUES`."""

    name: str
    values: tuple[str, ...]

    def family(self, profile: Profile) -> str:
        return f"sweep-{profile.name.replace('/', '-')}-{_slug(self.name)}"

    def known(self, profile: Profile) -> tuple[str, ...]:
        inner = (name for value in profile.args.values() if isinstance(value, dict) for name in value)
        return (*profile.args, *inner)

    def is_set(self, profile: Profile) -> bool:
        """Whether the profile has that parameter. A missing one is added as a flag."""
        return _slug(self.name) in map(_slug, self.known(profile))

    def arms(self, profile: Profile) -> tuple[Arm, ...]:
        family = self.family(profile)
        return tuple(
            Arm(
                name=f"{self.name}={value}",
                profile=f"{family}/{_slug(value)}",
                parameters={self.name: value},
                swept=profile.name,
            )
            for value in self.values
        )

    def document(self, profile: Profile) -> dict[str, Any]:
        """Build the profile file: the profile, and a variant per value.

        Raises:
            AdmissionError: `sweep_invalid`: a secret of the profile is masked, and its engines would be started with
                the mask.
        """
        base = profile.model_dump(mode="json", exclude_defaults=True, exclude=set(_KEEPS))
        if MASK in json.dumps([base.get(key) for key in ("env", "args", "command")]):
            raise AdmissionError(
                f"{profile.name} has a secret in its file. The daemon reveals it to nobody, so a sweep cannot copy it.",
                code="sweep_invalid",
                hint="Name the variable in the profile's `env_from`, and set it in the daemon's environment.",
            )
        variants = {_slug(value): {"args": _over(profile.args, self.name, value)} for value in self.values}
        about = f"{profile.name} with {self.name} at {', '.join(self.values)}"
        return {"profile": self.family(profile), **base, "about": about, "variants": variants}


def parse_sweep(text: str) -> Sweep:
    """Parse "num_speculative_tokens=0..5" or "max-num-seqs=8,16,32". Raises AdmissionError: `sweep_invalid`."""
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
    """Return the profile and NAME=VALUES that these arms came from; None without a sweep."""
    if not arms or arms[0].swept is None:
        return None
    (name,) = arms[0].parameters
    return arms[0].swept, f"{name}={','.join(arm.parameters[name] for arm in arms)}"


def _over(args: dict[str, ArgValue], name: str, value: str) -> dict[str, Any]:
    """Return the arguments that a value changes: where the profile has the name, at the top or inside a mapping."""
    parsed: Any = int(value) if _NUMBER.fullmatch(value) else {"true": True, "false": False}.get(value, value)
    for flag in args:
        if _slug(flag) == _slug(name):
            return {flag: parsed}
    for flag, inner in args.items():
        for key in inner if isinstance(inner, dict) else ():
            if _slug(key) == _slug(name):
                # no drafted tokens is no speculation: engines refuse a drafter that drafts nothing
                return {flag: None if parsed == 0 and "spec" in flag else {key: parsed}}
    return {name: parsed}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
