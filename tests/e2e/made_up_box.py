"""`sparkdash serve` on a box that a test makes up, named by BOX.

small: BUDGET_MIB of memory, all of it for the engines, whose processes' real memory is what is missing of it. A machine that
runs tests has memory of its own to give and take.
wedged: /proc is the folder FAKE_PROC, and NVML never answers.
"""

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from sparkdash import catalog, daemon, paths, settings
from sparkdash.domain.metric import Memory
from sparkdash.host.box import BoxReader, Nvml
from sparkdash.host.memory.guard import MemoryGuard
from sparkdash.host.nvml_device import NvmlDevice
from sparkdash.host.podman import podman_host
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


def wedged_nvml() -> NvmlDevice:
    """NVIDIA's library on a box that is about to stand still."""
    time.sleep(600)
    raise OSError("it never answers")


def wedged(given: settings.Settings) -> dict[str, Any]:
    proc = Path(os.environ["FAKE_PROC"])
    cdi = proc / "cdi"
    cdi.mkdir(exist_ok=True)
    (cdi / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    podman_host.CDI_FOLDERS = (cdi,)  # a box with a GPU has the spec
    return {"reader": BoxReader(proc, Nvml(wedged_nvml)), "guard": MemoryGuard(given, proc)}


def main() -> None:
    """The real daemon, put together as daemon.run does."""
    load = partial(settings.load_settings, port=0)
    given = load()
    parts = daemon.Parts(
        settings=given,
        load_settings=load,
        runtime=Podman(),
        load_catalog=lambda: catalog.load_catalog(given.profile_folders()),
        profile_folders=given.profile_folders,
        **(wedged(given) if os.environ["BOX"] == "wedged" else {"reader": SmallBox()}),
    )
    uvloop.run(daemon.serve(parts))


if __name__ == "__main__":
    main()
