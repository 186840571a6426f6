"""Looks before and after a build: disk, memory, and the architecture of base images and result.

Owns: the questions to podman and the box, and the refusals. Must not know git, steps, or terminals.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdash.domain.images.image_build import ImageBuild
from sparkdash.domain.images.origin import BUILT_HERE
from sparkdash.domain.images.provenance import Provenance, read_provenance
from sparkdash.errors import AdmissionError, HostError
from sparkdash.host import meminfo
from sparkdash.host.command import run_command
from sparkdash.host.image_build import argv
from sparkdash.host.image_build.containerfile import BaseImage
from sparkdash.units import GIB, gib

LOOK_S = 20.0
"""Deadline of a question to podman; a registry is among them."""
LEAST_DISK = 2 * GIB
"""Free disk below which no build begins, whatever the profile says."""


@dataclass(frozen=True, slots=True)
class Box:
    """Facts of this box: its architecture in podman's word, the folder of images, and the free disk and memory."""

    architecture: str
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
class BaseState:
    """Base image of a build. `fits`: whether it is for this box; None while its registry has not said."""

    name: str
    here: bool
    fits: bool | None
    found: str = ""
    """Platforms that there are instead."""

    @property
    def is_short(self) -> bool:
        """Whether the name leaves its registry to the settings of the box's podman."""
        registry, slash, _ = self.name.partition("/")
        return not slash or not ("." in registry or ":" in registry or registry == "localhost")


async def look_at_box() -> Box:
    """Ask podman and the kernel.

    Raises:
        HostError: runtime_missing, and podman's own words.
    """
    done = await _podman(argv.facts())
    if done is None:
        raise HostError("podman does not answer.", code="runtime_silent", hint="Run `podman info`.")
    architecture, _, folder = done.strip().partition("\n")
    free = available = None
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
    with suppress(HostError):
        available = meminfo.read_memory().available
    return Box(architecture, Path(folder), free, available)


async def local_images(names: Iterable[str]) -> dict[str, LocalImage]:
    """Find these images on this box, by the name asked for; one question for each."""
    found = {}
    for name in dict.fromkeys(names):
        printed = await _podman(argv.look([name]))
        if printed is not None:
            with suppress(ValueError, KeyError, IndexError, TypeError):
                found[name] = _image(name, json.loads(printed)[0])
    return found


def _image(name: str, told: Mapping[str, Any]) -> LocalImage:
    labels = {str(key): str(value) for key, value in (told.get("Labels") or {}).items()}
    architecture = str(told["Architecture"])
    provenance = read_provenance(labels, created=told.get("Created"), architecture=architecture)
    return LocalImage(name, str(told["Id"]), architecture, int(told.get("Size") or 0), provenance)


async def look_at_bases(bases: Iterable[BaseImage], made: Iterable[str], box: Box) -> tuple[BaseState, ...]:
    """Look whether each base image is here and for this box; `made` are images that are built before."""
    return tuple([await _base(one, box) for one in bases if one.name not in set(made)])


async def _base(base: BaseImage, box: Box) -> BaseState:
    if base.platform and base.platform.split("/")[1:2] != [box.architecture]:
        return BaseState(base.name, here=False, fits=False, found=base.platform)
    here = (await local_images([base.name])).get(base.name)
    if here is not None:
        return BaseState(base.name, True, here.architecture == box.architecture, here.architecture)
    if base.name.startswith(BUILT_HERE):
        return BaseState(base.name, here=False, fits=None)
    printed = await _podman(argv.manifest(base.name))
    platforms: set[str] = set()
    with suppress(ValueError, KeyError, TypeError):
        platforms = {one["platform"]["architecture"] for one in json.loads(printed or "{}").get("manifests", ())}
    fits = box.architecture in platforms if platforms else None
    return BaseState(base.name, here=False, fits=fits, found=", ".join(sorted(platforms)))


def check_room(build: ImageBuild, image: str, box: Box, *, resumed: bool) -> None:
    """Refuse a build for which disk or memory is too small. A resumed one has a part of its disk already.

    Raises:
        HostError: disk_full.
        AdmissionError: memory_short.
    """
    needed = LEAST_DISK if resumed else max(LEAST_DISK, int((build.disk_gib or 0) * GIB))
    if box.free_disk is not None and box.free_disk < needed:
        raise HostError(
            f"Building {image} needs {gib(needed)} of disk; {gib(box.free_disk)} are free in {box.images}.",
            code="disk_full",
            hint="`podman image prune` removes images without a name; `podman system df` shows what is large.",
        )
    memory = int((build.memory_gib or 0) * GIB)
    if box.available is not None and box.available < memory:
        raise AdmissionError(
            f"Compiling {image} needs {gib(memory)} of memory; {gib(box.available)} are available.",
            code="memory_short",
            hint="Stop the engines first: `sparkdash stop --all`.",
        )


def check_bases(states: Iterable[BaseState], box: Box) -> None:
    """Refuse a base image for another processor, and one that is nowhere.

    Raises:
        HostError: image_architecture, image_missing.
    """
    for one in states:
        if one.name.startswith(BUILT_HERE) and not one.here:
            raise HostError(
                f"The base image {one.name} is not on this box, and no registry has it.",
                code="image_missing",
                hint="Name it under `needs` of the profile's `build:`, so that it is built first.",
            )
        if one.fits is False:
            raise HostError(
                f"The base image {one.name} is for {one.found}; this box is {box.architecture}.",
                code="image_architecture",
                hint=f"Name one for {box.architecture} with `base` under `build:` of the profile.",
            )


def check_result(image: str, made: LocalImage, box: Box) -> None:
    """Refuse a result for another processor. Raises HostError: image_architecture."""
    if made.architecture != box.architecture:
        raise HostError(
            f"{image} was built for {made.architecture}; this box is {box.architecture}. Its name was not given.",
            code="image_architecture",
            hint=f"Look at the FROM lines: one of them is not for {box.architecture}.",
        )


async def _podman(words: list[str]) -> str | None:
    """Run a question; None if podman has no answer. Raises HostError: runtime_missing."""
    try:
        done = await run_command(words, deadline_s=LOOK_S)
    except TimeoutError:
        return None
    except FileNotFoundError:
        raise HostError(
            "podman is missing.", code="runtime_missing", hint="Install it: sudo apt install podman."
        ) from None
    return done.out if done.code == 0 or done.out.strip().startswith("[{") else None
