"""`sparkdash serve`, on a box whose /proc is the folder FAKE_PROC and whose NVML never answers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import uvloop

from sparkdash import catalog, daemon, settings
from sparkdash.host.box import BoxReader, Nvml
from sparkdash.host.memory.guard import MemoryGuard
from sparkdash.host.nvml_device import NvmlDevice
from sparkdash.host.podman import podman_host
from sparkdash.host.podman.podman import Podman

WEDGED_S = 600


def wedged_nvml() -> NvmlDevice:
    """NVIDIA's library on a box that is about to stand still."""
    time.sleep(WEDGED_S)
    raise OSError("it never answers")


def main() -> None:
    """The real daemon, put together as daemon.run does."""
    cdi = Path(os.environ["FAKE_PROC"]) / "cdi"
    cdi.mkdir(exist_ok=True)
    (cdi / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    podman_host.CDI_FOLDERS = (cdi,)  # a box with a GPU has the spec
    given, proc = settings.load_settings(port=0), Path(os.environ["FAKE_PROC"])
    parts = daemon.Parts(
        settings=given,
        load_settings=lambda: given,
        runtime=Podman(),
        reader=BoxReader(proc, Nvml(wedged_nvml)),
        load_catalog=lambda: catalog.load_catalog(given.profile_folders()),
        guard=MemoryGuard(given, proc),
    )
    uvloop.run(daemon.serve(parts))


if __name__ == "__main__":
    main()
