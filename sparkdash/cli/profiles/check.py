"""Findings of `sparkdash profiles check`, for people and for programs."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from sparkdash import paths, settings
from sparkdash.catalog import Catalog, ProfileProblem
from sparkdash.catalog.catalog import nearest
from sparkdash.cli.local import configured_catalog, container_spec
from sparkdash.cli.output import print_note
from sparkdash.domain.phrases import last_good_lines
from sparkdash.engines.registry import adapter_of, all_adapters
from sparkdash.engines.rule import Rule, Severity
from sparkdash.errors import AdmissionError, ProfileError, SparkdashError
from sparkdash.nodes.node_file import nodes_file, read_nodes
from sparkdash.rules import FLAG_RULE_NAMES, RULES, RuleFinding, findings
from sparkdash.units import counted

GPUS = Path("/proc/driver/nvidia/gpus")
"""Folder with an entry for each GPU of this box."""


def all_rules() -> list[dict[str, str]]:
    return [_told(rule) for rule in RULES.values()]


def one_rule(name: str) -> list[dict[str, str]]:
    """Describe one rule, as a list of one. Raises AdmissionError, with the nearest names."""
    if name not in RULES:
        close = nearest(name, RULES)
        hint = f"Did you mean {' or '.join(close)}?" if close else "`sparkdash profiles check --rules` lists them."
        raise AdmissionError(f"The rule {name!r} does not exist.", code="rule_not_found", hint=hint)
    return [_told(RULES[name])]


def _told(rule: Rule) -> dict[str, str]:
    return {
        "name": rule.name,
        "level": rule.level.value,
        "about": rule.about,
        "engines": next((one.kind.value for one in all_adapters() if rule in one.rules()), "any"),
        "versions": rule.versions(),
        "evidence": rule.evidence,
    }


def check_catalog(found: Catalog) -> list[RuleFinding]:
    """Return every finding: load failures first, then errors, then warnings."""
    told = _findings_here(found)
    errors = [one for one in told if one.level is Severity.ERROR]
    blamed = frozenset(name for one in errors for name in one.profiles)
    return [
        *(RuleFinding(problem.code, Severity.ERROR, problem, ()) for problem in found.problems),
        *errors,
        *_circular(found),
        *_unstartable(found, blamed),
        *_beyond_the_file(found),
        *_few_nodes(found),
        *(one for one in told if one.level is Severity.WARNING),
    ]


def _findings_here(found: Catalog) -> list[RuleFinding]:
    """Return what the rules say, without the one about a Spark's only GPU where this box has several."""
    several = GPUS.is_dir() and len(list(GPUS.iterdir())) > 1
    return [one for one in findings(found) if not (several and one.rule == "more-gpus-than-boxes")]


def import_findings(made: Catalog) -> list[RuleFinding]:
    return [one for one in findings(made) if one.rule in FLAG_RULE_NAMES]


def start_warnings(name: str) -> list[str]:
    """Return what a person about to start a profile should know of its file; [] where the file is not known here."""
    try:
        found = configured_catalog()
        profile = found.find(name)
    except SparkdashError:
        return []
    alone = Catalog({profile.name: profile}, (), {profile.name: found.problem_at[profile.name]})
    told = [one for one in _findings_here(alone) if one.level is Severity.ERROR]
    return [f"warning: {finding_line(one)}" for one in (*told, *_few_nodes(alone))]


def file_warnings(name: str) -> list[str]:
    """Return `start_warnings`, and what is wrong in the profile's own file, for a command that asks no daemon."""
    found = configured_catalog()
    return [*last_good_lines(found.find(name), map(str, found.problems))[:1], *start_warnings(name)]


def end_import(told: Iterable[RuleFinding], problems: tuple[str, ...], *, as_json: bool) -> None:
    for one in () if as_json else told:
        print_note(f"{one.level}: {one.profiles[0]}: {told_text(one)}")
    if problems and as_json:
        raise typer.Exit(ProfileError.exit_code)
    if problems:
        raise ProfileError(
            f"{counted(len(problems), 'problem')} to fix before it loads.",
            problems=problems,
            hint="The source does not contain the missing values.",
        )


def told_text(finding: RuleFinding) -> str:
    """Format a finding in a profile that has no file yet: `key: message. hint [rule]`."""
    problem = finding.problem
    return f"{problem.key}: {problem.message}. {problem.hint} [{finding.rule}]"


def finding_line(finding: RuleFinding) -> str:
    """Format a finding for people: `file:line: key: message. hint`, with the rule's name if a rule found it."""
    return str(finding if finding.rule in RULES else finding.problem)


def finding_facts(finding: RuleFinding) -> dict[str, Any]:
    """Return a finding for programs; line and column count from 1."""
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
            if error.code == "nodes_invalid":
                raise  # of no profile, and the same for all
            if error.code == "unknown_flag" and profile.name in blamed:
                continue
            file, _, start = profile.source.rpartition(":")
            if error.code == "command_missing" and Path(file).is_relative_to(paths.shipped_profiles()):
                continue  # made for containers: no fault of the owner's files where engines are plain processes
            code = error.code.replace("_", "-")
            problem = ProfileProblem(file, int(start), "", error.message.rstrip("."), error.hint, code=code)
            yield RuleFinding(code, Severity.ERROR, problem, (profile.name,))


def _circular(found: Catalog) -> Iterator[RuleFinding]:
    known = settings.load_settings()
    for name, profile in found.profiles.items():
        if profile.url and known.serves_at(profile.url):
            hint = "Name the server that runs the model: a request to this one would come back to itself."
            problem = found.problem_at[name](("url",), "is the address of this gateway", hint)
            yield RuleFinding("own-address", Severity.ERROR, problem, (name,))


def _beyond_the_file(found: Catalog) -> Iterator[RuleFinding]:
    """Yield warnings that depend on more than the file: keys in the environment, and other profiles."""
    told: dict[tuple[str, ProfileProblem], list[str]] = {}
    for name, profile in found.profiles.items():
        problem_at = found.problem_at[name]
        if profile.key_env and not os.environ.get(profile.key_env):
            hint = f"Set {profile.key_env} in the daemon's own environment; requests are refused until then."
            problem = problem_at(("key_env",), f"{profile.key_env} is not set in this environment", hint)
            told.setdefault(("key-missing", problem), []).append(name)
        for index, other in enumerate(profile.fallbacks):
            try:
                found.find(other)
            except AdmissionError:
                hint = "This fallback is skipped. Name a profile or an alias."
                problem = problem_at(("fallbacks", index), f"no profile is called {other!r}", hint)
                told.setdefault(("unknown-fallback", problem), []).append(name)
    for (code, problem), names in told.items():
        yield RuleFinding(code, Severity.WARNING, problem, tuple(names))


def _few_nodes(found: Catalog) -> Iterator[RuleFinding]:
    known = 1 + len(read_nodes(nodes_file()))
    for name, profile in found.profiles.items():
        if profile.replicas > known:
            text = f"names {profile.replicas} boxes, and {known} {'is' if known == 1 else 'are'} known"
            hint = f"It runs on {known} until `sparkdash nodes add NAME --ssh USER@HOST` adds another."
            problem = found.problem_at[name](("replicas",), text, hint)
            yield RuleFinding("few-nodes", Severity.WARNING, problem, (name,))
