"""`sparkdash build`: make the image of a profile on this box.

Owns: what is shown and asked before, the line of progress, and the report. Must not know how an image is built.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkdash.cli.output.screen import (
    LiveLine,
    confirm,
    is_interactive,
    print_json,
    print_json_line,
    print_note,
    print_text,
    terminal_width,
)
from sparkdash.cli.parameters import AsJson, ProfileName, Yes
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.units import duration, percent, size

if TYPE_CHECKING:
    from sparkdash.cli.profiles.build_page import PlannedBuild
    from sparkdash.domain.profile import Profile
    from sparkdash.host.image_build.builder import BuiltImage
    from sparkdash.host.image_build.jobs import BuildJob
    from sparkdash.host.image_build.looks import Box
    from sparkdash.host.image_build.progress import BuildStep

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be fetched and run; do nothing.")]
Again = Annotated[bool, typer.Option("--again", help="Build although the image is here and up to date.")]


def build(
    profile: ProfileName, dry_run: DryRun = False, again: Again = False, yes: Yes = False, as_json: AsJson = False
) -> None:
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
        asyncio.run(_build(profile, dry_run=dry_run, again=again, yes=yes, as_json=as_json))
    except KeyboardInterrupt:
        print_note("Interrupted; nothing is left running. The finished steps are kept: run the command again.")
        raise


async def _build(name: str, *, dry_run: bool, again: bool, yes: bool, as_json: bool) -> None:
    from sparkdash.cli.local import configured_catalog
    from sparkdash.host.image_build.jobs import image_jobs
    from sparkdash.host.image_build.looks import look_at_box
    from sparkdash.settings import load_settings

    catalog = configured_catalog()
    found = catalog.find(name)
    jobs = image_jobs(found, catalog.profiles)
    if (runtime := load_settings().runtime) != "podman":
        raise AdmissionError(
            f"`runtime` of config.toml is {runtime}; sparkdash builds with podman.",
            code="runtime_cannot_build",
            hint=f'Set runtime = "podman", or build {found.image} by hand as `build:` of the profile says.',
        )
    box = await look_at_box()
    builds = [await _planned(job, box, again=again and job is jobs[-1], commands=dry_run) for job in jobs]
    _show(builds, box, as_json=as_json, dry_run=dry_run)
    due = [one for one in builds if not one.current]
    if dry_run or not due:
        return
    _ask(due, yes=yes)
    for one in due:
        await _run(one, box, as_json=as_json)
    _release(found.name)
    if not as_json:
        _next(found)


def _next(found: Profile) -> None:
    """Name the next command: the weights, or the start."""
    from sparkdash.host.hub.local_weights import find_weights
    from sparkdash.settings import load_settings

    home = load_settings().hf_home.expanduser()
    whole = all(find_weights(ref, home).here for ref in found.weights)
    print_note(f"Next: `sparkdash {'use' if whole else 'pull'} {found.name}`{'' if whole else ' fetches the weights'}.")


async def _planned(job: BuildJob, box: Box, *, again: bool, commands: bool) -> PlannedBuild:
    from sparkdash.cli.profiles.build_page import PlannedBuild
    from sparkdash.host.image_build.build_folder import BuildFolder
    from sparkdash.host.image_build.builder import base_states, dry_commands, known_source
    from sparkdash.host.image_build.looks import local_images

    folder = BuildFolder(job.image)
    here = (await local_images([job.image])).get(job.image)
    current = here is not None and here.provenance is not None and here.provenance.digest == job.digest
    if current and not again:
        return PlannedBuild(job, (), folder.longest_took_s(), current=True)
    files = await known_source(job)
    bases = await base_states(job, files, box) if files else None
    return PlannedBuild(
        job,
        bases,
        folder.longest_took_s(),
        recipe=files.recipe.name if files else None,
        interrupted=folder.interrupted,
        commands=dry_commands(job, files) if commands else (),
    )


def _show(builds: list[PlannedBuild], box: Box, *, as_json: bool, dry_run: bool) -> None:
    from sparkdash.cli.profiles.build_page import build_lines

    if as_json:
        document = {"builds": [_facts(one) for one in builds], "box": asdict(box)}
        return print_json(document) if dry_run else print_json_line(document)
    print_text("\n".join(build_lines(builds, box, terminal_width())))
    if all(one.current for one in builds):
        print_text(f"{builds[-1].job.image} is here and up to date. `--again` builds it nevertheless.")
    return None


def _facts(one: PlannedBuild) -> dict[str, Any]:
    job = one.job
    return {
        "image": job.image,
        "profile": job.profile,
        "digest": job.digest,
        "folder": str(job.folder),
        "build": job.build.model_dump(mode="json"),
        "bases": [asdict(base) for base in one.bases] if one.bases is not None else None,
        "longest_took_s": one.longest_took_s,
        "current": one.current,
        "commands": one.commands,
    }


def _ask(due: list[PlannedBuild], *, yes: bool) -> None:
    if yes:
        return
    if not is_interactive():
        raise AdmissionError(
            f"{due[-1].job.image} is built only when you say so.",
            code="not_confirmed",
            hint="Read the page above, and add --yes.",
        )
    if not confirm("Fetch and build this?"):
        raise typer.Abort


async def _run(one: PlannedBuild, box: Box, *, as_json: bool) -> None:
    from sparkdash.host.image_build.builder import BuiltImage, build_image

    line = LiveLine()
    try:
        async with aclosing(build_image(one.job, box)) as steps:
            async for step in steps:
                if isinstance(step, BuiltImage):
                    line.clear()
                    _report(step, as_json=as_json)
                elif as_json:
                    print_json_line(asdict(step) | {"fraction": step.fraction})
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
        image = made.image
        return print_json_line(
            {
                "image": image.name,
                "id": image.id,
                "size": image.size,
                "architecture": image.architecture,
                "provenance": image.provenance,
                "log": str(made.log),
                "took_s": round(made.took_s, 1),
                "done": True,
            }
        )
    print_text(f"{made.image.name} is built, {size(made.image.size)}, after {duration(made.took_s)}. Log: {made.log}")
    return None


def _release(name: str) -> None:
    """Tell a daemon that the profile may be tried again; without one there is nothing to tell."""
    from sparkdash.client.blocking import Client

    try:
        with Client() as client:
            client.release(profile=name)
    except SparkdashError:
        return
