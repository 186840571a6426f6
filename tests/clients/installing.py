"""Where the clients come from: environments and a folder of node's in the user's cache, made once.

Owns: that. Must not know how clients are asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ground
from clients import Client

HERE = Path(__file__).parent


def installed(client: Client) -> tuple[Path, str]:
    package = client.package or client.name
    if client.npm:
        modules = from_npm() / "node_modules"
        return modules / ".bin", json.loads((modules / package / "package.json").read_text())["version"]
    wanted = HERE / f"{client.needs or client.name}.txt"
    (version,) = re.findall(rf"^{package}==(\S+)", wanted.read_text(), re.MULTILINE)
    return ground.environment(wanted) / "venv" / "bin", version


def from_npm() -> Path:
    wanted = HERE / "package.json"
    key = hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkdash-tests" / f"clients-npm-{key}"
    if not (home / ".done").exists():
        print(f"Installing {wanted.name} into {home} …", file=sys.stderr)
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, home)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=home, check=True)
        (home / ".done").touch()
    return home
