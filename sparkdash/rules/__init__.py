"""Rules: known mistakes of well-formed profiles, each with its evidence.

Owns: the rules, their evidence, and the findings of a catalog. Must not know: files beyond a section's lines,
runtimes.

Pure.
"""

from sparkdash.rules.book import RULES
from sparkdash.rules.judge import RuleFinding, findings
from sparkdash.rules.rule import Hit, Rule, Severity

__all__ = ["RULES", "Hit", "Rule", "RuleFinding", "Severity", "findings"]
