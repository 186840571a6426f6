"""Where the clients come from: environments and a folder of node's in the user's cache, made once.

Owns: that. Must not know how clients are asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ground
from clients import Client

HERE = Path(__file__).parent


def installed(client: Client) -> tuple[Path, str]:
    package = client.package or client.name
    if client.npm:
        modules = from_npm(package) / "node_modules"
        return modules / ".bin", json.loads((modules / package / "package.json").read_text())["version"]
    wanted = HERE / f"{client.needs or client.name}.txt"
    (version,) = re.findall(rf"^{package}==(\S+)", wanted.read_text(), re.MULTILINE)
    return ground.environment(wanted) / "venv" / "bin", version


def from_npm(package: str) -> Path:
    """A folder with this package and the Node that runs it, each of the version in package.json."""
    wanted = HERE / "package.json"
    versions = json.loads(wanted.read_text())["dependencies"]
    key = hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkdash-tests" / f"clients-npm-{key}"
    names = ("node", package, "@ai-sdk/openai-compatible") if package == "ai" else ("node", package)
    silent = ("--silent", "--no-audit", "--no-fund")
    for name in names:  # one after the other: OpenClaw's set-up asks for the Node that it will run with
        if not (home / "node_modules" / name).exists():
            print(f"Installing {name} into {home} …", file=sys.stderr)
            home.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--prefix", home, *silent, f"{name}@{versions[name]}"], check=True)
    return home
