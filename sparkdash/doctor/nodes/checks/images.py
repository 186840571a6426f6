"""Check of the images of profiles for several nodes: the same one on both boxes.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparkdash.doctor.check import CheckResult, fail, note, ok
from sparkdash.doctor.nodes.check import pair_check
from sparkdash.doctor.nodes.facts import PairFacts, TwoNodeProfile
from sparkdash.doctor.nodes.readings import parse_image

SHORT = 12
"""Digits of an image's id that podman shows."""


@pair_check("image", "Profiles for several nodes have the same image on both boxes.", reads=("images",))
def image(pair: PairFacts) -> Iterator[CheckResult]:
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
    pair: PairFacts, name: str, users: list[TwoNodeProfile], here: Mapping[str, Any], there: Mapping[str, Any]
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
