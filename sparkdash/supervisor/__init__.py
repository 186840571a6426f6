"""The supervisor: which engine runs, who may use it, and how one makes room for the next. DESIGN.md explains it."""

from sparkdash.supervisor.leasing import Lease
from sparkdash.supervisor.supervisor import Supervisor
from sparkdash.supervisor.tools import Tools

__all__ = ["Lease", "Supervisor", "Tools"]
