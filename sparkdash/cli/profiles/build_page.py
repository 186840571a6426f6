"""Page of a build before it begins: what is fetched, what runs, and what it takes.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkdash.cli.profiles.page import wrap_beside_label
from sparkdash.domain.images.image_build import ImageBuild
from sparkdash.domain.images.origin import BUILT_HERE
from sparkdash.host.image_build.jobs import BuildJob
from sparkdash.host.image_build.looks import BaseState, Box
from sparkdash.units import DASH, GIB, duration, gib

LABEL = 15


@dataclass(frozen=True, slots=True)
class PlannedBuild:
    """Planned build, with the facts known before it begins."""

    job: BuildJob
    bases: tuple[BaseState, ...] | None
    """Base images; None: the source was not fetched yet."""
    longest_took_s: float | None
    current: bool = False
    """Whether the image is here and made from the same; then nothing is built."""
    recipe: str | None = None
    """Name of the Containerfile, once the source is here."""
    interrupted: bool = False
    commands: tuple[str, ...] = ()


def build_lines(builds: Sequence[PlannedBuild], box: Box, columns: int) -> Iterator[str]:
    """Format the page for a terminal of `columns`."""
    for number, one in enumerate(builds, 1):
        yield f"{one.job.image}  ({number} of {len(builds)})" if len(builds) > 1 else one.job.image
        for label, text in _facts(one, box):
            yield from wrap_beside_label(f"  {label:<{LABEL}}", text, columns)
    disk, memory = f"{gib(box.free_disk)} of disk free in {box.images}", f"{gib(box.available)} of memory available"
    yield from wrap_beside_label(f"  {'this box':<{LABEL}}", f"{box.architecture}; {disk}; {memory}", columns)


def _facts(one: PlannedBuild, box: Box) -> Iterator[tuple[str, str]]:
    build = one.job.build
    if one.current:
        yield "state", "here and up to date; nothing is built"
        return
    yield "said by", one.job.profile
    yield "source", f"{build.repo} at {build.commit}" if build.repo else str(one.job.folder / (build.context or ""))
    if build.submodules:
        yield "", "and its submodules"
    yield "licence", build.licence or DASH
    yield from _what_runs(build, one.recipe)
    yield from (("edit", f"{edit.file}: {edit.find!r} becomes {edit.put!r}") for edit in build.edits)
    yield from (("argument", f"{key}={value}") for key, value in build.args.items())
    yield "base images", _bases(one, box)
    if one.interrupted:
        yield "earlier", "a build that was interrupted or failed; its finished steps are kept"
    yield "takes", _takes(build, one.longest_took_s)
    yield from (("command", command) for command in one.commands)


def _what_runs(build: ImageBuild, recipe: str | None) -> Iterator[tuple[str, str]]:
    within = f" in {build.context}" if build.context and build.repo else ""
    if build.script:
        yield "runs", f"the program {build.script}{within}, ON THIS BOX, WITH YOUR RIGHTS"
        return
    target = f", up to its stage {build.target}" if build.target else ""
    yield "runs", f"podman build of {recipe or build.containerfile or 'Containerfile or Dockerfile'}{within}{target}"
    if build.base:
        yield "", f"with {build.base} in its first FROM"


def _bases(one: PlannedBuild, box: Box) -> str:
    if one.job.build.script:
        return "the script decides"
    if one.bases is None:
        return "known once the source is fetched"
    return "; ".join(f"{base.name} ({_base(base, box)})" for base in one.bases) or "none"


def _base(base: BaseState, box: Box) -> str:
    """Say where a base image comes from and whether it is for this box."""
    if base.name.startswith(BUILT_HERE) and not base.here:
        return "NOT HERE, and no registry has it"
    words = {True: f"for {box.architecture}", None: "its registry did not say for which processor"}
    fits = words.get(base.fits, f"FOR {base.found}")
    if base.here:
        return f"here, {fits}"
    return f"to fetch from a registry of podman's settings, {fits}" if base.is_short else f"to fetch, {fits}"


def _takes(build: ImageBuild, longest_took_s: float | None) -> str:
    time = f"{duration(longest_took_s)} the longest time so far" if longest_took_s is not None else None
    if time is None and build.minutes is not None:
        time = f"about {duration(build.minutes * 60)}{' (' + build.source + ')' if build.source else ''}"
    disk = gib(int(build.disk_gib * GIB)) if build.disk_gib else DASH
    memory = gib(int(build.memory_gib * GIB)) if build.memory_gib else DASH
    return f"time {time or DASH}, disk {disk}, memory {memory}"
