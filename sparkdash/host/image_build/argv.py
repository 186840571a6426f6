"""Command lines of `sparkdash build`: git's for the source, podman's for the image.

Owns: every flag of them. Must not know how they are run.

Never: `--squash` or `--no-cache` (a second run continues after the last finished layer), `-t` (the name moves to the
new image only when it has been looked at), `--pull=always` (an image that is here is the one that was looked at).

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkdash.domain.images.image_build import ImageBuild

PODMAN = "podman"

GIT = (
    "git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false",
    "-c", "core.autocrlf=false",
)  # fmt: skip
"""No program of the repository runs on this box because it is fetched."""


def git(folder: Path, *words: str) -> list[str]:
    """Run git in a folder."""
    return [*GIT, "-C", str(folder), *words]


def fetch_source(repo: str, commit: str, folder: Path) -> list[list[str]]:
    """Fetch one commit into an empty repository, without the history before it, and check it out."""
    return [
        [*GIT, "init", "--quiet", str(folder)],
        git(folder, "fetch", "--depth", "1", "--progress", "--no-tags", "--", repo, commit),
        git(folder, "checkout", "--quiet", "--force", "--detach", commit),
    ]


def fetch_submodules(folder: Path) -> list[str]:
    """Fetch the submodules of a source at the commits that it names."""
    return git(folder, "submodule", "update", "--init", "--recursive", "--depth", "1", "--progress")


def build(build: ImageBuild, context: Path, containerfile: Path, labels: Mapping[str, str], id_file: Path) -> list[str]:
    """Build an image without a name; its id goes into `id_file`."""
    return [
        PODMAN, "build",
        "--layers", "--force-rm",
        "--format", "docker",  # the other one drops HEALTHCHECK, SHELL and STOPSIGNAL
        "--iidfile", str(id_file),
        "--file", str(containerfile),
        *(["--target", build.target] if build.target else []),
        *(["--from", build.base] if build.base else []),
        *(word for key, value in build.args.items() for word in ("--build-arg", f"{key}={value}")),
        *(word for key, value in labels.items() for word in ("--label", f"{key}={value}")),
        str(context),
    ]  # fmt: skip


def add_labels(labels: Mapping[str, str], context: Path, containerfile: Path, id_file: Path) -> list[str]:
    """Label an image that a script has made; `containerfile` says only FROM that image."""
    return [
        PODMAN, "build", "--layers=false", "--force-rm", "--format", "docker", "--pull=never",
        "--iidfile", str(id_file), "--file", str(containerfile),
        *(word for key, value in labels.items() for word in ("--label", f"{key}={value}")),
        str(context),
    ]  # fmt: skip


def tag(image_id: str, image: str) -> list[str]:
    """Give an image its name; another image that had it keeps its layers and loses the name."""
    return [PODMAN, "tag", image_id, image]


def look(names: list[str]) -> list[str]:
    """Print a JSON array of the images that are here; missing ones are an error beside it."""
    return [PODMAN, "image", "inspect", *names]


def manifest(image: str) -> list[str]:
    """Print the manifest list of a registry's image, with its platforms."""
    return [PODMAN, "manifest", "inspect", image]


def facts() -> list[str]:
    """Print the architecture and the folder of images."""
    return [PODMAN, "info", "--format", "{{.Host.Arch}}\n{{.Store.GraphRoot}}"]


def working_containers() -> list[str]:
    """Print a JSON array of all containers, with those that builds work in."""
    return [PODMAN, "ps", "--all", "--external", "--no-trunc", "--format", "json"]


def remove_containers(ids: list[str]) -> list[str]:
    """Remove containers of a build that was ended."""
    return [PODMAN, "rm", "--force", *ids]


def shown(words: Sequence[str]) -> str:
    """Format a command for a log or a page."""
    return shlex.join(words)
