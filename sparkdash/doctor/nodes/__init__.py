"""The doctor's checks of several boxes: each node, and how it pairs with this box.

Owns: the checks (pure functions of PairFacts) and the probe that reads those facts. Rule: nothing is changed on any
box, and a silent box hides no finding about the others.
"""

from sparkdash.doctor.nodes.check import NODE_CHECKS, NodeCheck
from sparkdash.doctor.nodes.examine import examine_nodes, node_checks_named

__all__ = ["NODE_CHECKS", "NodeCheck", "examine_nodes", "node_checks_named"]
