"""Checks of the container runtime, and of the disk for its images.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkdash.doctor import podman_info
from sparkdash.doctor.check import CheckResult, check, fail, note, ok, warn
from sparkdash.doctor.facts import Facts, UnreadFact, file_system
from sparkdash.host.command import CommandResult
from sparkdash.host.podman.answers import last_words
from sparkdash.units import GIB, gib

DOCKER = ("docker", "version", "--format", "{{.Server.Version}}")
OLDEST = (4, 3)
"""Oldest podman that sparkdash was run with; CDI devices came with 4.1."""
MOUNTS = "/proc/self/mountinfo"
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "lustre"})
USERNS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
"""1 on Ubuntu from 24.04 on: user namespaces need an AppArmor profile, which /usr/bin/podman has."""
NO_USERNS = re.compile(r"cannot clone|\bre-?exec", re.IGNORECASE)
"""Complaint of podman 4 and 5 without a user namespace (podman#24642, mgoltzsche/podman-static#111)."""
LET_IN = (
    "printf 'abi <abi/4.0>,\\nprofile podman-here %s flags=(unconfined) { userns, }\\n' "
    '"$(readlink -f "$(command -v podman)")" | sudo tee /etc/apparmor.d/podman-here; sudo systemctl reload apparmor'
)
FULL, SCARCE = 10 * GIB, 60 * GIB
"""Bytes for any image, and for an update: a vLLM image has 20 GB, and an update holds two and the layers again."""


@check(
    "podman",
    "The container runtime is there, new enough, and answers.",
    reads=(USERNS,),
    runs=(podman_info.COMMAND, DOCKER),
)
def runtime(facts: Facts) -> Iterator[CheckResult]:
    """Check the runtime that the settings name."""
    if facts.settings.runtime == "process":
        yield note("The settings run engines as plain processes; podman is not needed.")
    elif facts.settings.runtime == "docker":
        yield _docker(facts)
    else:
        yield _podman(facts)


def _docker(facts: Facts) -> CheckResult:
    done = facts.ran(DOCKER)
    if done is None:
        return fail("The settings name docker, and it is not installed.", "sudo apt install docker.io")
    if done.code:
        return fail(f"docker's daemon does not answer: {_words(done)}.", "sudo systemctl start docker")
    return ok(f"docker {done.out.strip()} (docker version).")


def _podman(facts: Facts) -> CheckResult:
    try:
        done = facts.ran(podman_info.COMMAND)
    except UnreadFact as why:
        return fail(f"{why}.", "podman system migrate; when that hangs too: sudo reboot")
    if done is None:
        return fail("podman is not installed.", "sudo apt install podman")
    if (info := podman_info.parse_podman_info(done)) is None:
        return _failing(done, facts)
    about = f"podman {info.version}, {'rootless' if facts.rootless else 'root'}, {info.oci_runtime}, {info.network}"
    if podman_info.version_numbers(info.version) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return fail(f"{about} (podman info): sparkdash needs {needed}.", "sudo apt install --only-upgrade podman")
    return ok(f"{about} (podman info).")


def _failing(done: CommandResult, facts: Facts) -> CheckResult:
    words = _words(done)
    if NO_USERNS.search(words) and (facts.file(USERNS) or "").strip() == "1":
        return fail(
            f"`podman info` fails: {words}. AppArmor allows user namespaces to Ubuntu's own podman only, and this is "
            f"another one ({USERNS} is 1).",
            LET_IN,
        )
    if '"newuidmap": executable file not found' in words:  # apt only recommends it with podman
        return fail(f"`podman info` fails: {words}.", "sudo apt install uidmap")
    if "lock" in words:  # a lock file of another version; pengguanya/pgpu met it on a GB10
        return fail(
            f"`podman info` fails: {words}.", f"rm /dev/shm/libpod_rootless_lock_{facts.uid}, while no container runs"
        )
    return fail(f"`podman info` fails: {words}.", "podman system migrate")


def _words(done: CommandResult) -> str:
    return last_words(done.err).rstrip(".") or f"status {done.code}"


@check(
    "images",
    "There is room for images, on a file system of this box.",
    reads=(MOUNTS,),
    runs=(podman_info.COMMAND,),
    disks=("{graphroot}",),
)
def images(facts: Facts) -> Iterator[CheckResult]:
    """Check podman's graphroot: driver, file system, free bytes."""
    if facts.settings.runtime != "podman":
        yield note(f"The folder of {facts.settings.runtime} is not checked.")
        return
    info = podman_info.podman_info_of(facts)
    kind = file_system(info.graph_root, facts.file(MOUNTS) or "")
    disk = facts.disk("{graphroot}")
    where = f"{info.graph_root} ({info.graph_driver} on {kind or 'an unknown file system'}, podman info)"
    room = f"{gib(disk.free)} of {gib(disk.total)} free in {where}"
    if kind in REMOTE:
        yield fail(
            f"Images are on a network file system, where rootless podman cannot keep layers: {room}.",
            'graphroot = "/var/tmp/containers" under [storage] in ~/.config/containers/storage.conf',
        )
    elif info.graph_driver == "vfs":
        yield warn(
            f"The driver vfs copies every layer whole: {room}.",
            'driver = "overlay" in ~/.config/containers/storage.conf, then podman system reset (it removes all images)',
        )
    elif disk.free < FULL:
        yield fail(f"{room}: no image fits.", "podman image prune --all")
    elif disk.free < SCARCE:
        yield warn(f"{room}: an image has about 20 GB, and an update needs it twice.", "podman image prune")
    else:
        yield ok(f"{room}.")
