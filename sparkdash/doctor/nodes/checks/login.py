"""Checks of the login on a node: permissions that ssh accepts, and processes that outlive it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, fail, ok, warn
from sparkdash.doctor.nodes.check import box_check
from sparkdash.doctor.nodes.facts import BoxFacts

_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o077


@box_check(
    "login", "Permissions of the home folder, of ~/.ssh and of keys are those that ssh accepts.", reads=("login",)
)
def login(box: BoxFacts) -> Iterator[CheckResult]:
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
def linger(box: BoxFacts) -> Iterator[CheckResult]:
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
