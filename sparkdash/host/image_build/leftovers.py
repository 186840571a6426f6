"""Leftovers of a build that was ended: podman's working containers, which hold disk and layers.

Owns: which of them may be removed. Must not know why the build ended.
"""

from __future__ import annotations

import json
from contextlib import suppress

import psutil

from sparkdash.host.command import run_command
from sparkdash.host.image_build import argv

LOOK_S = 60.0


async def remove_leftovers(since: float) -> int:
    """Remove the working containers of builds since then; return how many there were.

    While another build runs on this box nothing is removed: its containers look the same.
    """
    if _another_build():
        return 0
    with suppress(OSError, TimeoutError, ValueError):
        listed = await run_command(argv.working_containers(), deadline_s=LOOK_S)
        ids = [
            one["Id"]
            for one in json.loads(listed.out or "[]")
            if one.get("Command") == ["buildah"] and float(one.get("Created") or 0) >= int(since)
        ]
        if ids:
            await run_command(argv.remove_containers(ids), deadline_s=LOOK_S)
        return len(ids)
    return 0


def _another_build() -> bool:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            program = words[0].rpartition("/")[2] if words else ""
            if program in ("buildah", "buildah-oci-runtime") or (program == "podman" and "build" in words[1:4]):
                return True
    return False
