"""Ground for scripts that bring someone else's programs before the gateway: their programs, and a daemon of one's own.

Environments are kept in the user's cache, named by what they are made from, so that a second run and another clone find them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PIP = ("-m", "pip", "-q", "--disable-pip-version-check")


def environment(requirements: Path, *, more: Callable[[Path], None] | None = None) -> Path:
    """A folder with `venv`, in which `requirements` are installed, and whatever `more` puts beside it."""
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "sparkdash-tests" / f"{requirements.parent.name}-{requirements.stem}-{key}"
    if (home / ".done").exists():
        return home
    print(f"Installing {requirements.name} into {home} …", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    subprocess.run([home / "venv/bin/python", *PIP, "install", "-r", requirements], check=True)
    if more is not None:
        more(home)
    (home / ".done").touch()
    return home


@contextmanager
def started(argv: list[str | Path], says: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A program, and what `says` finds in the first line that matches on its stderr; ended at the end."""
    process = subprocess.Popen([*map(str, argv)], stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if found := re.search(says, line):
            break
    else:
        raise SystemExit("".join(seen))
    drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
    try:
        yield found[1]
    finally:
        process.terminate()
        process.wait()
        drain.wait()


def folders(root: Path) -> dict[str, str]:
    """Variables that have sparkdash live under `root` alone."""
    return {f"SPARKDASH_{name}_DIR": str(root / name.lower()) for name in ("CONFIG", "STATE", "RUNTIME")}


@contextmanager
def daemon(root: Path, profiles: Mapping[str, str], **settings: Any) -> Iterator[str]:
    """The address, without /v1, of a daemon in folders of its own under `root`, which serves these profiles (name: YAML)."""
    env = folders(root)
    shelf = root / "config" / "profiles"
    shelf.mkdir(parents=True)
    for name, text in profiles.items():
        (shelf / f"{name}.yaml").write_text(text)
    first = 20_000 + os.getpid() % 120 * 100  # others may run beside; below 32768 no client's port is met
    given: dict[str, Any] = {
        "shipped_profiles": False,
        "runtime": "process",
        "reserve_gib": 0,
        "cache_dir": str(root / "cache"),
    }
    given |= {"engine_ports": [first, first + 99]}
    names = settings.pop("model_names", {})
    lines = [f"{key} = {json.dumps(value)}" for key, value in (given | settings).items()]
    lines += ["[model_names]", *(f"{json.dumps(word)} = {json.dumps(name)}" for word, name in names.items())]
    (root / "config" / "config.toml").write_text("\n".join(lines) + "\n")
    serve = [sys.executable, "-m", "sparkdash", "serve", "--port", "0"]
    with started(serve, r"serving.*url=(http://\S+)/v1", env) as address:
        try:
            yield address
        finally:
            stop = [sys.executable, "-m", "sparkdash", "stop", "--all"]
            subprocess.run(stop, env={**os.environ, **env}, capture_output=True, check=False)
