"""Checks of the kernel's log, disks, ports, the daemon and its profiles. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime

from sparkdash import __version__
from sparkdash.doctor.check import (
    CheckResult,
    Listener,
    Readings,
    check,
    fail,
    file_system,
    note,
    ok,
    require_read,
    unknown,
    warn,
)
from sparkdash.doctor.containers import MOUNTS, REMOTE
from sparkdash.host.kernel_lines import KernelLine, advice, meaning
from sparkdash.settings import Settings
from sparkdash.units import GIB, counted, duration, gib, size


@check("kernel-log", "The kernel reported nothing in the last day that harms engines.", kernel=True)
def kernel_log(readings: Readings) -> Iterator[CheckResult]:
    found = require_read(readings.kernel_log)
    if found is None:
        join = f"sudo usermod -aG systemd-journal {readings.path('{user}')}, then log in again"
        yield unknown("This user may not read the kernel's log: out-of-memory kills and GPU faults are missed.", join)
        return
    by_kind: dict[object, list[KernelLine]] = {}
    for line in found.lines:
        if not line.is_harmless:
            by_kind.setdefault((line.kind, line.xid), []).append(line)
    for lines in by_kind.values():
        yield warn(_told(lines, found.counts.get(lines[-1].kind, 0)), advice(lines[-1]))
    if not by_kind:
        yield ok("No out-of-memory kill, GPU fault or stuck task in the last day (kernel log).")


def _told(lines: list[KernelLine], counted: int) -> str:
    last = lines[-1]
    count = counted if last.xid is None else len(lines)
    at = datetime.fromtimestamp(last.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    words = meaning(last)
    often = "" if count == 1 else f", {count} times in the last day"
    return f"{words[0].upper()}{words[1:]}; last at {at}{often} (kernel log)."


HOME = "{hf_home}"
FULL, SCARCE = 5 * GIB, 80 * GIB
"""Bytes for any model, and for a large one: a 120B model in four bits has about 65 GiB."""


@check("weights", "There is room for weights (hf_home), on a disk of this box.", reads=(MOUNTS,), disks=(HOME,))
def weights(readings: Readings) -> Iterator[CheckResult]:
    disk, where = readings.disk(HOME), readings.path(HOME)
    kind = file_system(where, readings.file(MOUNTS) or "")
    about = f"{gib(disk.free)} of {gib(disk.total)} free in {where} ({kind or 'unknown file system'})"
    if kind in REMOTE:
        yield warn(
            f"Weights are on a network file system: {about}; loads take many times longer.",
            "Set hf_home in config.toml to a folder on a disk of this box.",
        )
    else:
        yield room_for_weights(about, disk.free, "`hf cache ls` shows what could go; or hf_home in config.toml.")


def room_for_weights(about: str, free: int, look: str) -> CheckResult:
    """Judge the free bytes of a disk for weights; `look` shows what could go."""
    if free < FULL:
        return fail(f"{about}: no model fits.", look)
    return warn(f"{about}: a 120B model has about 65 GiB.", look) if free < SCARCE else ok(f"{about}.")


SLOW_DISK = 10**9
"""Bytes a second. A Spark's SSD gives 4 to 5 GB/s to plain reads (vcruz305/vllm-exl3 PR#28)."""


@check(
    "disk", "How quickly weights come from the disk. Reads for two seconds, so it runs only by name.", disk_rate=True
)
def disk(readings: Readings) -> Iterator[CheckResult]:
    found = require_read(readings.disk_rate)
    if found is None:
        yield unknown("No profile's weights are on this box, or an engine has them in memory.")
        return
    rate = f"{found.bytes_per_s / 1e9:.2f} GB/s"
    read = f"{rate}, one stream of {size(found.bytes)} in {duration(found.s)} from {found.file}"
    each = f"60 GiB take {duration(60 * GIB / found.bytes_per_s)} at least. First loads tell their time by it"
    if found.bytes_per_s < SLOW_DISK:
        yield warn(f"{read}; a Spark's SSD gives 4 to 5 GB/s. {each}.", "move the weights to the box's own SSD")
    else:
        yield ok(f"{read}. {each}.")


@check("port", "The gateway's port is free, or sparkdash's own daemon has it.", listeners=True)
def port(readings: Readings) -> Iterator[CheckResult]:
    wanted = readings.settings.port
    holders = [one for one in require_read(readings.listeners) if one.port == wanted and wanted]
    if not wanted:
        yield ok("The settings take any free port.")
    elif not holders:
        yield ok(f"{wanted} is free.")
    elif _daemons(holders[0], readings):
        yield ok(f"{wanted} is held by the sparkdash daemon.")
    else:
        yield fail(
            f"{wanted} is held by {_who(holders[0])}: the daemon cannot listen there.",
            "Another port in config.toml or SPARKDASH_PORT.",
        )


def _daemons(holder: Listener, readings: Readings) -> bool:
    daemon = readings.daemon
    if daemon is None or daemon.problem is not None:
        return False
    return holder.pid == daemon.pid if holder.pid is not None else f":{holder.port}/" in f"{daemon.url}/"


def _who(holder: Listener) -> str:
    if holder.pid is None:
        return "a program of another user"
    return f"{holder.program or 'a program'} (pid {holder.pid})"


AGAIN = "sparkdash stop --daemon, then start it again"


@check("settings", "config.toml and SPARKDASH_* are valid.")
def settings(readings: Readings) -> Iterator[CheckResult]:
    if readings.settings_problem:
        yield fail(readings.settings_problem, "Correct it; until then every check uses the defaults.")
        return
    used, defaults = readings.settings.model_dump(mode="json"), Settings().model_dump(mode="json")
    changed = [f"{name} = {value}" for name, value in used.items() if value != defaults[name]]
    yield ok(f"Valid; {', '.join(changed) or 'all are the defaults'}.")


@check("profiles", "Every profile file loads, and no rule has an error against one.", profiles=True)
def profiles(readings: Readings) -> Iterator[CheckResult]:
    seen = require_read(readings.profiles)
    if seen is None:
        yield unknown("The profiles were not read.")
        return
    rules = f"{counted(seen.errors, 'error')} and {counted(seen.warnings, 'warning')} by the rules"
    about = f"{counted(seen.profiles, 'profile')}, {counted(seen.problems, 'problem')}, {rules}"
    if seen.problems or seen.errors:
        yield warn(
            f"{about}: files with problems are left out, and errors make a start fail.", "sparkdash profiles check"
        )
    else:
        yield ok(f"{about}.")


@check("daemon", "The daemon answers, is of this version, and uses these settings.")
def daemon(readings: Readings) -> Iterator[CheckResult]:
    seen = readings.daemon
    if seen is None:
        yield unknown("The daemon was not asked.")
    elif seen.problem:
        yield note(seen.problem, "sparkdash service install, or sparkdash serve")
    elif seen.version != __version__:
        yield warn(f"The daemon at {seen.address} is {seen.version}, this is {__version__}.", AGAIN)
    elif seen.runtime != readings.settings.runtime:
        yield warn(
            f"The daemon at {seen.address} uses {seen.runtime}, and the settings say {readings.settings.runtime}.",
            AGAIN,
        )
    else:
        yield ok(f"{seen.version} serves {seen.url} with {seen.runtime} (pid {seen.pid}).")
