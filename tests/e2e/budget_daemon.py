"""`sparkdash serve` on a box of BUDGET_MIB, all of it for the engines: what they really take is what is missing of it.

A machine that runs tests has memory of its own to give and take; here only the kernel's word on the engines' processes counts.
"""

from __future__ import annotations

import os
from functools import partial

import uvloop

from sparkdash import catalog, daemon, paths, settings
from sparkdash.domain.metric import Memory
from sparkdash.host.box import BoxReader
from sparkdash.host.podman.podman import Podman
from sparkdash.host.processes import leftovers
from sparkdash.host.processes.proc import host_bytes
from sparkdash.units import MIB


class SmallBox(BoxReader):
    """Has the budget and nobody else in it."""

    def memory(self) -> Memory:
        total, engines = int(os.environ["BUDGET_MIB"]) * MIB, leftovers.processes_of_owner(paths.owner())
        taken = sum(host_bytes(pid) or 0 for births in engines.values() for pid in births)
        figures = {"total": total, "available": total - taken, "free": total - taken, "page_cache": 0}
        return super().memory().model_copy(update=figures)


def main() -> None:
    """The real daemon, put together as daemon.run does."""
    load = partial(settings.load_settings, port=0)
    given = load()
    parts = daemon.Parts(
        settings=given,
        runtime=Podman(),
        reader=SmallBox(),
        load_catalog=lambda: catalog.load_catalog(given.profile_folders()),
        profile_folders=given.profile_folders,
        load_settings=load,
    )
    uvloop.run(daemon.serve(parts))


if __name__ == "__main__":
    main()
