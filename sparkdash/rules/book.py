"""All rules, and their findings in a catalog: rules that apply, silenced ones left out, each at its place in the file.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkdash.catalog.catalog import Catalog, ProfileProblem, SourceLocator, nearest
from sparkdash.domain.profile import Profile
from sparkdash.engines.flag_check import NOT_LISTED
from sparkdash.engines.registry import adapter_of, all_adapters
from sparkdash.engines.rule import Hit, Rule, Severity
from sparkdash.rules import general, secret
from sparkdash.units import natural

SILENCE = "silence"
"""Name of the finding about a wrong `silence:`; it cannot be silenced itself."""
_GENERAL = (*general.RULES, *secret.RULES)
RULES: dict[str, Rule] = {
    rule.name: rule for rules in (_GENERAL, *(one.rules() for one in all_adapters())) for rule in rules
}
"""All rules, by name."""


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """Violation of a rule at one place. `profiles` are all that inherit it."""

    rule: str
    level: Severity
    problem: ProfileProblem
    profiles: tuple[str, ...]

    def __str__(self) -> str:
        """`file:line: key: message. hint [rule]`."""
        return f"{self.problem} [{self.rule}]"


def findings(catalog: Catalog) -> tuple[RuleFinding, ...]:
    """Apply all rules to the catalog's profiles; sorted by file and line, inherited violations once."""
    found: dict[tuple[str, Severity, ProfileProblem], list[str]] = {}
    for name, profile in catalog.profiles.items():
        for key in _judge(profile, catalog.places[name]):
            found.setdefault(key, []).append(name)
    told = [RuleFinding(*key, tuple(dict.fromkeys(names))) for key, names in found.items()]
    return tuple(sorted(told, key=lambda one: (natural(one.problem.file), one.problem.line or 0, one.rule)))


def _judge(profile: Profile, place: SourceLocator) -> Iterator[tuple[str, Severity, ProfileProblem]]:
    for rule, hit in _hits(profile):
        yield rule.name, _level(rule, hit), place.problem(hit.path, hit.message, hit.hint)
    for name, reason in profile.silence.items():
        if name not in RULES and name != NOT_LISTED:
            close = nearest(name, RULES)
            hint = f"Did you mean {close[0]!r}?" if close else "`sparkdash profiles check --rules` lists them."
            yield SILENCE, Severity.ERROR, place.problem((SILENCE, name), "there is no such rule", hint)
        elif not reason.strip():
            yield SILENCE, Severity.ERROR, place.problem((SILENCE, name), "gives no reason", "Say why in a few words.")


def _hits(profile: Profile) -> list[tuple[Rule, Hit]]:
    """Find violations; a rule that yields stays silent where another one names the same place."""
    found = [(rule, hit) for rule in _applied(profile) for hit in rule.find(profile)]
    named = {(hit.path, _level(rule, hit)) for rule, hit in found if not rule.yields}

    def is_named(rule: Rule, hit: Hit) -> bool:
        return not named.isdisjoint({(hit.path, Severity.ERROR), (hit.path, _level(rule, hit))})

    return [(rule, hit) for rule, hit in found if not (rule.yields and is_named(rule, hit))]


def _applied(profile: Profile) -> list[Rule]:
    rules = (*_GENERAL, *adapter_of(profile).rules())
    return [rule for rule in rules if rule.name not in profile.silence and rule.applies(profile)]


def _level(rule: Rule, hit: Hit) -> Severity:
    return hit.level or rule.level
