"""Link figures of this box, read in place while there are other nodes.

Owns: joining the kernel's counters into a NodeSample. Must not know the other nodes.
"""

from __future__ import annotations

import json
import time

from sparkdash.domain.metric import NodeSample
from sparkdash.nodes.agent.link_rates import LinkRates
from sparkdash.nodes.agent.remote.kernel import PROC, SYS, Interfaces, RdmaPorts
from sparkdash.nodes.agent.tick import parse_tick


class LocalLinks:
    """Interfaces and RDMA ports of this box. Only tests give `proc` and `sys_class`."""

    def __init__(self, proc: str = PROC, sys_class: str = SYS) -> None:
        self._interfaces, self._rdma = Interfaces(proc, sys_class), RdmaPorts(sys_class)
        self._rates = LinkRates()

    def read(self) -> NodeSample:
        """Read all counters, which takes some 100 µs."""
        at, now = time.monotonic(), time.time()
        told = {"clock": now, "at": at, "interfaces": self._interfaces.read(at), "rdma": self._rdma.read(at)}
        return NodeSample(at=now, links=self._rates.add(at, parse_tick(json.dumps(told)).ports))
