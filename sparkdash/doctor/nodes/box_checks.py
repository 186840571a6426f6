"""Checks of each node, and of what must be equal on both.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparkdash.doctor.check import CheckResult, fail, note, ok, unknown, warn
from sparkdash.doctor.containers import OLDEST
from sparkdash.doctor.nodes.pair import BoxReadings, PairReadings, TwoNodeProfile, box_check, pair_check, parse_image
from sparkdash.doctor.readings import version_numbers
from sparkdash.doctor.services import FULL, SCARCE
from sparkdash.host.kernel_figures import parse_meminfo
from sparkdash.units import GIB, duration, gib


@box_check("podman", "The container runtime is there and new enough.")
def podman(box: BoxReadings) -> Iterator[CheckResult]:
    version = box.known().runtime_version
    if box.settings.runtime == "process":
        yield note("The settings run engines as plain processes; podman is not needed.")
    elif version is None:
        package = "podman" if box.settings.runtime == "podman" else "docker.io"
        yield fail(
            f"{box.settings.runtime} is not installed or does not answer.", box.command(f"sudo apt install {package}")
        )
    elif box.settings.runtime == "podman" and version_numbers(version) < OLDEST:
        words = ".".join(map(str, OLDEST))
        yield warn(
            f"podman {version}; sparkdash was run with {words} and newer.", box.command("sudo apt upgrade podman")
        )
    else:
        yield ok(f"{box.settings.runtime} {version}.")


@box_check("memory", "Memory that engines can get.", reads=("memory",))
def memory(box: BoxReadings) -> Iterator[CheckResult]:
    """Compare the available memory with the reserve, below which no engine starts."""
    read = parse_meminfo(str(box.section("memory")["meminfo"]))
    total, available = read.get("MemTotal"), read.get("MemAvailable")
    if total is None or available is None:
        yield unknown("/proc/meminfo has no MemAvailable.")
        return
    about = f"{gib(available)} of {gib(total)} available"
    if available < box.settings.reserve_gib * GIB:
        yield warn(
            f"{about}, and {box.settings.reserve_gib:g} GiB are kept free: no engine starts.",
            box.command("ps -eo rss,pid,comm --sort -rss | head"),
        )
    else:
        yield ok(f"{about} (MemAvailable).")


@box_check("disk", "There is room for images and weights.")
def disk(box: BoxReadings) -> Iterator[CheckResult]:
    """Check the free bytes of the fuller of both file systems."""
    free = box.known().disk_free
    look = box.command("df -h ~ /var/lib/containers; podman image ls")
    if free is None:
        yield unknown("The free space was not told.")
    elif free < FULL:
        yield fail(f"{gib(free)} free: no model fits.", look)
    elif free < SCARCE:
        yield warn(f"{gib(free)} free: a 120B model has about 65 GiB.", look)
    else:
        yield ok(f"{gib(free)} free.")


_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o077


@box_check(
    "login", "Permissions of the home folder, of ~/.ssh and of keys are those that ssh accepts.", reads=("login",)
)
def login(box: BoxReadings) -> Iterator[CheckResult]:
    """Check what StrictModes of sshd_config(5) asks, and that nobody else can read a private key."""
    section = box.section("login")
    home, uid, paths = str(section["home"]), int(section["uid"]), section["paths"]
    unsafe = {path: seen["mode"] for path, seen in paths.items() if seen["mode"] & _refused_bits(path, home)}
    foreign = [path for path, seen in paths.items() if seen["uid"] not in (uid, 0)]
    for path, mode in unsafe.items():
        wanted, effect = ("600", "ssh ignores the key") if _is_key(path, home) else ("go-w", "sshd refuses keys")
        yield fail(
            f"{path} has mode {mode:o}, and others may {_may(wanted)} it: {effect}.",
            box.command(f"chmod {wanted} {path}"),
        )
    for path in foreign:
        yield fail(f"{path} belongs to another user: ssh refuses it.", box.command(f"sudo chown {uid} {path}"))
    if not unsafe and not foreign:
        yield ok(f"{len(paths)} paths in {home} have safe permissions.")


def _refused_bits(path: str, home: str) -> int:
    """Permissions of others with which ssh does not use the path."""
    return _OTHERS_READ if _is_key(path, home) else _OTHERS_WRITE


@box_check("linger", "Engines and memory guard live on when the last ssh session ends.", reads=("linger",))
def linger(box: BoxReadings) -> Iterator[CheckResult]:
    """Check lingering: otherwise logind ends a user's processes with the last session, so with a lost connection."""
    section = box.section("linger")
    if section["uid"] == 0:
        yield ok("Not needed: engines run as root.")
    elif not section["logind"]:
        yield ok("Not needed: there is no systemd-logind.")
    elif section["lingers"]:
        yield ok(f"{section['user']} lingers (/var/lib/systemd/linger).")
    else:
        yield warn(
            f"{section['user']} does not linger: engines end when the connection of ssh does.",
            box.command("loginctl enable-linger"),
        )


def _is_key(path: str, home: str) -> bool:
    return path.startswith(f"{home}/.ssh/") and not path.endswith("authorized_keys")


def _may(wanted: str) -> str:
    return "read" if wanted == "600" else "write"


SKEW_S, FAR_S = 2.0, 60.0
"""Seconds between the clocks that confuse the order of logs, and that break what checks times."""
UPGRADE = "sudo apt update && sudo apt full-upgrade, then reboot"


@pair_check("driver", "Both boxes run the same NVIDIA driver; different ones were 2.4 times slower.")
def driver(pair: PairReadings) -> Iterator[CheckResult]:
    """Compare the drivers. An owner of two boxes measured 2.4x with different ones (al-engr)."""
    here, there = (box.known().driver for box in pair.boxes)
    if here is None and there is None:
        yield note("Neither box tells its driver: no NVIDIA GPU was found.")
    elif here is None or there is None:
        mute = pair.here if here is None else pair.there
        yield warn(f"{mute.shown} tells no driver, the other one {here or there}.", mute.command("nvidia-smi"))
    elif here == there:
        yield ok(f"driver {here} on both.")
    else:
        older = pair.here if version_numbers(here) < version_numbers(there) else pair.there
        about = f"driver {here} on {pair.here.shown}, {there} on {pair.there.shown}"
        yield warn(f"{about}: a pair with different drivers was 2.4 times slower (al-engr).", older.command(UPGRADE))


@pair_check("processor", "Both boxes have the same processor, so that one image runs on both.")
def processor(pair: PairReadings) -> Iterator[CheckResult]:
    here, there = (box.known().arch for box in pair.boxes)
    if here == there:
        yield ok(f"{here} on both.")
    else:
        yield warn(
            f"{here} on {pair.here.shown}, {there} on {pair.there.shown}: no image runs on both.",
            "Use this node for profiles with an image of its own, and set `node:` in them.",
        )


@pair_check("clock", "The clocks agree.")
def clock(pair: PairReadings) -> Iterator[CheckResult]:
    """Judge the offset of the node's clock."""
    offset = pair.there.known().clock_offset_s
    if offset is None:
        yield unknown("The offset of the clocks was not measured.")
        return
    side = "ahead" if offset > 0 else "behind"
    about = f"The clock of {pair.there.shown} is {duration(abs(offset))} {side}"
    fix = pair.there.command("sudo timedatectl set-ntp true")
    if abs(offset) > FAR_S:
        yield warn(f"{about}: logs of both cannot be compared, and certificates may be refused.", fix)
    elif abs(offset) > SKEW_S:
        yield warn(f"{about}: the order of both logs is wrong.", fix)
    else:
        yield ok(f"{abs(offset):.2f} s apart.")


SHORT = 12
"""Digits of an image's id that podman shows."""


@pair_check("image", "Profiles for several nodes have the same image on both boxes.", reads=("images",))
def image(pair: PairReadings) -> Iterator[CheckResult]:
    """Compare images by id, the digest of their configuration.

    The digest of the manifest is not compared: `podman load` makes a new one for the same image.
    """
    if pair.settings.runtime == "process":
        yield note("The settings run engines as plain processes, without images.")
        return
    profiles = [each for each in pair.wanted() if each.image]
    if not profiles:
        yield note("No profile runs on several nodes.")
        return
    sections = [box.section("images") for box in pair.boxes]
    for name in sorted({str(each.image) for each in profiles}):
        users = [each for each in profiles if each.image == name]
        yield _compared(pair, name, users, *sections)


def _compared(
    pair: PairReadings, name: str, users: list[TwoNodeProfile], here: Mapping[str, Any], there: Mapping[str, Any]
) -> CheckResult:
    mine, other = parse_image(here, name), parse_image(there, name)
    about = f"{name} ({', '.join(each.name for each in users)})"
    if mine is None and other is None:
        return note(f"Neither box has {about}.", f"sparkdash pull {users[0].name}")
    if mine is None or other is None:
        lacking, having = (pair.here, pair.there) if mine is None else (pair.there, pair.here)
        return note(
            f"{having.shown} has {about}, {lacking.shown} does not: the first start brings it there.",
            f"sparkdash nodes copy {users[0].name} --to {lacking.name} --image-only"
            if lacking is pair.there
            else f"sparkdash pull {users[0].name}",
        )
    if mine[0] == other[0]:
        return ok(f"{about} is {mine[0][:SHORT]} on both.")
    return fail(
        f"{about} is {_words(*mine)} on {pair.here.shown} and {_words(*other)} on {pair.there.shown}.",
        f"sparkdash nodes copy {users[0].name} --to {pair.there.name} --image-only",
    )


def _words(image_id: str, digest: str | None) -> str:
    return image_id[:SHORT] + (f" (digest {digest.removeprefix('sha256:')[:SHORT]})" if digest else "")
