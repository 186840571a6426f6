"""Rules about the container: images, and runtime flags in the wrong place.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkdash.domain.profile import Profile
from sparkdash.rules.rule import Hit, Rule, Severity, flag_path

FOREIGN = re.compile(r"(?:^|[-_./:])(?:amd64|x86[-_]64)(?:$|[-_./:])", re.IGNORECASE)
"""An image reference that names the other architecture; a Spark is arm64."""

MOVING = ("latest", "nightly", "main", "dev")
"""Tags that move from image to image, also as the last part of a tag."""

RUNTIME_FLAGS = ("device", "gpus", "hooks-dir", "privileged", "network", "security-opt", "ulimit")
"""Flags of podman and docker that no engine has."""


def _ipc(profile: Profile) -> Iterator[Hit]:
    path = flag_path(profile, "ipc", "shm-size")
    if path:
        text = "podman's, not the engine's; podman refuses --ipc=host together with --shm-size"
        yield Hit(path, text, "Remove it; shared memory is `shm_size: 8g`, beside args.")


def _restart(profile: Profile) -> Iterator[Hit]:
    path = flag_path(profile, "restart")
    if path:
        yield Hit(path, "a restart policy would start an engine behind sparkdash's back", "Remove it.")


def _runtime(profile: Profile) -> Iterator[Hit]:
    for name in RUNTIME_FLAGS:
        if path := flag_path(profile, name):
            yield Hit(
                path, "is a flag of podman or docker, not of the engine", "Remove it: sparkdash sets the container up."
            )


def _arch(profile: Profile) -> Iterator[Hit]:
    if profile.image and FOREIGN.search(profile.image):
        yield Hit(("image",), "is not for arm64, which a Spark is", "Name an image built for linux/arm64.")


def _unpinned(profile: Profile) -> Iterator[Hit]:
    image = profile.image or ""
    if not image or "@sha256:" in image or image.startswith("localhost/"):
        return  # what was built here changes only when its owner builds it again
    tag = image.rsplit("/", 1)[-1].partition(":")[2] or "latest"
    if re.split(r"[-_.]", tag)[-1] in MOVING or tag.split("-", 1)[0] in MOVING:
        yield Hit(("image",), f"the tag {tag!r} moves", "Pin it: `image: name@sha256:…` (`podman image inspect`).")


RULES = (
    Rule(
        "ipc-and-shm",
        Severity.ERROR,
        "--ipc=host with --shm-size",
        "exit code 125 from podman 4.3.1; docker accepts it",
        _ipc,
    ),
    Rule(
        "restart-policy",
        Severity.ERROR,
        "a container that restarts by itself",
        "two engines then meet in one memory",
        _restart,
    ),
    Rule(
        "runtime-flag", Severity.ERROR, "a flag of the container runtime among the engine's", "copied recipes", _runtime
    ),
    Rule("image-arch", Severity.ERROR, "an image that is not arm64", "a GB10 is aarch64", _arch),
    Rule(
        "unpinned-image",
        Severity.WARNING,
        "an image that is another one tomorrow",
        "flags are image-specific: vLLM blog, 2026-06-01",
        _unpinned,
    ),
)
