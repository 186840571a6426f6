"""A podman that starts plain processes, and that hangs while the file `wedged` lies in its folder.

For the wedge drill: on a Spark short of memory the real one has blocked for minutes. Its folder is FAKE_PODMAN.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_PODMAN"])
LOOK_S = 0.2


def hang_if_wedged() -> None:
    """Says nothing and does nothing until the drill is over."""
    while (FOLDER / "wedged").exists():
        time.sleep(LOOK_S)


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """Read a container's record; end the program as podman does when there is none."""
    try:
        container: dict[str, Any] = json.loads(file_of(name).read_text())
    except OSError:
        sys.exit(f"Error: no such container {name}")
    try:
        state = Path(f"/proc/{container['pid']}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        state = "Z"
    return {**container, "running": state != "Z"}


def run(words: list[str]) -> None:
    """`run -d --name N --label K=V -e K=V --entrypoint P … IMAGE ARGS…`; every other flag has one value, and no effect."""
    name, entry, labels, env = "", "", {}, dict(os.environ)
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in ("-d", "--replace") or "=" in flag:
            continue
        value = words.pop(0)
        if flag == "--name":
            name = value
        elif flag == "--entrypoint":
            entry = value
        elif flag == "--label":
            labels.update([value.split("=", 1)])
        elif flag == "-e" and "=" in value:
            env.update([value.split("=", 1)])
    image, *args = words
    with (FOLDER / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [entry, *args], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    known = {"name": name, "image": image, "labels": labels, "pid": process.pid, "at": int(time.time())}
    file_of(name).write_text(json.dumps(known))
    print("0" * 64)


def inspect(names: list[str]) -> None:
    found = []
    for container in map(read, names):
        running = container["running"]
        state = {
            "Status": "running" if running else "exited",
            "Pid": container["pid"] if running else 0,
            "ExitCode": 137,
        }
        found.append({
            "Id": "0" * 64, "Name": container["name"], "ImageName": container["image"],
            "State": {**state, "StartedAt": container["at"]}, "Config": {"Labels": container["labels"]},
        })  # fmt: skip
    print(json.dumps(found))


def wait(name: str) -> None:
    """Until the process has ended; by then it may hang."""
    pid = read(name)["pid"]
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    hang_if_wedged()
    print(137)


def end(name: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(read(name)["pid"], signal.SIGKILL)


def main(verb: str, *words: str) -> None:
    hang_if_wedged()
    if verb == "run":
        run(list(words))
    elif verb == "inspect":
        inspect(list(words[2:]))
    elif verb == "wait":
        wait(words[-1])
    elif verb == "logs":
        print((FOLDER / f"{words[-1]}.log").read_text())
    elif verb == "top":
        print("HPID", read(words[0])["pid"])
    elif verb in ("stop", "rm"):
        end(words[-1])
        if verb == "rm":
            file_of(words[-1]).unlink(missing_ok=True)


if __name__ == "__main__":
    main(*(word for word in sys.argv[1:] if word != "--log-level=fatal"))
