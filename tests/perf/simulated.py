"""A whole daemon on a simulated box, whose engines can be made to hang: `python tests/perf/simulated.py FOLDER PORT PACE HURRY`.

alpha and beta run beside one another; gamma needs the box to itself but for delta, whose every prompt takes 20 minutes
of prefill. PACE: how many times faster than it says everything runs. HURRY: how many times shorter the thresholds of liveness are.
"""

import os
import sys
from pathlib import Path

import uvloop

from sparkdash import daemon
from sparkdash.catalog import Catalog
from sparkdash.domain.profile import EngineKind, MemoryNeed, Profile, SimSpec
from sparkdash.host.processes.process import Process
from sparkdash.settings import Settings
from sparkdash.sim.box import SimBox

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
from hurried import hurry

SIZES = {"alpha": 25.0, "beta": 25.0, "gamma": 70.0, "delta": 8.0}
"""GiB."""


def catalog(pace: float) -> Catalog:
    return Catalog(profiles={name: profile(name, size, pace) for name, size in SIZES.items()}, problems=())


def profile(name: str, size: float, pace: float) -> Profile:
    late = {"fault": "long-prefill", "fault_after_tokens": 2} if name == "delta" else {}  # its warm-up is quick
    return Profile(
        name=name,
        engine=EngineKind.SIM,
        context=8192,
        gpu=False,
        memory=MemoryNeed(weights_gib=size * 0.7, kv_gib=size * 0.2, overhead_gib=size * 0.1, source="simulated"),
        sim=SimSpec(load_s=20, memory_gib=size, kv_tokens=65536, time_scale=pace, **late),
    )


def main() -> None:
    """Serve until SIGTERM, and end the engines."""
    folder, port, pace, times = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    for room in ("CONFIG", "STATE", "RUNTIME"):
        os.environ[f"SPARKDASH_{room}_DIR"] = str(folder / room.lower())
        (folder / room.lower()).mkdir(parents=True)
    os.environ["SPARKDASH_SIM_DIR"] = str(folder / "sim")
    if times != 1:
        hurry(times)
    settings = Settings(port=port, runtime="process", stop_grace_s=3, cache_dir=folder / "cache")
    parts = daemon.Parts(
        settings=settings,
        load_settings=lambda: settings,
        runtime=Process(folder / "processes"),
        reader=SimBox(folder / "sim"),
        load_catalog=lambda: catalog(pace),
        simulated=True,
        stop_engines=True,
    )
    uvloop.run(daemon.serve(parts))


if __name__ == "__main__":
    main()
