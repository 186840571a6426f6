"""Where the clients come from: environments and a folder of node's in the user's cache, made once."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from clients import Client

HERE = Path(__file__).parent
PIP = ("-m", "pip", "-q", "--disable-pip-version-check")


def kept(name: str, described: Path) -> Path:
    """A folder in the user's cache, named by what it is made from: a second run and another clone find it."""
    key = hashlib.sha256(described.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sparkdash-tests" / f"clients-{name}-{key}"


def environment(requirements: Path) -> Path:
    """A virtual environment with these requirements."""
    home = kept(requirements.stem, requirements)
    if not (home / ".done").exists():
        print(f"Installing {requirements.name} into {home} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
        subprocess.run([home / "venv/bin/python", *PIP, "install", "-r", requirements], check=True)
        (home / ".done").touch()
    return home / "venv"


def installed(client: Client) -> tuple[Path, str]:
    package = client.package or client.name
    if client.npm:
        modules = from_npm(package) / "node_modules"
        return modules / ".bin", json.loads((modules / package / "package.json").read_text())["version"]
    wanted = HERE / f"{client.needs or client.name}.txt"
    (version,) = re.findall(rf"^{package}==(\S+)", wanted.read_text(), re.MULTILINE)
    return environment(wanted) / "bin", version


def from_npm(package: str) -> Path:
    """A folder with this package and the Node that runs it, each of the version in package.json."""
    wanted = HERE / "package.json"
    versions = json.loads(wanted.read_text())["dependencies"]
    home = kept("npm", wanted)
    names = ("node", package, "@ai-sdk/openai-compatible") if package == "ai" else ("node", package)
    silent = ("--silent", "--no-audit", "--no-fund")
    for name in names:  # one after the other: OpenClaw's set-up asks for the Node that it will run with
        if not (home / "node_modules" / name).exists():
            print(f"Installing {name} into {home} …", file=sys.stderr)
            home.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--prefix", home, *silent, f"{name}@{versions[name]}"], check=True)
    return home
