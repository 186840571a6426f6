"""Every suite end to end over two engines, killed in the middle and resumed: is it whole, and is a word said of each cell?

    .venv/bin/python tests/real/suites.py                       # simulated engines, the shipped suites as they are
    sh tests/podman/setup.sh; sh tests/real/setup.sh            # once: podman's small needs, a real vLLM and a tiny model
    .venv/bin/python tests/real/suites.py --real --together --ends --reps 4

For each suite: `sparkdash ab A B --suite S --mode standard --yes` gets SIGKILL in the middle of a cell when half of its
samples are written; `sparkdash bench resume` measures the rest. Then the report must be printed without a traceback, each
planned sample must count exactly once, no finished cell may have been measured again, and each cell of each table must
have a verdict or a reason. Ends with 1 unless all of that holds for every suite.

`--real` takes two vLLMs in podman, and leaves out the contexts that the tiny model has no room for. `--together` measures
the cells of all suites in one run, which is killed once in a cell of each: that saves most of the engine's starts. The
suites are the shipped files with a wide limit for the client's own lateness, since the engines compute on the client's
cores. The script runs from a copy of the checkout, which may be updated meanwhile. Not part of the test suite: with
`--real` a quarter of an hour for `--together`, else some five minutes a suite.
"""

from __future__ import annotations

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
import frozen_checkout  # noqa: E402 - tests/ is no package

frozen_checkout.run_from_copy(__file__)
os.environ.setdefault("CONTAINERS_CONF", str(HERE.parent / "podman" / "containers.conf"))

import tiny_profiles  # noqa: E402
from conftest import Daemon, HostFs  # noqa: E402

from sparkdash.bench import run_folder  # noqa: E402
from sparkdash.bench.plan import suites  # noqa: E402
from sparkdash.bench.results import Results  # noqa: E402
from sparkdash.bench.run import Mode, Run  # noqa: E402

SUITES = ("concurrency", "arena", "prefix", "math", "seeds", "paired", "batch")
ARMS = {False: ("plain", "fast"), True: ("tiny-suites", "tiny-suites/ngram")}
"""By whether the engines are real. Containers of this name belong to no test."""
ROOM = 4096
"""Tokens of the tiny model's context, prompt and answer together."""
RESUMES = 4
"""Attempts at filling what a busy machine made void."""
STEP_S = 0.02
ENGINE = """\
profile: {name}
engine: sim
context: 262144
sim:
  load_s: 0.2
  memory_gib: 0.1
  time_scale: {pace}
  kv_tokens: 4000000
  acceptance: {acceptance}
  speeds: [{{context: 0, decode_tok_s: {rate}, prefill_tok_s: 20000}}]
"""


def main() -> int:
    """Run every suite asked for, print a line of figures for each, and return the exit code."""
    args = arguments()
    engine = HERE / ".engine"
    if args.real and not (engine / ".done").exists():
        sys.stderr.write("There is no real vLLM here: run tests/real/setup.sh.\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="sparkdash-suites-") as name:
        root = Path(name)
        if args.real:
            daemon = Daemon(root, runtime="podman", reserve_gib=1.0, stop_grace_s=20)
            daemon.write("tiny-suites", tiny_profiles.document(engine.resolve(), HostFs(root), "tiny-suites"))
        else:
            daemon = Daemon(root, runtime="process")
            for arm, acceptance, rate in (("plain", "[]", 40), ("fast", "[0.6]", 60)):
                daemon.write(arm, ENGINE.format(name=arm, acceptance=acceptance, rate=rate, pace=args.pace))
        daemon.start()
        try:
            asked = (tuple(args.suites),) if args.together else tuple((name,) for name in args.suites)
            faults = [fault for names in asked for fault in SuiteRun(daemon, names, args).faults()]
        finally:
            daemon.end()
    return 1 if faults else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=SUITES, metavar="SUITE")
    parser.add_argument("--real", action="store_true", help="two real vLLMs in podman instead of simulated engines")
    parser.add_argument("--reps", type=int, help="most repetitions of a cell in a launch; else the suite's own")
    parser.add_argument("--ends", action="store_true", help="of each row of lengths keep the shortest and the longest")
    parser.add_argument("--together", action="store_true", help="all suites' cells in one run, killed once in each's")
    parser.add_argument("--pace", type=float, default=50.0, help="how much faster than real the simulated engines are")
    return parser.parse_args()


class SuiteRun:
    """One suite, or the cells of several: run, killed once for each, resumed, checked."""

    def __init__(self, daemon: Daemon, names: tuple[str, ...], args: argparse.Namespace) -> None:
        self._daemon = daemon
        self._name = "-".join(names) if len(names) == 1 else "together"
        self._arms = ARMS[args.real]
        self._file = daemon.root / f"{self._name}.yaml"
        parts = [fitted(name, args, ROOM if args.real else None) for name in names]
        whole = {"suite": self._name, "version": "1", "about": "several", "lag_limit_ms": 10_000.0}
        if len(parts) == 1 and "corpus" in parts[0]:
            whole["corpus"] = parts[0]["corpus"]
        self._file.write_text(yaml.safe_dump(whole | {"cells": [cell for part in parts for cell in part["cells"]]}))
        self._parts = [part_keys(part) for part in parts]
        """Keys of each suite's cells without the suite's name."""
        self._faults: list[str] = []

    def faults(self) -> tuple[str, ...]:
        """Run it to its end; print what was measured and return what is wrong."""
        began = time.monotonic()
        befores = [self._killed(number) for number in range(len(self._parts))]
        killed_s = time.monotonic() - began
        tries, printed = self._resumed()
        after = self._results()
        for before in befores:
            self._check_records(before, after)
        self._check_whole(after)
        self._check_report(printed)
        claims = self._claims()
        voids = sum(one.void is not None for one in after.cells)
        say(
            f"{self._name}: {len(after.run.cells)} cells, {len(after.run.order)} launches, {planned_samples(after.run)} "
            f"samples; {len(befores)} kills, the last after {killed_s:.0f} s, with "
            f"{'/'.join(str(len(one.cells)) for one in befores)} cells finished; whole after "
            f"{time.monotonic() - began:.0f} s and {tries} more resumes; {len(after.launches)} starts; void cells {voids}; "
            f"claims {dict(claims)}; {'; '.join(self._faults) or 'nothing wrong'}"
        )
        return tuple(self._faults)

    def _killed(self, number: int) -> Results:
        """Begin or resume, and kill the command in the middle of a cell of that suite; what it left."""
        begun = ("ab", *self._arms, "--suite", str(self._file), "--mode", "standard", "--yes", "--fresh")
        argv = ("bench", "resume", "--yes") if number else begun
        bench = self._daemon.root / "state" / "bench"
        older = set() if number else set(run_folder.list_runs(bench))
        with (self._daemon.root / f"{self._name}.err").open("w") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "sparkdash", *argv], env=self._daemon.env, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=said,
            )  # fmt: skip
            while process.poll() is None:
                made = [place for place in run_folder.list_runs(bench) if place not in older]
                if made and self._is_the_moment(made[0], number):
                    process.kill()
                    break
                time.sleep(STEP_S)
        if process.wait() >= 0:
            self._faults.append(f"ended with {process.returncode} before it could be killed")
            say((self._daemon.root / f"{self._name}.err").read_text()[-2000:])
        return self._results()

    def _is_the_moment(self, place: Path, number: int) -> bool:
        """Whether a cell of that suite is open; of a single suite also, whether half of its samples are written."""
        try:
            lines = (place / "records.jsonl").read_text().splitlines()
            run = run_folder.read_run(place)
            last = json.loads(lines[-1])
        except (OSError, ValueError, IndexError):
            return False
        if last["record"] != "sample" or plain_key(last["cell"]) not in self._parts[number]:
            return False
        if len(self._parts) > 1:
            return bool(last["launch"] >= number * len(run.order) // len(self._parts))
        return sum('"record":"sample"' in line for line in lines) >= planned_samples(run) / 2

    def _resumed(self) -> tuple[int, str]:
        """Resume until nothing is missing; the number of attempts and the last report."""
        attempt = 0
        while attempt < RESUMES:
            attempt += 1
            done = subprocess.run(
                [sys.executable, "-m", "sparkdash", "bench", "resume", "--yes"],
                env=self._daemon.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode or "Traceback" in done.stderr:
                self._faults.append(f"resume ended with {done.returncode}: {done.stderr[-1500:]}")
            if done.returncode or not self._results().gaps():
                break
        return attempt, done.stdout

    def _results(self) -> Results:
        return run_folder.read_results(run_folder.list_runs(self._daemon.root / "state" / "bench")[0])

    def _check_records(self, before: Results, after: Results) -> None:
        """Nothing that was written has changed, and nothing that was finished was measured again."""
        if after.cells[: len(before.cells)] != before.cells:
            self._faults.append("what was written before the kill has changed")
        finished = Counter((one.launch, one.key) for one in after.cells if one.void is None)
        if again := [one for one in before.cells if one.void is None and finished[one.launch, one.key] > 1]:
            self._faults.append(f"{len(again)} finished cells were measured again")

    def _check_whole(self, after: Results) -> None:
        """Each planned sample counts once."""
        if after.damaged or after.gaps():
            self._faults.append(f"{len(after.gaps())} gaps left, {len(after.damaged)} lines damaged")
        counted = Counter((one.launch, one.cell, one.rep, one.stream) for one in after.samples if one.void is None)
        if twice := sum(count - 1 for count in counted.values()):
            self._faults.append(f"{twice} samples count twice")
        if len(counted) != planned_samples(after.run):
            self._faults.append(f"{len(counted)} samples count, {planned_samples(after.run)} are planned")

    def _check_report(self, printed: str) -> None:
        """A report with every arm, and a verdict or a reason in each of its cells."""
        if not all(arm in printed for arm in self._arms):
            self._faults.append(f"no report: {printed[-500:]!r}")
        say(printed)

    def _claims(self) -> Counter[str]:
        """How often each claim stands in the report; a cell without figure or judgement needs a reason."""
        done = self._daemon.sparkdash("bench", "show", "last", "--json")
        if done.returncode:
            self._faults.append(f"show ended with {done.returncode}: {done.stderr[-500:]}")
            return Counter()
        shown = json.loads(done.stdout)
        claims: Counter[str] = Counter()
        for table in shown["tables"]:
            for row in table["rows"]:
                for figure in row["figures"]:
                    verdict = figure["verdict"]
                    claims[verdict["claim"]] += 1
                    if verdict["delta"] is None and not verdict["reason"] and figure["arm"] != shown["run"]["baseline"]:
                        self._faults.append(f"no word on {table['metric']} of {row['key']}: {verdict}")
        claims["scores"] = len(shown["scores"])
        return claims


def fitted(name: str, args: argparse.Namespace, room: int | None) -> dict[str, Any]:
    """The shipped suite with fewer repetitions or lengths, and without contexts that overrun `room` tokens."""
    found: dict[str, Any] = yaml.safe_load(suites.suite_files()[name].read_text("utf-8"))
    for cell in found["cells"]:
        longest = max(listed(cell["output"]))
        contexts = listed(cell.get("context", 0))
        fitting = [each for each in contexts if room is None or each + longest <= room - 64]
        cell["context"] = fitting or [(room or 0) - 64 - longest]
        if args.ends:
            cell |= {word: ends(listed(cell[word])) for word in ("context", "output", "concurrency") if word in cell}
        if args.reps is not None:
            cell["reps"] = min(cell.get("reps", args.reps), args.reps)
    return found | {"lag_limit_ms": 10_000.0, "version": str(found["version"])}


def listed(value: Any) -> list[int]:
    return value if isinstance(value, list) else [value]


def ends(values: list[int]) -> list[int]:
    return values if len(values) < 3 else [values[0], values[-1]]


def part_keys(part: dict[str, Any]) -> set[str]:
    """The cells of a suite, as `plain_key` writes them."""
    planned = suites.Suite.model_validate(part).planned(Mode.STANDARD)
    return {plain_key(cell.key.model_dump(mode="json")) for cell in planned}


def plain_key(cell: dict[str, Any]) -> str:
    return json.dumps({word: value for word, value in cell.items() if word != "suite"}, sort_keys=True)


def planned_samples(run: Run) -> int:
    """Requests that the run plans, warm-ups aside."""
    return sum(cell.reps * cell.key.concurrency for index in range(len(run.order)) for cell in run.planned(index))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
