"""Checks of what containers need: podman or docker, the CDI description of the GPU, rights. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkdash.doctor import check as podman_info
from sparkdash.doctor.box import MODULE, loaded_driver
from sparkdash.doctor.check import CheckResult, Readings, Unreadable, check, fail, file_system, note, ok, unknown, warn
from sparkdash.host.command import CommandResult
from sparkdash.host.podman.answers import last_words
from sparkdash.host.processes.leftovers import SECCOMP
from sparkdash.units import GIB, gib

OLDEST = (4, 3)
"""Oldest podman that sparkdash was run with; CDI devices came with 4.1."""
MOUNTS = "/proc/self/mountinfo"
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "lustre"})
USERNS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
"""1 on Ubuntu from 24.04 on: user namespaces need an AppArmor profile, which /usr/bin/podman has."""
NO_USERNS = re.compile(r"cannot clone|\bre-?exec", re.IGNORECASE)
"""Complaint of podman 4 and 5 without a user namespace (podman#24642, mgoltzsche/podman-static#111)."""
LET_IN = (
    "printf 'abi <abi/4.0>,\\nprofile podman-here %s flags=(unconfined) { userns, }\\n' "
    '"$(readlink -f "$(command -v podman)")" | sudo tee /etc/apparmor.d/podman-here; sudo systemctl reload apparmor'
)
DOCKER_GPU = "sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl restart docker"
ROOTLESS_GPU = (
    "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json; systemctl --user restart "
    "docker; sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place"
)
FULL, SCARCE = 10 * GIB, 60 * GIB
"""Bytes for any image, and for an update: a vLLM image has 20 GB, and an update holds two and the layers again."""


@check(
    "podman",
    "The container runtime is there, new enough, and answers.",
    reads=(USERNS,),
    runs=(podman_info.COMMAND, podman_info.DOCKER),
)
def runtime(readings: Readings) -> Iterator[CheckResult]:
    if readings.settings.runtime == "process":
        yield note("The settings run engines as plain processes; podman is not needed.")
    elif readings.settings.runtime == "docker":
        yield from _docker(readings)
    else:
        yield _podman(readings)


def _docker(readings: Readings) -> Iterator[CheckResult]:
    done = readings.ran(podman_info.DOCKER)
    if done is None:
        found = "The settings name docker, and it is not installed."
        yield fail(f"{found}{_other('podman', readings)}", "sudo apt install docker.io")
        return
    info = podman_info.docker_info(done)
    if version := info.get("ServerVersion"):
        rootless = "rootless" in str(info.get("SecurityOptions"))
        kind = "rootless" if rootless else "root"
        yield ok(f"docker {version}, {kind}, {info.get('Driver')} (docker info).")
        yield from _docker_lacks(readings, info, rootless=rootless)
    else:
        words = last_words(str(*(info.get("ServerErrors") or [])[:1])) or _words(done)
        join = readings.path("sudo usermod -aG docker {user}, and log in again")
        fix = join if "permission denied" in words else "sudo systemctl start docker"
        yield fail(f"docker's daemon does not answer: {words.rstrip('?')}.", fix)


def _docker_lacks(readings: Readings, info: Mapping[str, Any], *, rootless: bool) -> Iterator[CheckResult]:
    if readings.rootless and not rootless:
        yield warn(
            "Engines in docker belong to root: sparkdash's memory guard, which runs as you, cannot end them.",
            'runtime = "podman" in config.toml',
        )
    if not rootless and not info.get("LiveRestoreEnabled"):
        yield note(
            "A restart or update of docker ends all engines: its live-restore is off.",
            '"live-restore": true in /etc/docker/daemon.json; sudo systemctl reload docker',
        )
    if "nvidia" not in str(info.get("Runtimes")) and "nvidia" not in str(info.get("DiscoveredDevices")):
        yield note(
            "docker lists no NVIDIA runtime and no CDI device (docker info): engines may get no GPU.",
            ROOTLESS_GPU if rootless else DOCKER_GPU,
        )


def _other(program: str, readings: Readings) -> str:
    """Name the program that the settings do not name, where this box has it."""
    done = readings.ran(podman_info.DOCKER if program == "docker" else podman_info.COMMAND)
    return "" if done is None or done.code else f' This box has {program}: runtime = "{program}" in config.toml.'


def _podman(readings: Readings) -> CheckResult:
    try:
        done = readings.ran(podman_info.COMMAND)
    except Unreadable as why:
        return fail(f"{why}.", "podman system migrate; when that hangs too: sudo reboot")
    if done is None:
        return fail(f"podman is not installed.{_other('docker', readings)}", "sudo apt install podman")
    if (info := podman_info.parse_podman_info(done)) is None:
        return _failing(done, readings)
    about = f"podman {info.version}, {'rootless' if readings.rootless else 'root'}, {info.oci_runtime}, {info.network}"
    if podman_info.version_numbers(info.version) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return fail(f"{about} (podman info): sparkdash needs {needed}.", "sudo apt install --only-upgrade podman")
    return ok(f"{about} (podman info).")


def _failing(done: CommandResult, readings: Readings) -> CheckResult:
    words = _words(done)
    if NO_USERNS.search(words) and (readings.file(USERNS) or "").strip() == "1":
        return fail(
            f"`podman info` fails: {words}. AppArmor allows user namespaces to Ubuntu's own podman only, and this is "
            f"another one ({USERNS} is 1).",
            LET_IN,
        )
    if '"newuidmap": executable file not found' in words:  # apt only recommends it with podman
        return fail(f"`podman info` fails: {words}.", "sudo apt install uidmap")
    if "lock" in words:  # a lock file of another version; pengguanya/pgpu met it on a GB10
        return fail(
            f"`podman info` fails: {words}.",
            f"rm /dev/shm/libpod_rootless_lock_{readings.uid}, while no container runs",
        )
    return fail(f"`podman info` fails: {words}.", "podman system migrate")


def _words(done: CommandResult) -> str:
    return last_words(done.err).rstrip(".") or f"status {done.code}"


@check(
    "images",
    "There is room for images, on a file system of this box.",
    reads=(MOUNTS,),
    runs=(podman_info.COMMAND, podman_info.DOCKER),
    disks=("{graphroot}",),
)
def images(readings: Readings) -> Iterator[CheckResult]:
    if (program := readings.settings.runtime) == "process":
        yield note("The settings run engines as plain processes, which need no images.")
        return
    root, driver = _docker_store(readings) if program == "docker" else _podman_store(readings)
    kind = file_system(root, readings.file(MOUNTS) or "")
    disk = readings.disk("{graphroot}")
    where = f"{root} ({driver} on {kind or 'an unknown file system'}, {program} info)"
    room = f"{gib(disk.free)} of {gib(disk.total)} free in {where}"
    if kind in REMOTE and program == "podman":
        yield fail(
            f"Images are on a network file system, where rootless podman cannot keep layers: {room}.",
            'graphroot = "/var/tmp/containers" under [storage] in ~/.config/containers/storage.conf',
        )
    elif disk.free < FULL:
        yield fail(f"{room}: no image fits.", f"{program} image prune --all")
    elif disk.free < SCARCE:
        yield warn(f"{room}: an image has about 20 GB, and an update needs it twice.", f"{program} image prune")
    else:
        yield ok(f"{room}.")


def _docker_store(readings: Readings) -> tuple[str, str | None]:
    told = podman_info.docker_info(readings.ran(podman_info.DOCKER) or CommandResult(1, "", ""))
    if root := told.get("DockerRootDir"):
        return root, told.get("Driver")
    raise Unreadable("`docker info` fails, see the check podman")


def _podman_store(readings: Readings) -> tuple[str, str]:
    info = podman_info.podman_info_of(readings)
    return info.graph_root, info.graph_driver


IO_URING = "/proc/sys/kernel/io_uring_disabled"
"""0: everybody may use it; 1: a group; 2: nobody. Kernels before 6.6 have no such file."""


@check("io-uring", "Quick loaders can use io_uring where a profile asks for it.", reads=(IO_URING, *SECCOMP))
def io_uring(readings: Readings) -> Iterator[CheckResult]:
    disabled = (readings.file(IO_URING) or "0").strip()
    default = next((path for path in SECCOMP if readings.file(path)), None)
    if readings.settings.runtime == "process":
        yield note("The settings run engines as plain processes, without a seccomp profile.")
    elif disabled != "0":
        yield note(f"The kernel refuses io_uring ({IO_URING} is {disabled}): `security: io_uring` does not help here.")
    elif default is None:
        yield note(
            f"There is no default seccomp profile ({SECCOMP[-1]}), of which `security: io_uring` is made.",
            "sudo apt install containers-common",
        )
    else:
        yield ok(f"The kernel has it; `security: io_uring` in a profile adds it to {default}, other engines lack it.")


SPECS = tuple(f"{folder}/*.{kind}" for folder in ("/etc/cdi", "/run/cdi", "/var/run/cdi") for kind in ("yaml", "json"))
KIND, ALL = "nvidia.com/gpu", "all"
TOOLKIT = ("nvidia-ctk", "--version")
REFRESH = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
"""Exists from toolkit 1.18 on, whose service writes /run/cdi/nvidia.yaml at boot and after a driver upgrade."""

GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
RESTART = "sudo systemctl restart nvidia-cdi-refresh"
NO_GIDS = "no-additional-gids-for-device-nodes"
NEEDS: tuple[tuple[tuple[int, ...], tuple[int, int], str], ...] = (
    ((0, 7), (5, 1), "podman PR#22280, nvidia-container-toolkit#1860"),
    ((0, 5), (4, 5), "podman#20648"),
    ((), (4, 1), "podman 4.1's release notes"),
)
"""(Least CDI version, least podman for it, evidence). An older podman silently ignores the whole spec."""

_LIBRARY = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)\b")


@dataclass(frozen=True, slots=True)
class Spec:
    """CDI spec file that offers NVIDIA's GPUs."""

    path: str
    version: str
    devices: tuple[str, ...]
    drivers: frozenset[str]
    """Driver versions in the names of the mounted libraries."""


def specs(readings: Readings) -> tuple[list[Spec], list[str]]:
    found: list[Spec] = []
    broken: list[str] = []
    # /var/run is /run on every supported box
    texts = {path.removeprefix("/var"): text for pattern in SPECS for path, text in readings.matching(pattern).items()}
    for path, text in texts.items():
        try:
            spec = _spec(path, text)
        except ValueError:
            broken.append(path)
        else:
            found += [] if spec is None else [spec]
    return found, broken


def _spec(path: str, text: str) -> Spec | None:
    from sparkdash.catalog import yaml12

    try:
        read, _ = yaml12.read_yaml(text)
    except yaml12.NotYaml as error:
        raise ValueError(str(error)) from None
    if not isinstance(read, dict) or "cdiVersion" not in read:
        raise ValueError("no CDI spec")
    if read.get("kind") != KIND:
        return None
    return Spec(path, str(read["cdiVersion"]), _devices(read.get("devices")), frozenset(_LIBRARY.findall(text)))


def _devices(read: object) -> tuple[str, ...]:
    """Names of the devices. Raises ValueError where podman's reader refuses the whole file."""
    if read is None:
        return ()
    if not isinstance(read, list) or not all(isinstance(each, dict) and "name" in each for each in read):
        raise ValueError("its devices are no list of things with a name")
    return tuple(str(each["name"]) for each in read)


def _not_used(readings: Readings) -> CheckResult:
    return note(f"The settings run engines with {readings.settings.runtime}, which gets the GPU without CDI.")


@check("cdi", "A CDI spec offers the GPU to podman as nvidia.com/gpu=all.", reads=(*SPECS, REFRESH, MODULE))
def offered(readings: Readings) -> Iterator[CheckResult]:
    """Look for a spec of the device: without one podman creates the container and fails at its start."""
    if readings.settings.runtime != "podman":
        yield _not_used(readings)
        return
    found, broken = specs(readings)
    fix = GENERATE if readings.file(REFRESH) is None else RESTART
    if loaded_driver(readings.file(MODULE)) is None:
        fix = f"Fix the driver first; then {fix}"
    for path in broken:
        yield fail(f"{path} is no CDI spec; podman ignores it.", f"sudo rm {path}; {fix}")
    if not found:
        yield fail(f"No CDI spec offers {KIND} (looked in /etc/cdi and /run/cdi): engines get no GPU.", fix)
    elif not any(ALL in spec.devices for spec in found):
        yield fail(f"{found[-1].path} offers {', '.join(found[-1].devices)}, and not {KIND}={ALL}.", fix)
    elif len(found) > 1:
        yield note(
            f"{found[-1].path} wins over {found[0].path}: two specs of the same devices drift apart.",
            f"sudo rm {found[0].path}",
        )
    else:
        yield ok(f"{found[0].path} offers {', '.join(found[0].devices)}.")


@check(
    "cdi-version",
    "This podman can read the CDI specs; an older one silently ignores newer specs.",
    reads=(*SPECS, REFRESH),
    runs=(podman_info.COMMAND,),
)
def version(readings: Readings) -> Iterator[CheckResult]:
    if readings.settings.runtime != "podman":
        yield _not_used(readings)
        return
    found, _ = specs(readings)
    if not found:
        yield note("There is no spec to read; see the check cdi.")
        return
    podman = podman_info.podman_info_of(readings).version
    for spec in found:
        cdi = podman_info.version_numbers(spec.version)
        least, evidence = next((least, evidence) for oldest, least, evidence in NEEDS if cdi >= oldest)
        words = ".".join(map(str, least))
        if podman_info.version_numbers(podman) < least:
            yield fail(
                f"{spec.path} is CDI {spec.version}, which needs podman {words} ({evidence}); this is {podman}.",
                _older(readings),
            )
        else:
            yield ok(f"{spec.path} is CDI {spec.version}, which podman {podman} reads.")


def _older(readings: Readings) -> str:
    if readings.file(REFRESH) is None:
        return f"sudo nvidia-ctk cdi generate --feature-flag {NO_GIDS} --output=/etc/cdi/nvidia.yaml"
    line = f"NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS={NO_GIDS}"
    return f"echo {line} | sudo tee -a {REFRESH}; {RESTART}"


@check("cdi-driver", "The CDI spec was made for the driver that runs.", reads=(*SPECS, MODULE))
def of_driver(readings: Readings) -> Iterator[CheckResult]:
    """Compare drivers: a spec names libraries by driver version, and after an upgrade they are gone."""
    if readings.settings.runtime != "podman":
        yield _not_used(readings)
        return
    loaded, (found, _) = loaded_driver(readings.file(MODULE)), specs(readings)
    if not found or loaded is None:
        yield note("Nothing to compare: " + ("there is no spec." if not found else "no driver is loaded."))
        return
    for spec in found:
        made_for = ", ".join(sorted(spec.drivers))
        if not made_for:
            yield unknown(f"{spec.path} names no library with a driver's version.")
        elif spec.drivers == {loaded}:
            yield ok(f"{spec.path} is for driver {loaded}, which runs ({MODULE}).")
        elif spec is found[-1]:
            fix = RESTART if spec.path.startswith("/run/") else GENERATE
            yield fail(f"{spec.path} is for driver {made_for}, and {loaded} runs ({MODULE}).", fix)
        else:
            yield warn(f"{spec.path} is for driver {made_for}; {found[-1].path} wins.", f"sudo rm {spec.path}")


@check("toolkit", "NVIDIA's container toolkit, which writes the CDI spec.", reads=(REFRESH,), runs=(TOOLKIT,))
def toolkit(readings: Readings) -> Iterator[CheckResult]:
    done = readings.ran(TOOLKIT)
    if done is None or done.code:
        yield warn(
            "nvidia-ctk is not installed: after the next driver upgrade nothing can renew the CDI spec.",
            "sudo apt install nvidia-container-toolkit-base",
        )
        return
    words = done.out.strip().partition("\n")[0]
    if readings.file(REFRESH) is None:
        yield note(
            f"{words}: it does not renew the CDI spec by itself, 1.18 does.", f"After a driver upgrade: {GENERATE}"
        )
    else:
        yield ok(f"{words}; nvidia-cdi-refresh renews the CDI spec ({REFRESH}).")


SUBUID, SUBGID = "/etc/subuid", "/etc/subgid"
LINGER = "/var/lib/systemd/linger/{user}"
ENOUGH = 65536
"""Subordinate ids that the users of an image may need (podman's tutorial on rootless use)."""


@check("rootless", "Subordinate user and group ids, without which most images do not unpack.", reads=(SUBUID, SUBGID))
def ids(readings: Readings) -> Iterator[CheckResult]:
    """Count the subordinate ids. Columns by subuid(5): name or uid, first id, count."""
    if not readings.rootless:
        yield ok("Not needed: engines run as root.")
        return
    if readings.settings.runtime != "podman":
        yield ok(f"Not needed with {readings.settings.runtime}.")
        return
    counts = {file: _count(readings.file(file), readings) for file in (SUBUID, SUBGID)}
    told = ", ".join(f"{count} in {file}" for file, count in counts.items())
    if min(counts.values()) < ENOUGH:
        add = f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {readings.path('{user}')}"
        yield fail(f"Subordinate ids: {told}; images need {ENOUGH} of each.", f"{add}; podman system migrate")
    else:
        yield ok(f"Subordinate ids: {told}.")


def _count(text: str | None, readings: Readings) -> int:
    mine = {readings.path("{user}"), readings.path("{uid}")}
    rows = [line.split(":") for line in (text or "").splitlines()]
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] in mine and row[2].isdecimal())


@check("linger", "This user's containers and daemon live on after the last logout.", reads=(LINGER,))
def linger(readings: Readings) -> Iterator[CheckResult]:
    """Check lingering: otherwise logind ends the user's manager and removes /run/user with the last session."""
    if not readings.rootless:
        yield ok("Not needed: engines run as root.")
    elif readings.file(LINGER) is None:
        yield warn(
            f"Engines end with your last logout ({readings.path(LINGER)} is not there).", "loginctl enable-linger"
        )
    else:
        yield ok(f"{readings.path('{user}')} lingers ({readings.path(LINGER)}).")
