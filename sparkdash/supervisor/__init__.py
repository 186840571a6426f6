"""The supervisor: which engine runs, who may use it, and how one makes room for the next. DESIGN.md explains it.

Owns: engines, leases, the swap under way. Must not know HTTP towards clients, screens, or what a request says.
"""

from sparkdash.supervisor.leasing import Lease
from sparkdash.supervisor.supervisor import Supervisor
from sparkdash.supervisor.tools import Tools

__all__ = ["Lease", "Supervisor", "Tools"]
