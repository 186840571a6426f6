"""Checks by subject. Importing this package fills the register, in the order of the report.

Pure.
"""

from sparkdash.doctor.checks import box, containers, memory, services

__all__ = ["box", "containers", "memory", "services"]
