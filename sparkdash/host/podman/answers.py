"""PURE: what podman and docker say, turned into our words.

Owns: the shape of `inspect`, and which complaint means what. Must not know how the programs are run.
Shapes seen: podman 4.3.1 run here; 4.9 and 5 from their sources; docker from its API's documentation.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

from sparkdash.domain.container import ContainerInfo, ContainerSpec, ContainerState
from sparkdash.errors import HostError

_STATES = {
    "created": ContainerState.CREATED,
    "configured": ContainerState.CREATED,
    "initialized": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "stopping": ContainerState.RUNNING,
    "paused": ContainerState.RUNNING,
    "restarting": ContainerState.RUNNING,
    "stopped": ContainerState.EXITED,
    "exited": ContainerState.EXITED,
    "removing": ContainerState.EXITED,
    "dead": ContainerState.EXITED,
}
"""Both programs' words. A paused container still holds its memory and port: it counts as running."""

_ID = re.compile(r"[0-9a-f]{64}")
_NOISE = re.compile(r"time=\S+ level=|Run 'docker |Trying to pull ")
"""podman's log lines, docker's advice to read its help, and what a pull begins with."""
_PREFIX = re.compile(r"(docker: )?(Error: |Error response from daemon: )?")
_WORDS_LIMIT = 400

_ROOTLESS = re.compile(r"cannot clone|\bre-?exec|newuidmap", re.IGNORECASE)
"""A user's podman that cannot make its user namespace: the words name no cause (podman#24642)."""
_STALE = re.compile(r"stat\b.*\blib(?:cuda|nv|\w+_nvidia)[\w-]*\.so[.\d]*\W.*no such file", re.IGNORECASE)
"""A driver's library, by its version, that the CDI description names and an update has replaced (podman #26233, #23935)."""
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP})
_RENEW = (
    "The CDI description is older than the driver: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or "
    "`sudo systemctl restart nvidia-cdi-refresh`."
)


def containers(inspected: str) -> list[ContainerInfo]:
    """The containers in the output of `inspect`; none in an empty one. Raises ValueError when it is not that."""
    found = json.loads(inspected or "[]")
    return [_container(each) for each in found or []]


def images(printed: str, names: Iterable[str]) -> dict[str, int]:
    """Bytes by name, of what `argv.images` prints; lines of another shape are passed over."""
    found: list[tuple[int, list[str], list[str]]] = []
    for line in printed.splitlines():
        with suppress(ValueError):
            size, tags, digests = json.loads(line)
            found.append((int(size), tags or [], digests or []))
    here = {name: [size for size, tags, digests in found if _is_called(name, tags, digests)] for name in names}
    return {name: sizes[0] for name, sizes in here.items() if sizes}


def _is_called(name: str, tags: list[str], digests: list[str]) -> bool:
    """Is this the image's name? podman writes the registry in front of a tag, docker leaves its own out."""
    if "@" in name:
        return any(digest.endswith(name[name.index("@") :]) for digest in digests)
    full = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    return any(tag == full or tag.endswith(f"/{full}") or full.endswith(f"/{tag}") for tag in tags)


def gone(words: str) -> bool:
    """Does this complaint mean that there is no such container (any more)?"""
    return "no such container" in words.lower()


def no_such_image(words: str) -> bool:
    """Does it mean that an image is not here?"""
    return _any(words.lower(), "image not known", "no such image", "no such object")


def not_running(words: str) -> bool:
    """Does it mean that the container has ended, or is gone?"""
    lowered = words.lower()
    return gone(words) or "running containers" in lowered or "is not running" in lowered


def unreachable(words: str) -> bool:
    """Does it mean that docker's daemon does not run, or does not let us in?"""
    return _any(words.lower(), "cannot connect to the docker daemon", "permission denied while trying to connect")


def pids(top: str) -> set[int]:
    """Process ids in the output of `top`, headline left out."""
    return {int(word) for word in top.split() if word.isdigit()}


def container_id(printed: str) -> str | None:
    """Parse the full id that a detached `run` printed last; None when it printed none."""
    word = (printed.split() or [""])[-1]
    return word if _ID.fullmatch(word) else None


def exit_code(waited: str) -> int | None:
    """The exit code that `wait` printed last; None when it printed none."""
    word = (waited.split() or [""])[-1]
    return int(word) if re.fullmatch(r"-?\d+", word) else None


def last_words(complaint: str) -> str:
    """What a program said when it failed, shortened: without its noise when it said more than that."""
    said = [line.strip() for line in complaint.splitlines() if line.strip()]
    plain = [line for line in said if not _NOISE.match(line)] or said
    text = _PREFIX.sub("", " ".join(plain[-3:]), count=1).rstrip(".")
    return text if len(text) <= _WORDS_LIMIT else text[:_WORDS_LIMIT] + "…"


def runtime_missing(program: str, found: str) -> HostError:
    """podman or docker cannot be used at all."""
    hints = {
        "podman": "Install it (`sudo apt-get install podman`), or set runtime = \"docker\" or \"process\" in config.toml.",
        "docker": "Install and start docker and join its group (`sudo usermod -aG docker $USER`), or set runtime = \"podman\".",
    }  # fmt: skip
    return HostError(f"{program} cannot be used: {found}.", code="runtime_missing", hint=hints.get(program))


def not_begun(program: str, error: OSError) -> HostError:
    """It could not be started: it is not there, or the box has no memory or descriptor for it."""
    words = error.strerror or str(error)
    if error.errno in _NOT_THERE:
        return runtime_missing(program, words)
    return HostError(
        f"{program} cannot be started: {words}.",
        code="host_not_ready",
        hint="This passes once the box has what it lacks: see `free -h`, and `sparkdash doctor`.",
    )


def too_slow(program: str, verb: str, seconds: float, memory: str) -> HostError:
    """A call that passed its deadline; `memory` is what was measured of the box's memory then."""
    return HostError(
        f"`{program} {verb}` gave no answer for {seconds:.0f} s.",
        code="runtime_timeout",
        hint=f"See whether `{program} ps` answers. {memory}".rstrip(),
    )


def not_fetched(program: str, image: str, words: str) -> HostError:
    """A pull failed, by its own words."""
    hint = _source(program, image, words)
    hint = hint or "See whether this box reaches that registry, and whether the profile's `image` is right."
    return HostError(f"{program} could not fetch {image}: {words}.", code="image_missing", hint=hint)


def image_missing(program: str, image: str, words: str) -> HostError:
    """The image is not here."""
    hint = _source(program, image, words) or f"Fetch it with `{program} pull {image}`, or mend the profile's image."
    return HostError(f"The image {image} is not on this box: {words}.", code="image_missing", hint=hint)


def _source(program: str, image: str, words: str) -> str | None:
    """How to get at an image that is not simply to be fetched."""
    if re.search(r"unauthorized|authentication required|access denied|denied:", words, re.IGNORECASE):
        return f"Its registry wants a login: `{program} login {image.split('/', 1)[0]}`."
    if re.search(r"no image found in (?:image index|manifest list) for|no matching manifest for", words):
        return "It is not made for this box's processor: name a tag or an image that is (for a Spark linux/arm64)."
    if image.startswith("localhost/"):
        return f"It is an image of your own: build it with `{program} build -t {image} …`."
    return None


def start_failed(program: str, spec: ContainerSpec, complaint: str) -> HostError:
    """Why `run` failed, by its own words."""
    words = last_words(complaint)
    lowered = complaint.lower()
    if _any(lowered, "image not known", "no such image", "unable to find image"):
        return image_missing(program, spec.image or "", words)
    if _STALE.search(complaint):
        return HostError(_start_message(spec, words), code="cdi_stale", hint=_RENEW)
    for code, patterns, hint in _COMPLAINTS:
        if _any(lowered, *patterns):
            return HostError(_start_message(spec, words), code=code, hint=hint)
    return failed(program, "run", complaint)


def failed(program: str, verb: str, complaint: str) -> HostError:
    """Any other failure, in the program's own words."""
    if unreachable(complaint):
        return runtime_missing(program, last_words(complaint))
    words = last_words(complaint) or "it said nothing"
    hint = "`sparkdash doctor podman` says why, and what mends it." if _ROOTLESS.search(words) else None
    return HostError(f"`{program} {verb}` failed: {words}.", code="runtime_failed", hint=hint)


def name_taken(program: str, name: str) -> HostError:
    """A container that is not ours has the name we need."""
    return HostError(
        f"A container named {name} exists already, and this sparkdash did not start it.",
        code="name_taken",
        hint=f"See `{program} inspect {name}`; if nobody needs it: `{program} rm -f {name}`.",
    )


_COMPLAINTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "no_gpu_device",
        ("cdi device", "nvidia.com/gpu", "could not select device driver", "nvidia-container", "libnvidia-ml"),
        "Make the driver known to containers: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
        " (again after each driver update), then try again.",
    ),
    (
        "port_in_use",
        ("address already in use", "port is already allocated"),
        "Another program listens there: `ss -ltnp` names it.",
    ),
    (
        "name_taken",
        ("name is already in use", "is already in use by"),
        "Another container has this name: `podman ps -a` (or docker) shows it.",
    ),
    (
        "mount_missing",
        ("statfs ", "bind source path does not exist"),
        "Mend the path in the profile, or put the model there.",
    ),
    (
        "command_missing",
        ("executable file not found", "attempted to invoke a command that was not found", "permission denied: unknown"),
        "The image has no such program: mend the profile's command or its image.",
    ),
    (
        "disk_full",
        ("no space left on device",),
        "Make room: `podman system df` (or docker) shows what images take.",
    ),
)


def _start_message(spec: ContainerSpec, words: str) -> str:
    return f"The container {spec.name} could not start: {words}."


def _any(text: str, *patterns: str) -> bool:
    return any(pattern in text for pattern in patterns)


def _container(inspected: dict[str, Any]) -> ContainerInfo:
    state = inspected.get("State") or {}
    config = inspected.get("Config") or {}
    kind = _STATES.get(str(state.get("Status", "")).lower(), ContainerState.UNKNOWN)
    return ContainerInfo(
        id=inspected["Id"],
        name=str(inspected.get("Name", "")).removeprefix("/"),
        state=kind,
        image=inspected.get("ImageName") or config.get("Image") or None,
        labels=config.get("Labels") or {},
        exit_code=state.get("ExitCode") if kind is ContainerState.EXITED else None,
        pid=state.get("Pid") or None,
        started_at=_seconds(state.get("StartedAt")),
        gpu=_gpu(inspected.get("HostConfig") or {}, config.get("CreateCommand") or []),
        ports=_ports(inspected.get("HostConfig") or {}),
    )


def _ports(host: dict[str, Any]) -> tuple[int, ...]:
    """ "8000/tcp": [{"HostIp": "", "HostPort": "8000"}], in podman and docker alike."""
    published = [each for bound in (host.get("PortBindings") or {}).values() for each in bound or []]
    return tuple(sorted({int(port) for each in published if (port := str(each.get("HostPort"))).isdecimal()}))


def _gpu(host: dict[str, Any], command: list[str]) -> bool:
    """podman resolves CDI names only inside and keeps the command line; docker tells a request; both tell plain devices."""
    named = any("nvidia.com/gpu" in word or word.startswith("--gpus") for word in command)
    plain = any("nvidia" in str(device.get("PathOnHost")) for device in host.get("Devices") or [])
    return named or plain or bool(host.get("DeviceRequests"))


def _seconds(moment: str | int | None) -> float | None:
    """RFC 3339 with any number of decimals, or Unix seconds; the year 1 means never."""
    if not moment:
        return None
    seconds = float(moment) if isinstance(moment, int) else datetime.fromisoformat(moment).timestamp()
    return seconds if seconds > 0 else None
