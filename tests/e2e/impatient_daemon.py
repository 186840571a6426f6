"""`sparkdash serve` with engines as processes, and thresholds of liveness of seconds in the place of minutes."""

from __future__ import annotations

from functools import partial

import uvloop

from sparkdash import catalog, daemon, settings
from sparkdash.host.box import BoxReader
from sparkdash.host.processes.process import Process
from sparkdash.paths import runtime_dir
from sparkdash.supervisor import repair
from sparkdash.supervisor.decide import judge

SECONDS = {
    "slow_s": 1.0, "stopped_s": 3.0, "voted_s": 60.0, "plain_s": 60.0, "young_s": 0.0, "recovery_s": 6.0,
}  # fmt: skip


def hurry() -> None:
    """Judge with these thresholds, and look often."""
    fields = judge.Thresholds.__dataclass_fields__
    given = tuple(SECONDS.get(name, each.default) for name, each in fields.items())
    judge.Thresholds.__init__.__defaults__ = given
    repair.STEP_EVERY_S = 0.5


def main() -> None:
    """The real daemon, put together as daemon.run does."""
    hurry()
    load = partial(settings.load_settings, port=0)
    given = load()
    parts = daemon.Parts(
        settings=given,
        runtime=Process(runtime_dir() / "processes"),
        reader=BoxReader(),
        load_catalog=lambda: catalog.load_catalog(given.profile_folders()),
        profile_folders=given.profile_folders,
        load_settings=load,
    )
    uvloop.run(daemon.serve(parts))


if __name__ == "__main__":
    main()
