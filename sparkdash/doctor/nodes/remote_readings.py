"""Readings of a box beyond its NodeFacts; piped to the box, so it uses the standard library alone.

A section that cannot be read is {"problem": "why"} and keeps none of the others.
"""

import json
import os
import pwd
import re
import resource
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

COMMAND_S = 10
PINGS, SMALL, HEADERS = 40, 56, 28
"""Pings of each size, the size of small ones, and the bytes of both headers of a ping."""
INFINIBAND, DEVICES = Path("/sys/class/infiniband"), Path("/dev/infiniband")
LOGIND, LINGER = Path("/run/systemd/users"), Path("/var/lib/systemd/linger")


def run(words: str) -> None:
    request = json.loads(words)
    found: dict[str, Any] = {}
    for section in request["sections"]:
        try:
            found[section] = ASKED[section](request) if section in ASKED else SECTIONS[section]()
        except Exception as error:  # noqa: BLE001 - a section that fails must not hide the others
            found[section] = {"problem": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(found) + "\n")


def text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def printed(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return done.stdout


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []


def images(request: dict[str, Any]) -> dict[str, Any]:
    """Id and digest of each wanted image, None for one that is not here."""
    found: dict[str, Any] = {}
    for name in request["images"]:
        argv = (request["runtime"], "image", "inspect", "--format", "{{.Id}} {{.Digest}}", name)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        words = done.stdout.split()
        found[name] = {"id": words[0], "digest": words[1] if len(words) > 1 else None} if words else None
    return found


def routes(request: dict[str, Any]) -> dict[str, Any]:
    """Route to each address of the other boxes, as `ip -j route get` tells it."""
    found: dict[str, Any] = {}
    for peer in request["peers"]:
        try:
            found[peer] = json.loads(printed("ip", "-j", "route", "get", peer))[0]
        except OSError as error:
            found[peer] = {"problem": str(error)}
    return found


def addresses() -> dict[str, Any]:
    return {"interfaces": json.loads(printed("ip", "-j", "address"))}


def paths(request: dict[str, Any]) -> dict[str, Any]:
    """Pings of the MTU's size, and small ones, to each address of the other boxes in a network of this one."""
    asked: dict[str, list[tuple[int, subprocess.Popen[str]]]] = {}
    for peer, route in routes(request).items():
        mtu = text(Path("/sys/class/net") / route.get("dev", "-") / "mtu")
        if mtu and "gateway" not in route:
            sizes = min(int(mtu), 65535) - HEADERS, SMALL
            asked[peer] = [(size, ping(peer, size)) for size in sizes]
    return {peer: answers(*tries) for peer, tries in asked.items()}


def ping(peer: str, size: int) -> subprocess.Popen[str]:
    argv = ("ping", "-q", "-n", "-M", "do", "-c", str(PINGS), "-i", "0.05", "-W", "1", "-s", str(size), peer)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def answers(whole: tuple[int, subprocess.Popen[str]], small: tuple[int, subprocess.Popen[str]]) -> dict[str, int]:
    came = [re.search(r"(\d+) (?:packets )?received", done.communicate()[0]) for _, done in (whole, small)]
    counts = [int(found[1]) if found else 0 for found in came]
    return {"size": whole[0] + HEADERS, "sent": PINGS, "whole": counts[0], "small": counts[1]}


def active_mtus() -> dict[str, int]:
    """Bytes of a packet by RDMA device, as `ibv_devinfo` tells them; sysfs does not."""
    try:
        told = printed("ibv_devinfo")
    except OSError:
        return {}
    found = re.findall(r"hca_id:\s*(\S+)|active_mtu:\s*(\d+)", told)
    return {device: int(mtu) for (device, _), (_, mtu) in pairwise(found) if device and mtu}


def hcas() -> dict[str, Any]:
    """RDMA ports of sysfs: state, rate, interfaces (kernel ABI sysfs-class-infiniband)."""
    mtus = active_mtus()
    ports = [
        {
            "hca": device,
            "port": int(port),
            "state": text(INFINIBAND / device / "ports" / port / "state"),
            "rate": text(INFINIBAND / device / "ports" / port / "rate"),
            "netdevs": names_in(INFINIBAND / device / "device" / "net"),
            "active_mtu": mtus.get(device),
        }
        for device in names_in(INFINIBAND)
        for port in names_in(INFINIBAND / device / "ports")
    ]
    return {"ports": ports}


def memory() -> dict[str, Any]:
    return {"meminfo": Path("/proc/meminfo").read_text()}


def memlock() -> dict[str, Any]:
    """Limits of locked memory in bytes, None without a limit."""
    limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    soft, hard = (None if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return {"soft": soft, "hard": hard, "uid": os.getuid()}


def devices() -> dict[str, Any]:
    """Files of /dev/infiniband, and which of them this user may use."""
    names = names_in(DEVICES)
    return {"names": names, "usable": [name for name in names if os.access(DEVICES / name, os.R_OK | os.W_OK)]}


def linger() -> dict[str, Any]:
    """Whether logind lets this user's processes live on after the last logout (loginctl(1), enable-linger)."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return {"uid": os.getuid(), "user": user, "logind": LOGIND.is_dir(), "lingers": (LINGER / user).exists()}


ASKED = {"images": images, "routes": routes, "paths": paths}
SECTIONS = {each.__name__: each for each in (addresses, hcas, memory, memlock, devices, linger)}
