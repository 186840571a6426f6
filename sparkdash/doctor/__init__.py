"""The doctor: faults of this box that keep engines from running well, each with its evidence and its cure.

Rule: the doctor only reads; it never changes the box, and never waits without a limit.
"""

from sparkdash.doctor.check import CHECKS, Check, checks_named
from sparkdash.doctor.probe import Probe, examine

__all__ = ["CHECKS", "Check", "Probe", "checks_named", "examine"]
