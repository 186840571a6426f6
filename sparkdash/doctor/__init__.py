"""The doctor: what of this box would keep engines from running well, each finding with its evidence and its cure.

Owns: the checks (PURE, over Facts) and the one look at the box that feeds them (probe). Rule: it only reads; nothing
here changes the box, and nothing here waits without a limit.
"""

from sparkdash.doctor.check import CHECKS, Check
from sparkdash.doctor.examine import checks_named, examine
from sparkdash.doctor.probe import Probe

__all__ = ["CHECKS", "Check", "Probe", "checks_named", "examine"]
