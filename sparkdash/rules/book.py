"""All rules, by name.

Pure.
"""

from __future__ import annotations

from sparkdash.rules import containers, flag_table, flags, memory, nodes, remote, secret, servers, speculation
from sparkdash.rules.rule import Rule

RULES: dict[str, Rule] = {
    rule.name: rule
    for module in (flags, flag_table, memory, speculation, containers, secret, remote, servers, nodes)
    for rule in module.RULES
}
"""All rules, in the order of `sparkdash profiles check --rules`."""
