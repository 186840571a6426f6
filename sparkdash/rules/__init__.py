"""Rules: known mistakes of well-formed profiles, each with its evidence. Those of one engine are in its folder.

Pure.
"""

from sparkdash.engines.rule import Hit, Rule, Severity
from sparkdash.rules.book import RULES, RuleFinding, findings

__all__ = ["RULES", "Hit", "Rule", "RuleFinding", "Severity", "findings"]
