"""Facts of the box that this module runs on, printed as one JSON object. `nodes.programs` ships it.

Standard library alone, Python 3.10.
"""

import fcntl
import json
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SIOCGIFADDR = 0x8915
SIOCGIFNETMASK = 0x891B
NET = Path("/sys/class/net")
RDMA = Path("/sys/class/infiniband")
BOOT = Path("/proc/sys/kernel/random/boot_id")
LOOK_S = 10
_DOCKER_FORMATS = "{{.Server.Version}}", "{{.DockerRootDir}}"
"""Formats of `version` and `info`: the version, and the folder of the images' layers."""
_PODMAN_FORMATS = "{{.Client.Version}}", "{{.Store.GraphRoot}}"


def read_text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    text = read_text(path)
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


def output_of(*argv: str) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LOOK_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def ipv4(interface: str, what: int) -> bytes | None:
    """Ask the kernel for the interface's IPv4 address or netmask, as 4 bytes; None without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return fcntl.ioctl(asked.fileno(), what, struct.pack("256s", interface.encode()[:15]))[20:24]
        except OSError:
            return None


def hca_of(interface: str) -> tuple[str | None, Path | None]:
    """Return the RDMA device and its port behind the interface; (None, None) without one."""
    for device in sorted(path.name for path in (NET / interface / "device/infiniband").glob("*")):
        for port in sorted((RDMA / device / "ports").glob("*")):
            if interface in {read_text(path) for path in (port / "gid_attrs/ndevs").glob("*")}:
                return device, port
    return None, None


def gid_index(port: Path, interface: str, address: bytes) -> int | None:
    """Return the index of the RoCEv2 GID with the interface's IPv4 address; None without one."""
    mapped = bytes(10) + b"\xff\xff" + address
    for index in range(256):
        text = read_text(port / "gids" / str(index))
        if text is None:
            break
        try:
            found = socket.inet_pton(socket.AF_INET6, text)
        except OSError:
            continue
        kind = read_text(port / "gid_attrs/types" / str(index)) or ""
        ours = read_text(port / "gid_attrs/ndevs" / str(index)) == interface
        if ours and "v2" in kind.lower() and found == mapped:
            return index
    return None


def rate_gbit_s(interface: str, port: Path | None) -> float | None:
    """Return the rate of the RDMA port, or of the interface, in Gb/s; None where the kernel does not tell."""
    found = re.match(r"([\d.]+) Gb", (read_text(port / "rate") if port else None) or "")
    if found:
        return float(found[1])
    speed = read_number(NET / interface / "speed")
    return speed / 1000 if speed and speed > 0 else None


def link_of(interface: str) -> dict[str, Any] | None:
    """Describe one interface; None for loopback, bridges and interfaces without an address."""
    address, mask = ipv4(interface, SIOCGIFADDR), ipv4(interface, SIOCGIFNETMASK)
    if address is None or address[0] == 127 or (NET / interface / "bridge").exists():
        return None
    device, port = hca_of(interface)
    state = read_text(NET / interface / "operstate")
    return {
        "interface": interface,
        "address": socket.inet_ntop(socket.AF_INET, address),
        "prefix": bin(int.from_bytes(mask, "big")).count("1") if mask else None,
        "mtu": read_number(NET / interface / "mtu"),
        "rate_gbit_s": rate_gbit_s(interface, port),
        "up": {"up": True, "down": False, "lowerlayerdown": False}.get(state or ""),
        "hca": device,
        "gid_index": gid_index(port, interface, address) if port else None,
        "hardware": read_text(NET / interface / "address"),
    }


def free_bytes(path: Path) -> int | None:
    """Return the free bytes of the file system of the path or its nearest existing parent; None if unknown."""
    for each in (path, *path.parents):
        if each.exists():
            try:
                return shutil.disk_usage(each).free
            except OSError:
                return None
    return None


def all_links() -> list[dict[str, Any]]:
    """Describe all interfaces with an address: the fastest first, then those with an RDMA device."""
    links = [link for link in map(link_of, sorted(path.name for path in NET.glob("*"))) if link]
    return sorted(links, key=lambda link: (-(link["rate_gbit_s"] or 0), link["hca"] is None, link["interface"]))


def driver_versions() -> dict[str, str | None]:
    """Return the versions of the GPU's driver and of CUDA, as nvidia-smi names them."""
    text = output_of("nvidia-smi") or ""
    found = {key: re.search(rf"{key} version:\s*([\d.]+)", text, re.IGNORECASE) for key in ("driver", "cuda")}
    return {key: match[1] if match else None for key, match in found.items()}


def read_facts(program: str, hf_home: str) -> dict[str, Any]:
    home = Path.home()
    weights = Path(hf_home).expanduser() if hf_home else home / ".cache/huggingface"
    version, layers = _DOCKER_FORMATS if program == "docker" else _PODMAN_FORMATS
    images = output_of(program, "info", "--format", layers)
    free = [free_bytes(path) for path in (weights, *([Path(images)] if images else ()))]
    return {
        "hostname": socket.gethostname(),
        "arch": platform.machine(),
        "home": str(home),
        "uid": os.getuid(),
        "runtime_version": output_of(program, "version", "--format", version),
        **driver_versions(),
        "kernel": platform.release(),
        "boot": read_text(BOOT),
        "disk_free": min((one for one in free if one is not None), default=None),
        "links": all_links(),
        "now": time.time(),
    }


def run(program: str, hf_home: str) -> None:
    """Print the facts. `hf_home`: the Hugging Face cache, or "" for the usual one."""
    sys.stdout.write(json.dumps(read_facts(program, hf_home)) + "\n")
