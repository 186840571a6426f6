"""All rules, by name.

Pure.
"""

from __future__ import annotations

from sparkdash.rules import containers, flags, memory, remote, secret, speculation
from sparkdash.rules.rule import Rule

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (*flags.RULES, *memory.RULES, *speculation.RULES, *containers.RULES, *secret.RULES, *remote.RULES)
}
"""All rules, in the order of `sparkdash profiles rules`."""
