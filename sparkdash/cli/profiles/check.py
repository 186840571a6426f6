"""Findings of `sparkdash profiles check`, for people and for programs.

Owns: merging the loader's problems, the rules' findings and the dialects' refusals into one list. Must not know: any
rule, any engine.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

from sparkdash import settings
from sparkdash.catalog import Catalog, ProfileProblem
from sparkdash.cli.local import container_spec, stored_flags
from sparkdash.engines.known_flags import NOT_LISTED, unlisted_flags
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.rules import RULES, RuleFinding, Severity, findings


def check_catalog(found: Catalog) -> list[RuleFinding]:
    """Return every finding: load failures first, then errors, then warnings."""
    told = findings(found)
    errors = [one for one in told if one.level is Severity.ERROR]
    blamed = frozenset(name for one in errors for name in one.profiles)
    return [
        *(RuleFinding(problem.code, Severity.ERROR, problem, ()) for problem in found.problems),
        *errors,
        *_unstartable(found, blamed),
        *_beyond_the_file(found),
        *_not_listed(found),
        *(one for one in told if one.level is Severity.WARNING),
    ]


def finding_line(finding: RuleFinding) -> str:
    """Format a finding for people: `file:line: key: message. hint`, with the rule's name if a rule found it."""
    return str(finding if finding.rule in RULES else finding.problem)


def finding_facts(finding: RuleFinding) -> dict[str, Any]:
    """Return a finding for programs.

    `code` is the rule's name or the loader's code; line and column count from 1.
    """
    problem = finding.problem
    return {
        "code": finding.rule,
        "level": finding.level,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "message": problem.message,
        "hint": problem.hint,
        "profiles": finding.profiles,
    }


def _unstartable(found: Catalog, blamed: Collection[str]) -> Iterator[RuleFinding]:
    """Yield the dialects' objections to profiles that loaded well.

    A refused flag is not repeated for `blamed` profiles, which already have an error of a rule.
    """
    known = settings.load_settings()
    for profile in found.profiles.values():
        if profile.cannot_run or not adapter_of(profile).managed:
            continue
        try:
            container_spec(profile, known)
        except ProfileError as error:
            if error.code == "unknown_flag" and profile.name in blamed:
                continue
            file, _, start = profile.source.rpartition(":")
            code = error.code.replace("_", "-")
            problem = ProfileProblem(file, int(start), "", error.message.rstrip("."), error.hint, code=code)
            yield RuleFinding(code, Severity.ERROR, problem, (profile.name,))


def _beyond_the_file(found: Catalog) -> Iterator[RuleFinding]:
    """Yield warnings that depend on more than the file: keys in the environment, and other profiles."""
    told: dict[tuple[str, ProfileProblem], list[str]] = {}
    for name, profile in found.profiles.items():
        place = found.places[name]
        if profile.key_env and not os.environ.get(profile.key_env):
            hint = f"Set {profile.key_env} in the daemon's own environment; requests are refused until then."
            problem = place.problem(("key_env",), f"{profile.key_env} is not set in this environment", hint)
            told.setdefault(("key-missing", problem), []).append(name)
        for index, other in enumerate(profile.fallbacks):
            if not _is_known(found, other):
                hint = "This fallback is skipped. Name a profile or an alias."
                problem = place.problem(("fallbacks", index), f"no profile is called {other!r}", hint)
                told.setdefault(("unknown-fallback", problem), []).append(name)
    for (code, problem), names in told.items():
        yield RuleFinding(code, Severity.WARNING, problem, tuple(names))


def _not_listed(found: Catalog) -> Iterator[RuleFinding]:
    """Yield flags that a profile's program does not list in `--help`.

    Programs that no daemon has asked yet are skipped.
    """
    known = settings.load_settings()
    told: dict[ProfileProblem, list[str]] = {}
    for name, profile in found.profiles.items():
        listed = None if profile.cannot_run else stored_flags(profile, known)
        for stray in unlisted_flags(profile, listed) if listed else ():
            where = profile.image if profile.image and known.runtime != "process" else "this engine's program"
            message = f"`--help` of {where} does not list this flag"
            problem = found.places[name].problem(("args", stray.key), message, stray.hint)
            told.setdefault(problem, []).append(name)
    for problem, names in told.items():
        yield RuleFinding(NOT_LISTED, Severity.WARNING, problem, tuple(names))


def _is_known(found: Catalog, name: str) -> bool:
    try:
        found.find(name)
    except AdmissionError:
        return False
    return True
