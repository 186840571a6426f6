"""The doctor's checks of several boxes: each node, and how it pairs with this box.

Rule: nothing is changed on any box, and a silent box hides no finding about the others.
"""

from sparkdash.doctor.nodes.examine import examine_nodes, node_checks_named
from sparkdash.doctor.nodes.pair import NODE_CHECKS, NodeCheck

__all__ = ["NODE_CHECKS", "NodeCheck", "examine_nodes", "node_checks_named"]
