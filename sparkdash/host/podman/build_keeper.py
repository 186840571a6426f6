"""Program that runs a build and ends it, with all its processes, once whoever began it is gone.

`podman build` that is killed leaves the step of the Containerfile running, and a build that outlives a killed
`sparkdash build` would go on unseen. The end of standard input is the sign: it comes however the parent ends. Run as a
script, so it imports nothing of sparkdash.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

import psutil

ROUNDS = 20
"""Times that new children of a dying build are looked for."""


def main() -> int:
    """Run `argv[1:]`; return its exit code, or 130 if it was ended."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    ended = os.pidfd_open(child.pid)
    ready, _, _ = select.select([ended, sys.stdin.fileno()], [], [])
    if ended not in ready:
        end_tree(child.pid)
    code = child.wait()
    return code if ended in ready else 130


def end_tree(pid: int) -> None:
    """Kill a process and all its descendants. Each is stopped before its children are listed, so none escapes."""
    for _ in range(ROUNDS):
        alive = _tree(pid)
        if not alive:
            return
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP)
        for process in _tree(pid) or alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=0.2)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [one for one in (*root.children(recursive=True), root) if one.status() != psutil.STATUS_ZOMBIE]
    except psutil.Error:
        return []


if __name__ == "__main__":
    sys.exit(main())
