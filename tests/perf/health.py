"""How long `/health` takes while podman fails: `sparkdash serve`, whole, on a podman that misbehaves in every way.

    .venv/bin/python tests/perf/health.py [--each 3]

Two profiles of one tiny engine take turns on the tests' stand-in for podman (plain processes). For every verb of podman and every
way to fail (it hangs, exits 125, loses its output, prints garbage, is killed) somebody asks for the other profile, and
`--each` seconds later podman is well again. All the while this process asks /health every 10 ms, over one connection that
nobody else uses. Told are the answers, and the longest that one took, by the way to fail. Not part of the test suite.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from relays import Program, free_port

FAULTS = Path(__file__).parents[1] / "faults"
VERBS = ("ps", "inspect", "image", "run", "logs", "wait", "top", "stop", "rm")
WAYS = ("hang", "125", "silent", "garbage", "killed")
PAUSE_S = 0.01
PROFILE = """\
profile: {name}
about: the tests' tiny engine
engine: vllm
image: image
gpu: false
models: {{target: {{hf: org/model}}}}
command: [{python}, -SEs, {engine}]
memory: {{weights_gib: 0.1, kv_gib: 0, overhead_gib: 0, source: the benchmark}}
"""


class Asker(threading.Thread):
    """Somebody who asks /health all the time; seconds per answer, by what was wrong meanwhile."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.now = "nothing"
        self.over = False
        self.took: dict[str, list[float]] = defaultdict(list)

    def run(self) -> None:
        while not self.over:
            what, began = self.now, time.monotonic()
            self.line.request("GET", "/health")
            answer = self.line.getresponse()
            assert answer.status == 200
            answer.read()
            self.took[what].append(time.monotonic() - began)
            time.sleep(PAUSE_S)


def main() -> int:
    """Run and tell; ends with 1 when an answer took longer than the design allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=float, default=3.0, help="seconds that podman misbehaves in each way")
    each = parser.parse_args().each
    with tempfile.TemporaryDirectory() as root, served(Path(root)) as port:
        get(port, "/health")  # it listens before it serves
        asker = Asker(port)
        asker.start()
        try:
            fail_in_every_way(port, asker, Path(root), each)
        finally:
            asker.over = True
            asker.join()
    return told(asker.took)


def fail_in_every_way(port: int, asker: Asker, root: Path, each: float) -> None:
    """One after the other, and well again in between."""
    swap(port, "a")
    for how, verb in product(WAYS, VERBS):
        asker.now = how
        (root / f"fault.{verb}").write_text(how)
        swap(port, "b", patience_s=each)
        (root / f"fault.{verb}").unlink()
        asker.now = "nothing"
        post(port, "/api/release", {"profile": None})
        swap(port, "a")
    post(port, "/api/stop", {"profile": None})


@contextmanager
def served(root: Path) -> Iterator[int]:
    """The daemon on the failing podman; the port that it serves on."""
    (root / "bin").mkdir()
    (root / "profiles").mkdir()
    podman = root / "bin/podman"
    podman.write_text(f"#!/bin/sh\nPYTHON={sys.executable} HERE={FAULTS}\n{(FAULTS / 'podman.sh').read_text()}")
    podman.chmod(0o755)
    for name in "ab":
        text = PROFILE.format(name=name, python=sys.executable, engine=FAULTS / "engine.py")
        (root / "profiles" / f"{name}.yaml").write_text(text)
    port = free_port()
    folders = {f"SPARKDASH_{name}_DIR": str(root / name.lower()) for name in ("CONFIG", "STATE", "RUNTIME")}
    (root / "config").mkdir()
    settings = f'stop_grace_s = 1\nreserve_gib = 0.5\nguard = "off"\nside_by_side = false\ncache_dir = "{root}/cache"\nshipped_profiles = false\n'
    (root / "config" / "config.toml").write_text(settings)
    argv = [sys.executable, "-m", "sparkdash", "serve", "--port", str(port), "--profiles", str(root / "profiles")]
    path = f"{root / 'bin'}:{os.environ['PATH']}"
    daemon = Program([*argv, "--runtime", "podman"], port, PATH=path, FAKE_PODMAN=str(root), **folders)
    try:
        yield port
    finally:
        daemon.end()


def swap(port: int, name: str, patience_s: float = 60.0) -> None:
    """Ask for the profile, and wait until it answers or the time is up."""
    post(port, "/api/use", {"profile": name})
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        engine = get(port, "/api/state")["engines"].get(name)
        if engine and engine["state"] == "ready":
            return
        time.sleep(0.2)


def get(port: int, path: str) -> dict[str, dict[str, dict[str, str]]]:
    return call(port, "GET", path)


def post(port: int, path: str, body: dict[str, str | None]) -> None:
    with suppress(OSError):
        call(port, "POST", path, json.dumps(body))


def call(port: int, method: str, path: str, body: str | None = None) -> dict[str, dict[str, dict[str, str]]]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request(method, path, body, {"Content-Type": "application/json"})
    answer: dict[str, dict[str, dict[str, str]]] = json.loads(line.getresponse().read() or b"{}")
    line.close()
    return answer


def told(took: dict[str, list[float]]) -> int:
    everything = [one for ones in took.values() for one in ones]
    print("| podman | answers | median ms | p99 ms | longest ms |\n|---|---:|---:|---:|---:|")
    for what, ones in {**took, "all": everything}.items():
        p99 = sorted(ones)[int(len(ones) * 0.99)]
        figures = (statistics.median(ones), p99, max(ones))
        print(f"| {what} | {len(ones)} | " + " | ".join(f"{figure * 1000:.1f}" for figure in figures) + " |")
    return int(max(everything) > 0.1)


if __name__ == "__main__":
    sys.exit(main())
