"""Look at the box: servers, containers and files at the same time."""

from __future__ import annotations

import asyncio

from sparkdash.discovery.containers import find_containers
from sparkdash.discovery.files import find_files
from sparkdash.discovery.found import Discovered
from sparkdash.discovery.servers import PORTS, find_servers


async def discover(*, own_port: int, further_ports: tuple[int, ...] = ()) -> Discovered:
    """Look for other programs' models; `own_port` is the gateway's."""
    servers, containers, files = await asyncio.gather(
        find_servers((*PORTS, *further_ports), besides=own_port), find_containers(), asyncio.to_thread(find_files)
    )
    return Discovered(servers, containers, files)
