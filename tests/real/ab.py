"""A/B over two real engines, killed in the middle: does a run that goes on measure anything twice?

    sh tests/podman/setup.sh; sh tests/real/setup.sh          # once: podman's small needs, a real vLLM and a tiny model
    .venv/bin/python tests/real/ab.py [--mode standard] [--reps 3] [--context 0,512,2048] [--output 32,150,400]

Two profiles of one tiny model under vLLM's CPU build in podman, plain and with speculation by n-gram, swapped in a
drawn order by `sparkdash ab`. In the second launch, after its second cell, the command gets SIGKILL; the same command is
given again and goes on. Prints the tables in the published layout, and how many finished cells were measured twice. Ends with 1 unless
that is 0 and nothing is missing. The figures are those of a tiny model on this machine's CPU: they show that the command
works, and nothing about a GPU. Not part of the test suite: some ten minutes, most of it the engine's starts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "shared")]  # before this folder, which has a conftest of its own
os.environ.setdefault("CONTAINERS_CONF", str(HERE.parent / "podman" / "containers.conf"))

import tiny_profiles  # noqa: E402 - tests/ is no package
from conftest import Daemon, HostFs  # noqa: E402

ARMS = ("tiny-ab", "tiny-ab/ngram")
"""Named apart from the tests' own, which may run beside it."""
KILLED_IN = "launch 2/"
"""The line of `sparkdash ab` that tells of the second launch."""
KILLED_AFTER = 3
"""Cells that it names in that launch before it is killed: two are closed then, the third is under way."""


def main() -> int:
    """Run, kill, go on, print, and say whether nothing was measured twice."""
    args = arguments()
    engine = HERE / ".engine"
    if not (engine / ".done").exists():
        sys.stderr.write("There is no real vLLM here: run tests/real/setup.sh.\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="sparkdash-ab-") as name:
        root = Path(name)
        daemon = Daemon(root, runtime="podman", reserve_gib=1.0, stop_grace_s=20)
        daemon.write(ARMS[0], tiny_profiles.document(engine.resolve(), HostFs(root), ARMS[0]))
        daemon.start()
        try:
            return measured_twice(daemon, command(root, args))
        finally:
            daemon.end()


def arguments() -> argparse.Namespace:
    """Defaults give a run of some ten minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="standard", choices=("screen", "standard", "careful"))
    parser.add_argument("--reps", type=int, default=3, help="repetitions per cell and launch")
    parser.add_argument(
        "--context", type=lengths, default=(0, 512, 2048), metavar="N,N", help="whole prompts, in tokens"
    )
    parser.add_argument("--output", type=lengths, default=(32, 150, 400), metavar="N,N", help="answers, in tokens")
    return parser.parse_args()


def lengths(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def command(root: Path, args: argparse.Namespace) -> tuple[str, ...]:
    names = dict(zip(args.output, ("short", "medium", "long"), strict=False))
    suite = root / "tiny.yaml"
    suite.write_text(
        yaml.safe_dump(
            {
                "suite": "seeds-small", "version": 1, "about": "the seeds' cells that the tiny model has room for",
                "lengths": {word: tokens for tokens, word in names.items()},
                # the engine computes on the cores that the client runs on: it is late, and counts all the same here
                "lag_limit_ms": 10_000,
                "cells": [{"context": list(args.context), "output": list(args.output), "reps": args.reps}],
            }
        )
    )  # fmt: skip
    return ("ab", *ARMS, "--suite", str(suite), "--mode", args.mode, "--yes")


def measured_twice(daemon: Daemon, argv: tuple[str, ...]) -> int:
    began = time.monotonic()
    killed(daemon, argv)
    before = closed_cells(daemon)
    say(f"Killed after {time.monotonic() - began:.0f} s with {len(before)} cells of a launch finished. Given again:")
    if done := run(daemon, *argv, out=subprocess.DEVNULL):
        return done
    after = closed_cells(daemon)
    twice = sum(count - 1 for count in after.values())
    say(f"Whole after {time.monotonic() - began:.0f} s.\n")
    for metric in ("decode", "e2e"):
        if done := run(daemon, "bench", "export", "last", "--metric", metric):
            return done
    missing = json.loads(daemon.sparkdash("bench", "show", "last", "--json").stdout)["filling"]
    kept = all(after[cell] == 1 for cell in before)
    say(f"\n{len(before)} cells were finished when it was killed, {len(after)} at the end; measured twice: {twice}; ")
    say(f"missing: {sum(one['cells'] for one in missing)}")
    return 0 if kept and not twice and not missing else 1


def killed(daemon: Daemon, argv: tuple[str, ...]) -> None:
    """Run it until it is in the middle of the second launch, and kill it as a power cut would."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkdash", *argv], env=daemon.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    seen: set[str] = set()
    for line in process.stderr:
        sys.stderr.write(line)
        if line.startswith(KILLED_IN) and "ctx" in line:
            seen.add(line)
        if len(seen) == KILLED_AFTER:
            process.kill()
    if process.wait() >= 0:
        raise SystemExit("It ended before it could be killed.")


def run(daemon: Daemon, *argv: str, out: int | None = None) -> int:
    """A command of ours with its words on this terminal, or what it prints to `out`."""
    done = subprocess.run([sys.executable, "-m", "sparkdash", *argv], env=daemon.env, stdout=out, check=False)
    return done.returncode


def closed_cells(daemon: Daemon) -> Counter[tuple[int, str]]:
    """How often each cell of a launch was finished and counts, by the run's own file."""
    (file,) = (daemon.root / "state" / "bench").glob("*/records.jsonl")
    records: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    cells = (one for one in records if one["record"] == "cell" and one["void"] is None)
    return Counter((one["launch"], json.dumps(one["key"], sort_keys=True)) for one in cells)


def say(text: str) -> None:
    """To stdout at once, in order with what the commands print."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
