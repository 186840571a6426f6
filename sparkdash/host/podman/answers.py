"""Answers and complaints of podman and docker, as values and errors of ours.

Known shapes: podman 4.3.1 as run here; 4.9 and 5 from their sources; docker from its API's documentation. Pure.
"""

import errno
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from sparkdash.domain.container import ContainerInfo, ContainerSpec, ContainerState
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.redaction import masked

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
"""States of both programs. A paused container keeps its memory and port, so it counts as running."""

_ID = re.compile(r"[0-9a-f]{64}")
_NOISE = re.compile(r"time=\S+ level=|Run 'docker |Trying to pull ")
"""Noise in complaints: podman's log lines, docker's hint at its help, the first line of a pull."""
_PREFIX = re.compile(r"(docker: )?(Error: |Error response from daemon: )?")
_WORDS_LIMIT = 400

_ROOTLESS = re.compile(r"cannot clone|\bre-?exec|newuidmap", re.IGNORECASE)
"""Complaint of a podman that cannot make its user namespace; it names no cause (podman#24642)."""
_STALE = re.compile(r"stat\b.*\blib(?:cuda|nv|\w+_nvidia)[\w-]*\.so[.\d]*\W.*no such file", re.IGNORECASE)
"""Complaint about a driver's library in the CDI spec that an update has replaced (podman #26233, #23935)."""
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP})
_RENEW = (
    "The CDI description is older than the driver: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or "
    "`sudo systemctl restart nvidia-cdi-refresh`."
)


def containers(inspected: str) -> list[ContainerInfo]:
    """Parse the output of `inspect`; an empty one has no containers. Raises ValueError for any other text."""
    found = json.loads(inspected or "[]")
    return [_container(each) for each in found or []]


def images(printed: str, names: Iterable[str]) -> dict[str, int]:
    """Parse the output of `argv.images` into bytes by name; lines of another shape are skipped."""
    found: list[tuple[int, list[str], list[str]]] = []
    for line in printed.splitlines():
        with suppress(ValueError):
            size, tags, digests = json.loads(line)
            found.append((int(size), tags or [], digests or []))
    here = {name: [size for size, tags, digests in found if _is_called(name, tags, digests)] for name in names}
    return {name: sizes[0] for name, sizes in here.items() if sizes}


def _is_called(name: str, tags: list[str], digests: list[str]) -> bool:
    """Whether this is the image's name: podman writes the registry before a tag, docker omits its own."""
    if "@" in name:
        return any(digest.endswith(name[name.index("@") :]) for digest in digests)
    full = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    return any(tag == full or tag.endswith(f"/{full}") or full.endswith(f"/{tag}") for tag in tags)


def gone(words: str) -> bool:
    return "no such container" in words.lower()


def no_such_image(words: str) -> bool:
    return _any(words.lower(), "image not known", "no such image", "no such object")


def not_running(words: str) -> bool:
    lowered = words.lower()
    return gone(words) or "running containers" in lowered or "is not running" in lowered


def unreachable(words: str) -> bool:
    return _any(words.lower(), "cannot connect to the docker daemon", "permission denied while trying to connect")


def pids(top: str) -> set[int]:
    """Parse the output of `top` into process ids, without its headline."""
    return {int(word) for word in top.split() if word.isdigit()}


def container_id(printed: str) -> str | None:
    """Parse the full id that a detached `run` prints last; None without one."""
    word = (printed.split() or [""])[-1]
    return word if _ID.fullmatch(word) else None


def exit_code(waited: str) -> int | None:
    """Parse the exit code that `wait` prints last; None without one."""
    word = (waited.split() or [""])[-1]
    return int(word) if re.fullmatch(r"-?\d+", word) else None


def last_words(complaint: str) -> str:
    """Shorten a complaint to its last lines, without noise if anything else is left."""
    said = [line.strip() for line in complaint.splitlines() if line.strip()]
    plain = [line for line in said if not _NOISE.match(line)] or said
    text = masked(_PREFIX.sub("", " ".join(plain[-3:]), count=1).rstrip("."))  # clients read it too
    return text if len(text) <= _WORDS_LIMIT else text[:_WORDS_LIMIT] + "…"


def runtime_missing(program: str, found: str) -> HostError:
    hints = {
        "podman": "Install it (`sudo apt-get install podman`), or set runtime = \"docker\" or \"process\" in"
                  " config.toml.",
        "docker": "Install and start docker and join its group (`sudo usermod -aG docker $USER`), or set"
                  " runtime = \"podman\".",
    }  # fmt: skip
    return HostError(f"{program} cannot be used: {found}.", code="runtime_missing", hint=hints.get(program))


def network_unreachable() -> HostError:
    return HostError(
        "docker runs in its rootless mode here, where the parts of an engine on several boxes do not reach each other.",
        code="runtime_failed",
        hint='Set runtime = "podman" in config.toml, which needs no root, or use docker\'s system daemon.',
    )


_SHELLS = frozenset({"sh", "bash", "dash", "ash"})


def entrypoint_fault(image: str, printed: str, words: Sequence[str]) -> HostError | None:
    """Error for an image whose own entrypoint, by the output of `argv.entrypoint`, cannot run the profile's words."""
    try:
        own, default = (found if isinstance(found, list) else [] for found in json.loads(printed))
    except ValueError:
        return None
    if not own and (words[0].startswith("-") if words else not default):
        why = "has no entrypoint, and the profile names no program"
    elif words and own and _program(own) in _SHELLS and not ("-c" in own and re.search(r"\$[@*0-9]", own[-1])):
        why = f"has the entrypoint `{shlex.join(own)}`, a shell that does not run the profile's command"
    elif words and own and _program(own) == _program(words):
        why = f"has the entrypoint `{shlex.join(own)}`, and the profile's command begins with the same program again"
    else:
        return None
    hint = "Leave `keep_entrypoint` out: the profile's command then replaces the entrypoint. Or correct `command`."
    return HostError(f"The image {image} {why}.", code="command_missing", hint=hint)


def _program(words: Sequence[str]) -> str:
    """Name what a command line runs: a program, or Python's script or package."""
    name = PurePosixPath(words[0]).name
    if not name.startswith("python") or len(words) == 1:
        return name
    return words[2].partition(".")[0] if words[1] == "-m" and len(words) > 2 else PurePosixPath(words[1]).name


def not_begun(program: str, error: OSError) -> HostError:
    """Error for a program that could not be started: missing, or the box lacks memory or descriptors."""
    words = error.strerror or str(error)
    if error.errno in _NOT_THERE:
        return runtime_missing(program, words)
    return HostError(
        f"{program} cannot be started: {words}.",
        code="host_not_ready",
        hint="This passes once the box has what it lacks: see `free -h`, and `sparkdash doctor`.",
    )


def too_slow(program: str, verb: str, seconds: float, memory: str) -> HostError:
    """Error for a call that passed its deadline; `memory` describes the box's memory at that time."""
    return HostError(
        f"`{program} {verb}` gave no answer for {seconds:.0f} s.",
        code="runtime_timeout",
        hint=f"See whether `{program} ps` answers. {memory}".rstrip(),
    )


def not_fetched(program: str, image: str, words: str) -> HostError:
    hint = _source(program, image, words)
    hint = hint or "See whether this box reaches that registry, and whether the profile's `image` is right."
    return HostError(f"{program} could not fetch {image}: {words}.", code="image_missing", hint=hint)


def image_missing(program: str, image: str, words: str) -> HostError:
    hint = (
        _source(program, image, words) or f"Fetch it with `{program} pull {image}`, or correct `image` in the profile."
    )
    return HostError(f"The image {image} is not on this box: {words}.", code="image_missing", hint=hint)


def _source(program: str, image: str, words: str) -> str | None:
    """Hint for an image that needs more than a pull; None if a pull suffices."""
    if re.search(r"unauthorized|authentication required|access denied|denied:", words, re.IGNORECASE):
        return f"Its registry wants a login: `{program} login {image.split('/', 1)[0]}`."
    if re.search(r"no image found in (?:image index|manifest list) for|no matching manifest for", words):
        return "It is not made for this box's processor: name a tag or an image that is (for a Spark linux/arm64)."
    if image.startswith("localhost/"):
        return f"It is an image of your own: build it with `{program} build -t {image} …`."
    return None


def start_failed(program: str, spec: ContainerSpec, done: CommandResult) -> HostError:
    """Error for a failed `run`, classified by its own words."""
    complaint = done.err
    words = last_words(complaint)
    lowered = complaint.lower()
    if _any(lowered, "image not known", "no such image", "unable to find image"):
        return image_missing(program, spec.image or "", words)
    if _STALE.search(complaint):
        return HostError(_start_message(spec, words), code="cdi_stale", hint=_RENEW)
    for code, patterns, hint in _COMPLAINTS:
        if _any(lowered, *patterns):
            return HostError(_start_message(spec, words), code=code, hint=hint or NO_GPU_HINTS.get(program))
    return failed(program, "run", complaint, done.code)


def failed(program: str, verb: str, complaint: str, code: int = 0) -> HostError:
    """Error for any other failure, with the program's own words, or the signal that ended it before it had any."""
    if unreachable(complaint):
        return runtime_missing(program, last_words(complaint))
    words = last_words(complaint)
    # an exit code tells of a signal: negative from the kernel, 128 and more through a shell or ssh
    if (name := _SIGNALS.get(-code if code < 0 else code - 128)) and (code < 0 or not words):
        look = "`sparkdash doctor memory` and `journalctl -k` say whether the box was short of memory. Then try again."
        return HostError(f"`{program} {verb}` was ended by {name}.", code="runtime_killed", hint=look)
    hint = "`sparkdash doctor podman` says why, and what fixes it." if _ROOTLESS.search(words) else None
    return HostError(f"`{program} {verb}` failed: {words or 'it said nothing'}.", code="runtime_failed", hint=hint)


_SIGNALS = {2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def name_taken(program: str, name: str) -> HostError:
    return HostError(
        f"A container named {name} exists already, and this sparkdash did not start it.",
        code="name_taken",
        hint=f"See `{program} inspect {name}`; if nobody needs it: `{program} rm -f {name}`.",
    )


NO_GPU_HINTS = {
    "podman": "Make the driver known to containers: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
              " (again after each driver update), then try again.",
    "docker": "Make the driver known to docker: `sudo apt install nvidia-container-toolkit`, `sudo nvidia-ctk runtime"
              " configure --runtime=docker`, `sudo systemctl restart docker`.",
}  # fmt: skip
_COMPLAINTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "no_gpu_device",
        ("cdi device", "nvidia.com/gpu", "could not select device driver", "nvidia-container", "libnvidia-ml"),
        "",  # of NO_GPU_HINTS
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
        "Correct the path in the profile, or put the model there.",
    ),
    (
        "command_missing",
        (
            "executable file not found",
            "attempted to invoke a command that was not found",
            "permission denied: unknown",
            "start container process: exec: ",
        ),
        "The image has no such program: correct `command` or `image` in the profile.",
    ),
    ("disk_full", ("no space left on device",), "Make room: `podman system df` (or docker) shows what images take."),
)


def _start_message(spec: ContainerSpec, words: str) -> str:
    return f"The container {spec.name} could not start: {words}."


def _any(text: str, *patterns: str) -> bool:
    return any(pattern in text for pattern in patterns)


def _container(inspected: dict[str, Any]) -> ContainerInfo:
    state = inspected.get("State") or {}
    config = inspected.get("Config") or {}
    host = inspected.get("HostConfig") or {}
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
        gpu=_gpu(host, config.get("CreateCommand") or []),
        ports=_ports(host),
        mounts=tuple(str(each["Source"]) for each in inspected.get("Mounts") or [] if each.get("Source")),
    )


def _ports(host: dict[str, Any]) -> tuple[int, ...]:
    """Published ports: "8000/tcp": [{"HostIp": "", "HostPort": "8000"}], in podman and docker alike."""
    published = [each for bound in (host.get("PortBindings") or {}).values() for each in bound or []]
    return tuple(sorted({int(port) for each in published if (port := str(each.get("HostPort"))).isdecimal()}))


def _gpu(host: dict[str, Any], command: list[str]) -> bool:
    """Whether the container has a GPU: podman keeps the command line, docker the request; both list plain devices."""
    named = any("nvidia.com/gpu" in word or word.startswith("--gpus") for word in command)
    plain = any("nvidia" in str(device.get("PathOnHost")) for device in host.get("Devices") or [])
    return named or plain or bool(host.get("DeviceRequests"))


def _seconds(moment: str | int | None) -> float | None:
    """Parse RFC 3339 with any number of decimals, or Unix seconds; the year 1 means never."""
    if not moment:
        return None
    seconds = float(moment) if isinstance(moment, int) else datetime.fromisoformat(moment).timestamp()
    return seconds if seconds > 0 else None
