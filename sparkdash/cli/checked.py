"""What `sparkdash profiles check` has against a catalog.

Owns: putting the loader's problems, the rules' findings and the dialects' refusals into one list, for people and for
programs. Must not know: any rule, any engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sparkdash import settings
from sparkdash.catalog import Catalog, Problem
from sparkdash.cli.local import spec
from sparkdash.engines.registry import adapter
from sparkdash.errors import ProfileError
from sparkdash.rules import RULES, Finding, Level, findings


def checked(found: Catalog) -> list[Finding]:
    """Everything: what kept files from loading, then errors, then warnings."""
    told = findings(found)
    errors = [one for one in told if one.level is Level.ERROR]
    blamed = frozenset(name for one in errors for name in one.profiles)
    return [
        *(Finding(problem.code, Level.ERROR, problem, ()) for problem in found.problems),
        *errors,
        *_unstartable(found, blamed),
        *(one for one in told if one.level is Level.WARNING),
    ]


def line(finding: Finding) -> str:
    """For people: `file:line: key: message. hint`, and the rule that says so."""
    return str(finding if finding.rule in RULES else finding.problem)


def facts(finding: Finding) -> dict[str, Any]:
    """For programs. `code` is the rule's name or the loader's word; line and column count from 1."""
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


def _unstartable(found: Catalog, blamed: Collection[str]) -> Iterator[Finding]:
    """What the engines' dialects say against profiles that loaded well.

    Of the `blamed`, against which the rules have an error already, a refused flag is not told again.
    """
    known = settings.load()
    for profile in found.profiles.values():
        if profile.cannot_run or not adapter(profile.engine).managed:
            continue
        try:
            spec(profile, known)
        except ProfileError as error:
            if error.code == "unknown_flag" and profile.name in blamed:
                continue
            file, _, start = profile.source.rpartition(":")
            code = error.code.replace("_", "-")
            problem = Problem(file, int(start), "", error.message.rstrip("."), error.hint, code=code)
            yield Finding(code, Level.ERROR, problem, (profile.name,))
