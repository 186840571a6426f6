"""A daemon whose judge of liveness is in a hurry: `python tests/shared/hurried.py TIMES` is `sparkdash serve --port 0` with
thresholds TIMES shorter.

What bounds a single look stays as it is: an engine that answers nothing takes as long to be looked at as ever.
"""

import runpy
import sys
from dataclasses import fields

from sparkdash.supervisor import repair
from sparkdash.supervisor.decide import judge
from sparkdash.supervisor.decide.judge import Thresholds


def hurry(times: float) -> None:
    """Judge with thresholds that many times shorter, in this process."""
    kept = {"gap_s"}
    values = [each.default if each.name in kept else each.default / times for each in fields(Thresholds)]
    Thresholds.__init__.__defaults__ = tuple(values)
    repair.LOOK_EVERY_S /= times
    judge.SILENT_S /= times
    judge.AGAIN_S /= times


if __name__ == "__main__":
    hurry(float(sys.argv[1]))
    sys.argv = ["sparkdash", "serve", "--port", "0"]
    runpy.run_module("sparkdash", run_name="__main__")
