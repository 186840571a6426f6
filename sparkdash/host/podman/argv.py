"""Command lines of podman and docker, which differ in a few flags only.

Never: `--ipc=host` (podman refuses it together with `--shm-size`, and orphans would share memory), a restart policy
(the supervisor decides what runs), `--rm` (the log of a dead engine must stay readable), `--init` (podman only
recommends its package; every engine ends on SIGTERM by itself). Pure.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import Mount
from sparkdash.redaction import is_secret_variable

PODMAN = "podman"
DOCKER = "docker"

LOG_LIMIT = "64m"
"""Size at which a container's log is cut, as engines write a line every few seconds for months."""

_NVIDIA = "nvidia.com/gpu="
"""Vendor and class of NVIDIA's CDI devices."""


def version(program: str) -> list[str]:
    """Print the version; for docker the daemon's, so that a stopped daemon is noticed."""
    side = "Server" if program == DOCKER else "Client"
    return [program, "version", "--format", "{{." + side + ".Version}}"]


def run(program: str, spec: ContainerSpec, *, replace: bool = True) -> list[str]:
    """Create and start `spec`, detached. `spec.image` must be set; argv[0] replaces the image's entrypoint
    unless the spec keeps it.

    `replace`: podman removes a container of the same name, whoever made it; docker cannot.
    """
    docker = program == DOCKER
    return [
        program, "run", "-d", *(["--replace"] if replace and not docker else []), "--name", spec.name,
        "--pull=never",  # pulling is a step of its own, with progress; inside a start it would eat the time limit
        *_log_driver(docker),
        *_network(spec),
        *(flag for device in spec.devices for flag in _device(docker, device)),
        *_repeated("--shm-size", filter(None, [spec.shm_size])),
        *_repeated("--ulimit", spec.ulimits),
        *_repeated("--security-opt", [f"seccomp={spec.seccomp}"] if spec.seccomp else []),
        *_inside(docker, spec),
        *_repeated("--label", (f"{key}={value}" for key, value in spec.labels.items())),
        *_repeated("--stop-signal", filter(None, [spec.stop_signal])),
        *([] if spec.keeps_entrypoint else ["--entrypoint", spec.argv[0]]),
        spec.image or "",
        *(spec.argv if spec.keeps_entrypoint else spec.argv[1:]),
    ]  # fmt: skip


def published(spec: ContainerSpec) -> ContainerSpec:
    """Publish the engine's port on loopback, for docker's rootless mode, whose host network is not this box's.

    Inside, the engine listens on all addresses: a published port does not reach loopback there.
    """
    loopback, everywhere = "127.0.0.1", "0.0.0.0"  # noqa: S104 - of a network that only this container is in
    words = tuple(word.replace(loopback, everywhere) for word in spec.argv)
    env = {name: value.replace(loopback, everywhere) for name, value in spec.env.items()}
    return spec.replace(argv=words, env=env, inner_port=spec.port)


def environment(spec: ContainerSpec) -> dict[str, str]:
    """Secret variables, which `run` and `output` name without a value, for the environment of the command."""
    return {key: value for key, value in spec.env.items() if is_secret_variable(key)}


def stop(program: str, name: str, grace_s: int) -> list[str]:
    """Send the stop signal, SIGTERM by default, then SIGKILL after `grace_s` whole seconds."""
    return [program, "stop", "-t", str(grace_s), name]


def unpause(program: str, name: str) -> list[str]:
    return [program, "unpause", name]


def remove(program: str, name: str) -> list[str]:
    """Remove a container and its anonymous volumes; a running one is killed at once."""
    now = [] if program == DOCKER else ["-t", "0"]
    return [program, "rm", "--force", "--volumes", *now, name]


def inspect(program: str, names: list[str]) -> list[str]:
    return [program, "inspect", "--type", "container", *names]


def ids(program: str, labels: Mapping[str, str]) -> list[str]:
    """Print the ids of all containers with these labels, one a line; an empty value matches any."""
    filters = [f"label={key}={value}" if value else f"label={key}" for key, value in labels.items()]
    return [program, "ps", "--all", "--quiet", "--no-trunc", *_repeated("--filter", filters)]


def logs(program: str, name: str, *, follow: bool, tail: int | None) -> list[str]:
    """Print the log; podman's own warnings and errors are silenced, as callers merge stderr into stdout."""
    quiet = [] if program == DOCKER else ["--log-level=fatal"]
    lines = [] if tail is None else ["--tail", str(tail)]
    return [program, *quiet, "logs", *(["--follow"] if follow else []), *lines, name]


def wait(program: str, name: str, *, soon: bool) -> list[str]:
    """Print a container's exit code once it has ended.

    podman polls four times a second by default. Once a second keeps an idle box idle; a container that is about to end
    (`soon`) is polled more often.
    """
    return [program, "wait", *([] if program == DOCKER else ["--interval", "50ms" if soon else "1s"]), name]


def top(program: str, name: str) -> list[str]:
    """Print host process ids below a headline. podman reads /proc itself; docker runs the host's ps."""
    return [program, "top", name, *(["-o", "pid"] if program == DOCKER else ["hpid"])]


def pull(program: str, image: str) -> list[str]:
    return [program, "pull", image]


def image_id(program: str, image: str) -> list[str]:
    """Print the id of a local image; `image exists` takes as long and prints less."""
    return [program, "image", "inspect", "--format", "{{.Id}}", image]


def entrypoint(program: str, image: str) -> list[str]:
    """Print a JSON line, [entrypoint, command], of a local image."""
    return [program, "image", "inspect", "--format", "[{{json .Config.Entrypoint}},{{json .Config.Cmd}}]", image]


def images(program: str, names: Collection[str]) -> list[str]:
    """Print a JSON line, [bytes, tags, digests], for each of these images on this box; missing ones are an error."""
    return [program, "image", "inspect", "--format", "[{{.Size}},{{json .RepoTags}},{{json .RepoDigests}}]", *names]


def shell(argv: list[str]) -> str:
    """Format `argv` to paste into a shell: one flag with its value a line, quoted where needed."""
    lines: list[list[str]] = [[]]
    for word in argv:
        flag_is_full = len(lines[-1]) > 1 and lines[-1][0].startswith("-")
        if word.startswith("-") or flag_is_full:
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(shlex.join(line) for line in lines if line)


def _inside(docker: bool, spec: ContainerSpec) -> list[str]:
    return [
        *(flag for mount in spec.mounts for flag in _mount(docker, mount)),
        *_repeated("--tmpfs", spec.tmpfs),
        *_repeated("-e", (f"{key}={value}" for key, value in spec.env.items() if not is_secret_variable(key))),
        # without a value: taken from the program's own environment, which `ps` does not show
        *_repeated("-e", (*filter(is_secret_variable, spec.env), *spec.env_from)),
    ]


def _repeated(flag: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _network(spec: ContainerSpec) -> list[str]:
    """Give the container the host's network, or publish its fixed port on loopback: a forward slows each token."""
    if spec.inner_port is None:
        return ["--network", "host"]
    return ["--publish", f"127.0.0.1:{spec.port}:{spec.inner_port}"]


def _log_driver(docker: bool) -> list[str]:
    # Files, not the journal: the journal drops lines beyond a rate, and a rootless user may be unable to read it.
    return ["--log-driver", "json-file" if docker else "k8s-file", "--log-opt", f"max-size={LOG_LIMIT}"]


def _device(docker: bool, device: str) -> list[str]:
    if docker and device.startswith(_NVIDIA):
        # docker resolves CDI names only since 25, and behind a switch; all versions take `--gpus`
        which = device.removeprefix(_NVIDIA)
        return ["--gpus", "all" if which == "all" else f"device={which}"]
    return ["--device", device]


def _mount(docker: bool, mount: Mount) -> list[str]:
    if docker and mount.source.startswith("/"):
        # docker's -v would make an empty folder owned by root in place of a missing source
        mode = ",readonly" if mount.read_only else ""
        return ["--mount", f"type=bind,source={mount.source},target={mount.target}{mode}"]
    return ["-v", f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")]
