"""Rules as `sparkdash profiles check --rules` prints them."""

from __future__ import annotations

from sparkdash.catalog.catalog import nearest
from sparkdash.errors import AdmissionError
from sparkdash.rules import RULES, Rule


def all_rules() -> list[dict[str, str]]:
    """Describe every rule as text by label."""
    return [_told(rule) for rule in RULES.values()]


def one_rule(name: str) -> list[dict[str, str]]:
    """Describe one rule, as a list of one.

    Raises:
        AdmissionError: no rule has that name; the hint offers the nearest names.
    """
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
        "engines": ", ".join(kind.value for kind in rule.engines) or "any",
        "versions": rule.versions(),
        "evidence": rule.evidence,
    }
