"""`sparkdash serve` as a child process of a test, in folders of its own.

Owns: starting it, talking to it, and its end. `tests/conftest.py` makes them (`new_daemon`).
"""

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import programs
from own_run import engine_ports

from sparkdash import paths

FOLDERS = ("CONFIG", "STATE", "RUNTIME", "CACHE")


def own_folder_variables(root: Path) -> dict[str, str]:
    """Variables that put settings, state and socket below `root`, whose folders are made."""
    for name in FOLDERS:
        (root / name.lower()).mkdir(exist_ok=True, parents=True)
    return {f"SPARKDASH_{name}_DIR": str(root / name.lower()) for name in FOLDERS}


def ready_engines(state: dict[str, Any]) -> set[str]:
    """Profiles whose engine serves."""
    return {name for name, engine in state["engines"].items() if engine["state"] == "ready"}


class Api:
    """Requests to a daemon, whoever started it."""

    def __init__(self, url: str = "") -> None:
        self.url = url

    def call(
        self, method: str, path: str, body: Any = None, timeout: float = 60, key: str | None = None
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def get(self, path: str) -> Any:
        status, body = self.call("GET", path)
        assert status == 200, body
        return body

    def post(self, path: str, body: Any, timeout: float = 60) -> Any:
        status, answer = self.call("POST", path, body, timeout)
        assert status < 300, answer
        return answer

    def state(self) -> dict[str, Any]:
        return self.get("/api/state")

    def until(self, holds: Callable[[dict[str, Any]], Any], timeout: float = 110) -> dict[str, Any]:
        """Follow the event feed until the snapshot satisfies `holds`; no polling."""
        request = urllib.request.Request(self.url + "/api/events")
        deadline = time.monotonic() + timeout
        with urllib.request.urlopen(request, timeout=timeout) as feed:
            for line in feed:
                if line.startswith(b"data:"):
                    state = self.state()
                    if holds(state):
                        return state
                assert time.monotonic() < deadline, f"it did not come within {timeout:g} s"
        raise AssertionError("the feed ended")


@contextmanager
def served(*words: str, **how: Any) -> Iterator[tuple[subprocess.Popen[str], Api]]:
    """Run a command of sparkdash that serves, and wait until it says where; it is told to end when it is left."""
    with programs.Program(["-m", "sparkdash", *words], stdout=subprocess.PIPE, text=True, **how) as child:
        try:
            assert child.stdout is not None
            found = next(match for line in child.stdout if (match := re.search(r"http://\S+?(?=/v1)", line)))
            yield child, Api(found[0])
        finally:
            child.send_signal(signal.SIGTERM)


class Daemon(Api):
    """`sparkdash serve` as a child process, in folders of its own under `root`."""

    def __init__(self, root: Path, *, runtime: str, **settings: Any) -> None:
        super().__init__()
        self.root = root
        self.env = {**os.environ, **own_folder_variables(root), "SPARKDASH_RUNTIME": runtime, "NO_COLOR": "1"}
        self.profiles = root / "config" / "profiles"
        self.profiles.mkdir(exist_ok=True)
        given = {"shipped_profiles": False, "cache_dir": str(root / "cache"), "reserve_gib": 0.5}
        values = {**given, "engine_ports": engine_ports(), **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        (root / "config" / "config.toml").write_text("\n".join(lines) + "\n")
        self.program: tuple[str, ...] = ("-m", "sparkdash", "serve", "--port", "0")
        """Arguments of Python; a test may put a daemon of its own together."""
        self.process: subprocess.Popen[str] | None = None
        self.log = root / "daemon.log"

    def containers(self) -> list[str]:
        owner = paths.owner(self.root / "state")
        done = subprocess.run(
            ["podman", "ps", "--all", "--filter", f"label=sparkdash.owner={owner}", "--format", "{{.Names}}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    def write(self, name: str, text: str) -> None:
        """Put a profile file where the daemon reads them."""
        _replace(self.profiles / f"{name}.yaml", text)

    def configure(self, change: Callable[[str], str]) -> str:
        file = self.root / "config" / "config.toml"
        before = file.read_text()
        _replace(file, change(before))
        return before

    def start(self, *program: str) -> "Daemon":
        """Start it, or another program that serves, and wait until its log says that it does."""
        self.process = self.spawn(program or self.program)
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if found := re.search(r"serving.*url=(http://\S+)/v1", line):
                self.url = found[1]
                break
        assert self.url, "".join(seen)
        # what else it says goes to a file, so that its pipe never fills
        with self.process.stderr as rest, self.log.open("a") as file:
            self._drain = subprocess.Popen(["cat"], stdin=rest, stdout=file)
        return self

    def spawn(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """Run this Python where the daemon lives, and hear its stderr."""
        return programs.Program(words, env=self.env, stderr=subprocess.PIPE, text=True)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        self.signal(signal.SIGKILL)
        self.died()

    def died(self) -> int:
        """Wait for the end of one that ends by itself; its exit code."""
        code = self.process.wait(timeout=30)
        self._drain.wait()
        return code

    def end(self, *, engines: bool = True) -> int:
        if self.process.poll() is None:
            if engines:
                self.post("/api/stop", {"profile": None}, timeout=120)
            self.signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self._drain.wait()
        return code

    def sparkdash(self, *argv: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        return programs.run(["-m", "sparkdash", *argv], env=self.env, text=True, timeout=timeout)

    def begin(self, *argv: str) -> subprocess.Popen[str]:
        """Begin a sparkdash command against this daemon, and hear its stderr."""
        return self.spawn(["-m", "sparkdash", *argv])


def _replace(file: Path, text: str) -> None:
    """The whole file at once: a daemon that looks at it meanwhile finds the one or the other, and never an empty one."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text)
    part.replace(file)
