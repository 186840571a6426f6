"""Checks of the CDI specs, which bring the GPU into a container: existence, version and driver.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparkdash.doctor import podman_info
from sparkdash.doctor.check import CheckResult, check, fail, note, ok, unknown, warn
from sparkdash.doctor.checks.gpu import MODULE, loaded_driver
from sparkdash.doctor.facts import Facts

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


def specs(facts: Facts) -> tuple[list[Spec], list[str]]:
    """Find the specs of NVIDIA's GPUs, the winning one last, and the files that are no spec."""
    found: list[Spec] = []
    broken: list[str] = []
    # /var/run is /run on every supported box
    texts = {path.removeprefix("/var"): text for pattern in SPECS for path, text in facts.matching(pattern).items()}
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


def _not_used(facts: Facts) -> Iterator[CheckResult]:
    if facts.settings.runtime != "podman":
        yield note(f"The settings run engines with {facts.settings.runtime}, which gets the GPU without CDI.")


@check("cdi", "A CDI spec offers the GPU to podman as nvidia.com/gpu=all.", reads=(*SPECS, REFRESH, MODULE))
def offered(facts: Facts) -> Iterator[CheckResult]:
    """Look for a spec of the device: without one podman creates the container and fails at its start."""
    if facts.settings.runtime != "podman":
        yield from _not_used(facts)
        return
    found, broken = specs(facts)
    mend = GENERATE if facts.file(REFRESH) is None else RESTART
    if loaded_driver(facts.file(MODULE)) is None:
        mend = f"Fix the driver first; then {mend}"
    for path in broken:
        yield fail(f"{path} is no CDI spec; podman ignores it.", f"sudo rm {path}; {mend}")
    if not found:
        yield fail(f"No CDI spec offers {KIND} (looked in /etc/cdi and /run/cdi): engines get no GPU.", mend)
    elif not any(ALL in spec.devices for spec in found):
        yield fail(f"{found[-1].path} offers {', '.join(found[-1].devices)}, and not {KIND}={ALL}.", mend)
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
def version(facts: Facts) -> Iterator[CheckResult]:
    """Compare the spec's version with the versions that this podman reads."""
    if facts.settings.runtime != "podman":
        yield from _not_used(facts)
        return
    found, _ = specs(facts)
    if not found:
        yield note("There is no spec to read; see the check cdi.")
        return
    podman = podman_info.podman_info_of(facts).version
    for spec in found:
        least, evidence = _least(spec.version)
        words = ".".join(map(str, least))
        if podman_info.version_numbers(podman) < least:
            yield fail(
                f"{spec.path} is CDI {spec.version}, which needs podman {words} ({evidence}); this is {podman}.",
                _older(facts),
            )
        else:
            yield ok(f"{spec.path} is CDI {spec.version}, which podman {podman} reads.")


def _least(spec: str) -> tuple[tuple[int, int], str]:
    return next((podman, evidence) for cdi, podman, evidence in NEEDS if podman_info.version_numbers(spec) >= cdi)


def _older(facts: Facts) -> str:
    if facts.file(REFRESH) is None:
        return f"sudo nvidia-ctk cdi generate --feature-flag {NO_GIDS} --output=/etc/cdi/nvidia.yaml"
    line = f"NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS={NO_GIDS}"
    return f"echo {line} | sudo tee -a {REFRESH}; {RESTART}"


@check("cdi-driver", "The CDI spec was made for the driver that runs.", reads=(*SPECS, MODULE))
def of_driver(facts: Facts) -> Iterator[CheckResult]:
    """Compare drivers: a spec names libraries by driver version, and after an upgrade they are gone."""
    if facts.settings.runtime != "podman":
        yield from _not_used(facts)
        return
    loaded, (found, _) = loaded_driver(facts.file(MODULE)), specs(facts)
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
            mend = RESTART if spec.path.startswith("/run/") else GENERATE
            yield fail(f"{spec.path} is for driver {made_for}, and {loaded} runs ({MODULE}).", mend)
        else:
            yield warn(f"{spec.path} is for driver {made_for}; {found[-1].path} wins.", f"sudo rm {spec.path}")


@check("toolkit", "NVIDIA's container toolkit, which writes the CDI spec.", reads=(REFRESH,), runs=(TOOLKIT,))
def toolkit(facts: Facts) -> Iterator[CheckResult]:
    """Report the toolkit's version, and whether it renews the spec by itself."""
    done = facts.ran(TOOLKIT)
    if done is None or done.code:
        yield warn(
            "nvidia-ctk is not installed: after the next driver upgrade nothing can renew the CDI spec.",
            "sudo apt install nvidia-container-toolkit-base",
        )
        return
    words = done.out.strip().partition("\n")[0]
    if facts.file(REFRESH) is None:
        yield note(
            f"{words}: it does not renew the CDI spec by itself, 1.18 does.", f"After a driver upgrade: {GENERATE}"
        )
    else:
        yield ok(f"{words}; nvidia-cdi-refresh renews the CDI spec ({REFRESH}).")
