"""`sparkdash build`: make the image of a profile on this box."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import aclosing, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli import output
from sparkdash.cli.parameters import AsJson, ProfileName, Yes
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.units import DASH, GIB, duration, gib, percent, size

if TYPE_CHECKING:
    from sparkdash.domain.profile import Profile
    from sparkdash.host.podman.image_build import Box, BuildJob, BuildStep, BuiltImage

LABEL = 15
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be fetched and run; do nothing.")]


def build(profile: ProfileName, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Build the image of a profile that no registry has.

    Shows first which source is fetched, what runs, and the time, disk and
    memory that it takes, and asks. Off a terminal it needs --yes. Ctrl-C ends
    the build and leaves nothing running; a second run continues after the last
    finished step. The log is kept. With --json: one document per step.

    \b
    Examples:
      sparkdash build my-model
      sparkdash build my-model --dry-run
      sparkdash build my-model --yes --json
    """
    import asyncio

    try:
        asyncio.run(_build(profile, dry_run=dry_run, yes=yes, as_json=as_json))
    except KeyboardInterrupt:
        output.print_note("Interrupted; nothing is left running. The finished steps are kept: run the command again.")
        raise


async def _build(name: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from sparkdash.cli.local import configured_catalog
    from sparkdash.client.client import Client
    from sparkdash.host.podman.image_build import build_job, local_images, look_at_box
    from sparkdash.settings import load_settings

    catalog = configured_catalog()
    found = catalog.find(name)
    job = build_job(found, catalog.profiles, load_settings().runtime)
    box = await look_at_box(job.program)
    here = (await local_images([job.image], job.program)).get(job.image)
    current = here is not None and here.provenance is not None and here.provenance.digest == job.digest
    _show(job, box, current=current, as_json=as_json, dry_run=dry_run)
    if dry_run or current:
        return
    if not yes:
        output.ask_or_refuse("Fetch and build this?", _unconfirmed(job))
    await _run(job, box, as_json=as_json)
    with suppress(SparkdashError), Client() as client:  # a daemon may try it again; without one nobody is told
        client.release(profile=found.name)
    if not as_json:
        _next(found)


def _next(found: Profile) -> None:
    from sparkdash.host.local_weights import find_weights
    from sparkdash.settings import load_settings

    home = load_settings().hf_home.expanduser()
    whole = all(find_weights(ref, home).here for ref in found.weights)
    output.print_note(
        f"Next: `sparkdash {'use' if whole else 'pull'} {found.name}`{'' if whole else ' fetches the weights'}."
    )


def _show(job: BuildJob, box: Box, *, current: bool, as_json: bool, dry_run: bool) -> None:
    from sparkdash.cli.profiles.page import wrap_beside_label
    from sparkdash.host.podman.image_build import build_command, is_interrupted

    if as_json:
        facts = {name: getattr(job, name) for name in ("image", "profile", "digest")}
        build = {"build": job.build.model_dump(mode="json"), "folder": str(job.folder), "current": current}
        document = {"builds": [facts | build | {"command": shlex.join(build_command(job))}], "box": asdict(box)}
        return output.print_json(document) if dry_run else output.print_json_line(document)
    facts = {"earlier": "a build that was interrupted or failed; its finished steps are kept"}
    shown = [*build_facts(job), *(facts.items() if is_interrupted(job.image) else ())]
    disk, memory = f"{gib(box.free_disk)} of disk free in {box.images}", f"{gib(box.available)} of memory available"
    lines = [job.image]
    for label, text in (*shown, ("this box", f"{disk}; {memory}")):
        lines += wrap_beside_label(f"  {label:<{LABEL}}", text, output.terminal_width())
    output.print_text("\n".join(lines))
    if current:
        output.print_text(f"{job.image} is here and up to date.")
    return None


def build_facts(job: BuildJob) -> Iterator[tuple[str, str]]:
    from sparkdash.host.podman.image_build import build_command

    build = job.build
    yield "said by", job.profile
    yield "source", f"{build.repo} at {build.commit}" if build.repo else str(job.folder / (build.context or ""))
    yield "licence", build.licence or DASH
    target = f", up to its stage {build.target}" if build.target else ""
    within = f" in {build.context}" if build.context and build.repo else ""
    yield "runs", f"{job.program} build of {build.containerfile or 'Containerfile or Dockerfile'}{within}{target}"
    if build.base:
        yield "", f"with {build.base} in its first FROM"
    yield from (("argument", f"{key}={value}") for key, value in build.args.items())
    time = (
        f"about {duration(build.minutes * 60)}{f' ({build.source})' if build.source else ''}" if build.minutes else DASH
    )
    disk = gib(int(build.disk_gib * GIB)) if build.disk_gib else DASH
    memory = gib(int(build.memory_gib * GIB)) if build.memory_gib else DASH
    yield "takes", f"time {time}, disk {disk}, memory {memory}"
    yield "command", shlex.join(build_command(job))


def _unconfirmed(job: BuildJob) -> AdmissionError:
    told = f"{job.image} is built only when you say so."
    return AdmissionError(told, code="not_confirmed", hint="Read the page above, and add --yes.")


async def _run(job: BuildJob, box: Box, *, as_json: bool) -> None:
    from sparkdash.host.podman.image_build import BuiltImage, build_image

    line = output.LiveLine()
    try:
        async with aclosing(build_image(job, box)) as steps:
            async for step in steps:
                if isinstance(step, BuiltImage):
                    line.clear()
                    _report(step, as_json=as_json)
                elif as_json:
                    output.print_json_line(asdict(step) | {"fraction": step.fraction})
                else:
                    line.draw(step_text(step), step_text(step))
    finally:
        line.clear()


def step_text(step: BuildStep) -> str:
    """Format a step: "localhost/a:1   42 %  step 3/7  RUN make"."""
    share = f"{percent(step.fraction):>5}" if step.fraction is not None else " " * 5
    stage = f"{step.stage}/{step.stages} " if step.stages > 1 else ""
    number = f"step {stage}{step.number}{f'/{step.of}' if step.of else ''}  " if step.number else ""
    return f"{step.image} {share}  {number}{step.text}{'  (from before)' if step.cached else ''}"


def _report(made: BuiltImage, *, as_json: bool) -> None:
    if as_json:
        facts = {name: getattr(made.image, name) for name in ("id", "size", "architecture", "provenance")}
        end = {"log": str(made.log), "took_s": round(made.took_s, 1), "done": True}
        output.print_json_line({"image": made.image.name, **facts, **end})
    else:
        took = duration(made.took_s)
        output.print_text(f"{made.image.name} is built, {size(made.image.size)}, after {took}. Log: {made.log}")
