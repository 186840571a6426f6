"""Checks of what must be equal on both boxes: driver, CUDA, processor, podman, clock.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, note, ok, unknown, warn
from sparkdash.doctor.nodes.check import pair_check
from sparkdash.doctor.nodes.facts import PairFacts
from sparkdash.doctor.podman_info import version_numbers
from sparkdash.units import duration

SKEW_S, FAR_S = 2.0, 60.0
"""Seconds between the clocks that confuse the order of logs, and that break what checks times."""
UPGRADE = "sudo apt update && sudo apt full-upgrade, then reboot"


@pair_check("driver", "Both boxes run the same NVIDIA driver; different ones were 2.4 times slower.")
def driver(pair: PairFacts) -> Iterator[CheckResult]:
    """Compare the drivers. An owner of two boxes measured 2.4x with different ones (al-engr)."""
    yield _same(pair, "driver", "a pair with different drivers was 2.4 times slower (al-engr)")


@pair_check("cuda", "Both boxes have the same CUDA version.")
def cuda(pair: PairFacts) -> Iterator[CheckResult]:
    """Compare the CUDA versions that the drivers offer."""
    yield _same(pair, "cuda", "kernels are compiled for one of them")


def _same(pair: PairFacts, field: str, harm: str) -> CheckResult:
    here, there = (getattr(box.known(), field) for box in pair.boxes)
    word = {"cuda": "CUDA"}.get(field, field)
    if here is None and there is None:
        return note(f"Neither box tells its {word}: no NVIDIA GPU was found.")
    if here is None or there is None:
        mute = pair.here if here is None else pair.there
        return warn(f"{mute.shown} tells no {word}, the other one {here or there}.", mute.command("nvidia-smi"))
    about = f"{word} {here} on {pair.here.shown}, {there} on {pair.there.shown}"
    if here == there:
        return ok(f"{word} {here} on both.")
    older = pair.here if version_numbers(here) < version_numbers(there) else pair.there
    return warn(f"{about}: {harm}.", older.command(UPGRADE))


@pair_check("processor", "Both boxes have the same processor, so that one image runs on both.")
def processor(pair: PairFacts) -> Iterator[CheckResult]:
    """Compare the machine types."""
    here, there = (box.known().arch for box in pair.boxes)
    if here == there:
        yield ok(f"{here} on both.")
    else:
        yield warn(
            f"{here} on {pair.here.shown}, {there} on {pair.there.shown}: no image runs on both.",
            "Use this node for profiles with an image of its own, and set `node:` in them.",
        )


@pair_check("podman-versions", "Both boxes run about the same podman.")
def podman_versions(pair: PairFacts) -> Iterator[CheckResult]:
    """Compare the first numbers of podman's versions: 4 and 5 differ in their network and their flags."""
    here, there = (box.known().runtime_version for box in pair.boxes)
    if here is None or there is None:
        yield unknown("A box has no podman; see the check podman.")
    elif version_numbers(here)[:1] == version_numbers(there)[:1]:
        yield ok(f"{here} on {pair.here.shown}, {there} on {pair.there.shown}.")
    else:
        yield note(f"{here} on {pair.here.shown}, {there} on {pair.there.shown}: flags and networks of engines differ.")


@pair_check("clock", "The clocks agree.")
def clock(pair: PairFacts) -> Iterator[CheckResult]:
    """Judge the offset of the node's clock."""
    offset = pair.there.known().clock_offset_s
    if offset is None:
        yield unknown("The offset of the clocks was not measured.")
        return
    side = "ahead" if offset > 0 else "behind"
    about = f"The clock of {pair.there.shown} is {duration(abs(offset))} {side}"
    mend = pair.there.command("sudo timedatectl set-ntp true")
    if abs(offset) > FAR_S:
        yield warn(f"{about}: logs of both cannot be compared, and certificates may be refused.", mend)
    elif abs(offset) > SKEW_S:
        yield warn(f"{about}: the order of both logs is wrong.", mend)
    else:
        yield ok(f"{abs(offset):.2f} s apart.")
