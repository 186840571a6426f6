"""Images built on this box by `build:` of a profile: looks before, the build with its steps, the result.

podman and docker fetch a repository by themselves, continue after the last finished layer, and name the image at the
end alone, so that a failed build leaves the older image in use.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparkdash import __version__, paths
from sparkdash.domain.images import ImageBuild, Provenance, build_digest, build_labels, read_provenance
from sparkdash.domain.profile import Profile
from sparkdash.errors import AdmissionError, EngineError, HostError
from sparkdash.host import meminfo
from sparkdash.host.command import begin_child, end_child, run_command, stdout_lines
from sparkdash.host.podman import answers, build_keeper
from sparkdash.host.podman.argv import DOCKER, PODMAN
from sparkdash.paths import PYTHON, read_small_file
from sparkdash.units import GIB, gib, printable

LOOK_S = 20.0
"""Deadline of a question to podman or docker."""
END_S = 15.0
"""Longest wait for the processes of a build that is ended."""
LEAST_DISK = 2 * GIB
"""Free disk below which no build begins, whatever the profile says."""
TAIL = 40
"""Lines that a failure shows."""
UNFINISHED = "running.json"
HASHED_BYTES = 16 << 20
"""Largest file beside a profile whose content is compared; of larger ones the size is."""

_STEP = re.compile(r"(?:\[(\d+)/(\d+)\] )?STEP (\d+)(?:/(\d+))? ?: (.*)", re.IGNORECASE)
"""A step as podman prints it, and docker's older builder: `STEP 1/4: FROM a`, `Step 1/4 : FROM a`."""
_BUILDKIT_STEP = re.compile(r"#\d+ \[(?:.* )?(\d+)/(\d+)\] (.*)")
"""A step of docker's newer builder, `#5 [stage-1 2/3] RUN make`; stages go side by side and have no number."""
_CACHED = re.compile(r"(?:-->| --->) Using cache|#\d+ CACHED")


@dataclass(frozen=True, slots=True)
class BuildJob:
    """Image to build."""

    image: str
    profile: str
    """Profile whose file has the `build:`."""
    build: ImageBuild
    folder: Path
    digest: str
    program: str = PODMAN


@dataclass(frozen=True, slots=True)
class Box:
    """Facts of this box: the folder of images, and the free disk and memory."""

    images: Path
    free_disk: int | None
    available: int | None


@dataclass(frozen=True, slots=True)
class LocalImage:
    """Image on this box."""

    name: str
    id: str
    architecture: str
    size: int
    provenance: Provenance | None


@dataclass(frozen=True, slots=True)
class BuildStep:
    """A step of a build. `stage` and `number` count from 1; `of` and `stages` are None where nobody says."""

    image: str
    text: str
    number: int | None = None
    of: int | None = None
    stage: int = 1
    stages: int = 1
    cached: bool = False
    done: bool = False

    @property
    def fraction(self) -> float | None:
        """Share of the steps that are over; steps differ in length, so this is no share of the time."""
        if self.done:
            return 1.0
        if self.number is None or not self.of:
            return None
        return (self.stage - 1 + (self.number - 1) / self.of) / self.stages


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """Result of a build, with its log."""

    image: LocalImage
    log: Path
    took_s: float


def build_job(profile: Profile, profiles: Mapping[str, Profile], program: str = PODMAN) -> BuildJob:
    """Return the build. Raises AdmissionError: nothing_to_build, build_unavailable, runtime_cannot_build."""
    build = profile.build
    if profile.image is None or build is None:
        raise AdmissionError(
            f"{profile.name} has no `build:`.",
            code="nothing_to_build",
            hint=f"`sparkdash pull {profile.name}` fetches what it needs." if profile.image else None,
        )
    if build.unavailable:
        raise AdmissionError(
            f"{profile.image} cannot be built: {build.unavailable}.",
            code="build_unavailable",
            hint=f"Use {profile.nearest} instead." if profile.nearest else None,
        )
    if program not in (PODMAN, DOCKER) or (program == DOCKER and build.base):
        raise AdmissionError(
            f"`runtime` of config.toml is {program}, which cannot build {profile.image}.",
            code="runtime_cannot_build",
            hint='Set runtime = "podman"; docker builds what has no `base` under `build:`.',
        )
    owner = profiles.get(profile.built_by or "", profile)
    folder = Path(owner.source.rpartition(":")[0]).parent
    digest = build_digest(build, _local_files(folder, build))
    return BuildJob(profile.image, owner.name, build, folder, digest, program)


def current_digests(profiles: Iterable[Profile]) -> dict[str, str]:
    """Return the digest of each image that a profile can build; an image whose build has a mistake is left out."""
    known = {one.name: one for one in profiles}
    found: dict[str, str] = {}
    for profile in known.values():
        if profile.build is not None and profile.image is not None and profile.image not in found:
            with suppress(AdmissionError, OSError):
                found[profile.image] = build_job(profile, known).digest
    return found


def _local_files(folder: Path, build: ImageBuild) -> dict[str, str]:
    """Digest the files beside a profile that its image is built from; empty for a repository, which has its commit."""
    if build.repo or build.context is None:
        return {}
    root, found = folder / build.context, {}
    for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        size = path.stat().st_size
        content = read_small_file(path, HASHED_BYTES) if size <= HASHED_BYTES else str(size).encode()
        found[str(path.relative_to(root))] = hashlib.sha256(content).hexdigest()
    return found


def build_command(job: BuildJob) -> list[str]:
    """Return the command line. Never `--squash` or `--no-cache`: a second run continues after the last layer."""
    build = job.build
    beside = job.folder / (build.context or ".")
    # docker looks for a Dockerfile alone
    file = build.containerfile or ("Containerfile" if (beside / "Containerfile").is_file() and not build.repo else None)
    labels = build_labels(build, profile=job.profile, digest=job.digest, version=__version__)
    return [
        job.program, "build", "--force-rm",
        # podman's own format drops HEALTHCHECK, SHELL and STOPSIGNAL
        *(["--layers", "--format", "docker"] if job.program == PODMAN else []),
        "--tag", job.image,
        # of a repository a relative name is looked for in its checkout
        *(["--file", str((Path() if build.repo else beside) / file)] if file else []),
        *(["--target", build.target] if build.target else []),
        *(["--from", build.base] if build.base else []),
        *(word for key, value in build.args.items() for word in ("--build-arg", f"{key}={value}")),
        *(word for key, value in labels.items() for word in ("--label", f"{key}={value}")),
        _repository(build) if build.repo else str(beside),
    ]  # fmt: skip


def _repository(build: ImageBuild) -> str:
    """Return the word for a folder of a repository: `https://host/repository.git#commit:folder`."""
    address = f"{(build.repo or '').removesuffix('/').removesuffix('.git')}.git"
    return f"{address}#{build.commit}{f':{build.context}' if build.context else ''}"


async def look_at_box(program: str = PODMAN) -> Box:
    """Ask podman or docker, and the kernel. Raises HostError: runtime_missing, runtime_silent."""
    folder = await _ask(
        program, "info", "--format", "{{.Store.GraphRoot}}" if program == PODMAN else "{{.DockerRootDir}}"
    )
    if folder is None:
        raise HostError(f"{program} does not answer.", code="runtime_silent", hint=f"Run `{program} info`.")
    free = available = None
    with suppress(OSError):
        free = shutil.disk_usage(folder.strip()).free
    with suppress(HostError):
        available = meminfo.read_memory().available
    return Box(Path(folder.strip()), free, available)


async def local_images(names: Iterable[str], program: str = PODMAN) -> dict[str, LocalImage]:
    """Find these images on this box, by the name asked for; one question for each."""
    found = {}
    for name in dict.fromkeys(names):
        printed = await _ask(program, "image", "inspect", name)
        if printed is not None:
            with suppress(ValueError, KeyError, IndexError, TypeError):
                found[name] = _image(name, json.loads(printed)[0])
    return found


def _image(name: str, told: Mapping[str, Any]) -> LocalImage:
    labels = {str(key): str(value) for key, value in (told["Config"].get("Labels") or {}).items()}
    architecture = str(told["Architecture"])
    provenance = read_provenance(labels, created=told.get("Created"), architecture=architecture)
    return LocalImage(name, str(told["Id"]), architecture, int(told.get("Size") or 0), provenance)


async def _ask(program: str, *words: str) -> str | None:
    """Run a question; None if it has no answer. Raises HostError: runtime_missing."""
    try:
        done = await run_command((program, *words), deadline_s=LOOK_S)
    except TimeoutError:
        return None
    except OSError as error:
        raise answers.not_begun(program, error) from None
    return done.out if done.code == 0 else None


def check_room(job: BuildJob, box: Box) -> None:
    """Refuse a build for which disk or memory is too small. A resumed one has a part of its disk already.

    Raises HostError disk_full, AdmissionError memory_short.
    """
    needed = max(LEAST_DISK, 0 if is_interrupted(job.image) else int((job.build.disk_gib or 0) * GIB))
    if box.free_disk is not None and box.free_disk < needed:
        raise HostError(
            f"Building {job.image} needs {gib(needed)} of disk; {gib(box.free_disk)} are free in {box.images}.",
            code="disk_full",
            hint=f"`{job.program} image prune` removes images without a name; "
            f"`{job.program} system df` shows what is large.",
        )
    memory = int((job.build.memory_gib or 0) * GIB)
    if box.available is not None and box.available < memory:
        raise AdmissionError(
            f"Compiling {job.image} needs {gib(memory)} of memory; {gib(box.available)} are available.",
            code="memory_short",
            hint="Stop the engines first: `sparkdash stop --all`.",
        )


async def build_image(job: BuildJob, box: Box) -> AsyncGenerator[BuildStep | BuiltImage]:
    """Build an image; yield each step, and the result at the end. A second call continues after the last layer.

    Raises:
        HostError: build_runs, disk_full, and podman's own words.
        AdmissionError: memory_short.
        EngineError: build_failed, with the last lines of the log.
    """
    began = time.time()
    with _held(job.image):
        check_room(job, box)
        unfinished, log = _folder(job.image) / UNFINISHED, _folder(job.image) / "build.log"
        unfinished.touch()
        async for step in _run(job, log):
            yield step
        made = (await local_images([job.image], job.program)).get(job.image)
        if made is None:
            raise HostError(f"{job.image} was built and is not in {job.program}'s store.", code="build_failed")
        unfinished.unlink(missing_ok=True)
        yield BuildStep(job.image, "built", done=True)
        yield BuiltImage(made, log, time.time() - began)


async def _run(job: BuildJob, log: Path) -> AsyncIterator[BuildStep]:
    """Run the program to its end, its output into the log. Raises EngineError: build_failed."""
    command, reader = build_command(job), BuildReader(job.image)
    with log.open("w", buffering=1) as written:
        written.write(f"$ {' '.join(command)}\n")
        async with kept_child(command, _folder(job.image)) as process:
            async for line in stdout_lines(process):
                written.write(line + "\n")
                if (step := reader.feed(line)) is not None:
                    yield step
            code = await process.wait()
    if code:
        raise _failed(job, reader, code, log)


def _failed(job: BuildJob, reader: "BuildReader", code: int, log: Path) -> EngineError:
    step = reader.step
    at = f" at step {step.number}{f' of {step.of}' if step.of else ''}: {step.text}" if step.number else ""
    full = any("no space left on device" in line for line in reader.tail)
    again = "A second `sparkdash build` continues after the last step."
    return EngineError(
        f"The build of {step.image} failed{at}.",
        code="disk_full" if full else "build_failed",
        container_exit=code,
        log_tail=tuple(reader.tail),
        hint=f"The whole log is {log}. {f'`{job.program} image prune` frees disk.' if full else again}",
    )


class BuildReader:
    """Reads the lines that a build prints: podman 4 and 5, docker's two builders."""

    def __init__(self, image: str) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.step = BuildStep(image, "begins")

    def feed(self, line: str) -> BuildStep | None:
        """Take a line; return the step if it began with it or came from the cache."""
        line = printable(line)
        self.tail.append(line)
        if found := _STEP.match(line):
            stage, stages, number, of, text = found.groups()
            self.step = BuildStep(
                self.step.image, text, int(number), int(of) if of else None, int(stage or 1), int(stages or 1)
            )
            return self.step
        if found := _BUILDKIT_STEP.match(line):
            number, of, text = found.groups()
            self.step = BuildStep(self.step.image, text, int(number), int(of))
            return self.step
        if _CACHED.match(line) and not self.step.cached:
            self.step = replace(self.step, cached=True)
            return self.step
        return None


@asynccontextmanager
async def kept_child(words: Sequence[str], cwd: Path | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program for the length of the block; stdout is a pipe with both its outputs.

    At the end of the block, or of this process however it ends, nothing that the program began is left.
    """
    process = await begin_child(
        [*PYTHON, build_keeper.__file__, *words],
        stdin=asyncio.subprocess.PIPE,  # the kernel closes it however this process ends
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
    )
    assert process.stdin is not None  # noqa: S101 - opened as a pipe above
    try:
        yield process
    finally:
        process.stdin.close()
        await asyncio.shield(_ended(process))


async def _ended(process: asyncio.subprocess.Process) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
    await end_child(process)


def _folder(image: str) -> Path:
    name = "".join(letter if letter.isalnum() or letter in ".-_" else "-" for letter in image)
    return paths.state_dir() / "builds" / name.removeprefix("localhost-")


def is_interrupted(image: str) -> bool:
    """Whether an earlier build did not finish: its layers are on the disk."""
    return (_folder(image) / UNFINISHED).exists()


@contextmanager
def _held(image: str) -> Iterator[None]:
    """Hold the folder for one build. Raises HostError: build_runs."""
    folder = _folder(image)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = f"Its log is in {folder}."
            raise HostError(f"{image} is being built already.", code="build_runs", hint=hint) from None
        yield
