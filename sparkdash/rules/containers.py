"""Rules about the container: image, runtime flags that strayed into a profile, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sparkdash.catalog.document import KeyPath
from sparkdash.domain.profile import Profile
from sparkdash.rules.rule import Hit, Level, Rule, flag

FOREIGN = re.compile(r"(?:^|[-_./:])(?:amd64|x86[-_]64)(?:$|[-_./:])", re.IGNORECASE)
"""An image reference that names the other architecture; a Spark is arm64."""

TOKEN = re.compile(r"(?:^|[^A-Za-z0-9])(?:hf_|sk-|nvapi-|ghp_|github_pat_)[A-Za-z0-9_-]{16,}")
"""Tokens of Hugging Face, OpenAI and its like, NVIDIA, GitHub: their prefixes."""

MOVING = ("latest", "nightly", "main", "dev")
"""Tags that name another image tomorrow, also as the last part of a tag."""

RUNTIME_FLAGS = ("device", "gpus", "hooks-dir", "privileged", "network", "security-opt", "ulimit")
"""Of podman and docker; no engine has them."""


def _ipc(profile: Profile) -> Iterator[Hit]:
    path = flag(profile, "ipc", "shm-size")
    if path:
        text = "podman's, not the engine's; podman refuses --ipc=host together with --shm-size"
        yield Hit(path, text, "Remove it; shared memory is `shm_size: 8g`, beside args.")


def _restart(profile: Profile) -> Iterator[Hit]:
    path = flag(profile, "restart")
    if path:
        yield Hit(path, "a restart policy would start an engine behind sparkdash's back", "Remove it.")


def _runtime(profile: Profile) -> Iterator[Hit]:
    for name in RUNTIME_FLAGS:
        if path := flag(profile, name):
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


def _secret(profile: Profile) -> Iterator[Hit]:
    for key in ("env", "args", "request", "command"):
        for path, text in _texts((key,), getattr(profile, key)):
            if TOKEN.search(text):
                yield Hit(path, "looks like a secret", _by_reference(path))


def _by_reference(path: KeyPath) -> str:
    name = path[1] if path[0] == "env" else "NAME"
    return f"Write `env_from: [{name}]`, set it in the daemon's environment, and revoke this one."


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts((*path, key), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts((*path, index), item)


RULES = (
    Rule("ipc-and-shm", Level.ERROR, "--ipc=host with --shm-size", "exit code 125 from podman 4.3.1; docker accepts it", _ipc),
    Rule("restart-policy", Level.ERROR, "a container that restarts by itself", "two engines then meet in one memory", _restart),
    Rule("runtime-flag", Level.ERROR, "a flag of the container runtime among the engine's", "copied recipes", _runtime),
    Rule("image-arch", Level.ERROR, "an image that is not arm64", "a GB10 is aarch64", _arch),
    Rule(
        "unpinned-image", Level.WARNING, "an image that is another one tomorrow",
        "flags are image-specific: vLLM blog, 2026-06-01", _unpinned,
    ),
    Rule("secret-literal", Level.ERROR, "a token in a file", "argv and labels are visible to all on the box", _secret, always=True),
)  # fmt: skip
