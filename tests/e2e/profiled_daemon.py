"""`sparkdash serve` under a profiler; the file named first has the profile at its end."""

import cProfile
import runpy
import sys

if __name__ == "__main__":
    out, sys.argv[:] = sys.argv[1], ["sparkdash", *sys.argv[2:]]
    profile = cProfile.Profile()
    profile.enable()
    try:
        runpy.run_module("sparkdash", run_name="__main__", alter_sys=True)
    finally:
        profile.disable()
        profile.dump_stats(out)
