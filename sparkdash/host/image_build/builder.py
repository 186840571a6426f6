"""Building one image: source, looks, `podman build`, a look at the result, its name.

Owns: the order, the log, and the end of everything that was begun. Must not know profiles' files or terminals. Rule:
the image's name moves only to a result that has been looked at, so a failed build leaves the older image in use.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from sparkdash import __version__
from sparkdash.domain.images.provenance import build_labels
from sparkdash.errors import EngineError, HostError
from sparkdash.host.command import run_command, stdout_lines
from sparkdash.host.image_build import argv, source
from sparkdash.host.image_build.build_folder import BuildFolder
from sparkdash.host.image_build.containerfile import base_images
from sparkdash.host.image_build.jobs import BuildJob
from sparkdash.host.image_build.kept import kept_child
from sparkdash.host.image_build.leftovers import remove_leftovers
from sparkdash.host.image_build.looks import (
    BaseState,
    Box,
    LocalImage,
    check_bases,
    check_result,
    check_room,
    local_images,
    look_at_bases,
)
from sparkdash.host.image_build.progress import BuildReader, BuildStep
from sparkdash.host.image_build.source import BuildSource

TAG_S = 30.0


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """Result of a build, with its log."""

    image: LocalImage
    log: Path
    took_s: float


async def known_source(job: BuildJob) -> BuildSource | None:
    """Find the source if it is on this box already; None for a repository that was not fetched yet.

    Raises:
        ProfileError: source_missing.
    """
    folder = BuildFolder(job.image)
    if job.build.repo is None:
        return source.locate(job.build, job.folder)
    if not await source.is_fetched(folder.source, job.build.commit or ""):
        return None
    return source.locate(job.build, folder.source)


def dry_commands(job: BuildJob, files: BuildSource | None) -> tuple[str, ...]:
    """Format the commands of a build, in their order; without a source the Containerfile's place is a guess."""
    folder, build = BuildFolder(job.image), job.build
    fetches = argv.fetch_source(build.repo, build.commit or "", folder.source) if build.repo and files is None else []
    root = job.folder if build.repo is None else folder.source
    context = root / (build.context or ".")
    recipe = files.recipe if files else context / (build.script or build.containerfile or source.NAMES[0])
    if build.script:
        return (*map(argv.shown, fetches), argv.shown([f"IMAGE={job.image}", str(recipe)]))
    digest = files.recipe_digest if files else ""
    labels = build_labels(build, profile=job.profile, digest=job.digest, containerfile=digest, version=__version__)
    made = argv.build(build, context, recipe, labels, folder.id_file)
    return (*map(argv.shown, fetches), argv.shown(made))


async def base_states(job: BuildJob, files: BuildSource, box: Box) -> tuple[BaseState, ...]:
    """Look at the base images of a Containerfile; a script's are unknown."""
    if job.build.script:
        return ()
    bases = base_images(files.text(), job.build.args, first=job.build.base)
    return await look_at_bases(bases, job.build.needs, box)


async def build_image(job: BuildJob, box: Box) -> AsyncGenerator[BuildStep | BuiltImage]:
    """Build an image; yield each step, and the result at the end. A second call continues after the last layer.

    Raises:
        HostError: build_runs, disk_full, image_architecture, source_unreachable, and podman's own words.
        AdmissionError: memory_short.
        ProfileError: the source is not as the profile says.
        EngineError: build_failed, with the last lines of the log.
    """
    folder = BuildFolder(job.image)
    with folder.held(job.image) as interrupted:
        began = time.time()
        if interrupted is not None:
            await remove_leftovers(interrupted)
        check_room(job.build, job.image, box, resumed=interrupted is not None)
        log = folder.new_log()
        with log.open("w", buffering=1) as written:
            async for step in _source(job, folder, written):
                yield step
            files = source.locate(job.build, job.folder if job.build.repo is None else folder.source)
            check_bases(await base_states(job, files, box), box)
            async for step in _build(job, files, folder, written):
                yield step
        made = await _named(job, box, folder)
        took = time.time() - began
        folder.finish(took)
        yield BuildStep(job.image, "built", done=True)
        yield BuiltImage(made, log, took)


async def _source(job: BuildJob, folder: BuildFolder, log: TextIO) -> AsyncIterator[BuildStep]:
    if job.build.repo is None:
        return
    yield BuildStep(job.image, f"fetches {job.build.origin}")
    async for line in source.fetch(job.build, folder.source):
        log.write(line + "\n")
        yield BuildStep(job.image, line)


async def _build(job: BuildJob, files: BuildSource, folder: BuildFolder, log: TextIO) -> AsyncIterator[BuildStep]:
    labels = build_labels(
        job.build, profile=job.profile, digest=job.digest, containerfile=files.recipe_digest, version=__version__
    )
    if job.build.script is None:
        words = argv.build(job.build, files.context, files.recipe, labels, folder.id_file)
        async for step in _run(job, words, folder, log, files.context):
            yield step
        return
    variables = {"IMAGE": job.image, **job.build.args}
    async for step in _run(job, [str(files.recipe)], folder, log, files.context, variables):
        yield step
    only_from = folder.path / "labels.containerfile"
    only_from.write_text(f"FROM {job.image}\n")
    empty = folder.path / "empty"
    empty.mkdir(exist_ok=True)
    async for step in _run(job, argv.add_labels(labels, empty, only_from, folder.id_file), folder, log, empty):
        yield step


async def _run(
    job: BuildJob,
    words: Sequence[str],
    folder: BuildFolder,
    log: TextIO,
    cwd: Path,
    variables: dict[str, str] | None = None,
) -> AsyncIterator[BuildStep]:
    """Run a program to its end, its output into the log. Raises EngineError: build_failed."""
    reader = BuildReader(job.image)
    folder.id_file.unlink(missing_ok=True)
    log.write(f"$ {argv.shown(words)}\n")
    began, code = time.time(), None
    try:
        async with kept_child(words, cwd=cwd, env={**os.environ, "LC_ALL": "C", **(variables or {})}) as process:
            async for line in stdout_lines(process):
                log.write(line + "\n")
                if (step := reader.feed(line)) is not None:
                    yield step
            code = await process.wait()
    finally:
        if code != 0:
            await asyncio.shield(remove_leftovers(began))
    if code:
        raise _failed(job, reader, code, log.name)


async def _named(job: BuildJob, box: Box, folder: BuildFolder) -> LocalImage:
    image_id = folder.id_file.read_text().strip()
    found = (await local_images([image_id])).get(image_id)
    if found is None:
        raise HostError(f"podman built {job.image} but does not show it.", code="build_failed")
    check_result(job.image, found, box)
    done = await run_command(argv.tag(image_id, job.image), deadline_s=TAG_S)
    if done.code:
        raise HostError(f"{job.image} was built but cannot be named: {done.err.strip()}.", code="build_failed")
    return replace(found, name=job.image)


def _failed(job: BuildJob, reader: BuildReader, code: int, log: str) -> EngineError:
    step = reader.step
    at = f" at step {step.number}{f' of {step.of}' if step.of else ''}: {step.text}" if step.number else ""
    full = any("no space left on device" in line for line in reader.tail)
    return EngineError(
        f"The build of {job.image} failed{at}.",
        code="disk_full" if full else "build_failed",
        container_exit=code,
        log_tail=tuple(reader.tail),
        hint=(
            f"The disk is full; `podman image prune` frees some. The whole log is {log}."
            if full
            else f"The whole log is {log}. A second `sparkdash build` continues after the last finished step."
        ),
    )
