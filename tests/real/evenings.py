"""The published 4 x 4 matrix of Qwen3-Coder, filled by four runs of `sparkdash ab` and merged, row for row.

    .venv/bin/python tests/real/evenings.py [--speed 40] [--reps 2] [--mode screen] [--keep matrix.md]

Each evening is a process of its own: a demo is started, `sparkdash ab` measures one build in its four modes with the
cells of the suite `seeds`, and the demo ends. Nothing but the runs' folder is left for the next evening.
Then `sparkdash bench export --matrix --layout qwen3-coder` merges the runs. Ends with 1 unless its tables have the
headings, rows and columns of the published document in the same order, a rate in every place where that has one, the
reason in each of the MTP rows, and the run of every table beneath it. The engines are simulated, so the figures are not
the document's. Not part of the test suite: some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared")]
import frozen_checkout  # noqa: E402 - tests/ is no package

frozen_checkout.run_from_copy(__file__)

from sparkdash.bench.plan import suites  # noqa: E402

FAMILY = "qwen3-coder-30b-nvfp4"
EVENINGS = ("vllm-next", "", "turbo-dual", "turbo2")
MODES = ("", "eagle3", "mtp-1", "mtp-2")
PUBLISHED = HERE.parent / "bench" / "published" / "qwen3-coder.md"
FIRST, LAST = "## Baseline: vLLM-next FLASHINFER_CUTLASS (existing)", "## What can be claimed"
READY = "serves "
RESUMES = 3


def main() -> int:
    """Measure four evenings, merge them, and return the exit code."""
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="sparkdash-evenings-") as name:
        root = Path(name)
        env = {**os.environ, "NO_COLOR": "1", "SPARKDASH_BENCH_DIR": str(root / "bench")}
        env |= {f"SPARKDASH_{word}_DIR": str(root / word.lower()) for word in ("CONFIG", "STATE", "RUNTIME")}
        suite = fitted_suite(root)
        for number, build in enumerate(EVENINGS, 1):
            began = time.monotonic()
            runs = len(list((root / "bench").glob("2*")))
            evening(env, build, suite, args)
            made = len(list((root / "bench").glob("2*"))) - runs
            say(f"Evening {number}, {build or 'turbo'}: {made} run, {time.monotonic() - began:.0f} s.")
        merged = root / "matrix.md"
        run(env, "bench", "export", "--matrix", "--layout", "qwen3-coder", "-o", str(merged))
        text = merged.read_text()
        if args.keep:
            args.keep.write_text(text)
        faults = compared(text, PUBLISHED.read_text().splitlines())
    say("\n".join(faults) or "Row for row in the published layout; every published place has a rate.")
    return 1 if faults else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", type=float, default=40.0, help="how much faster than real the demo runs")
    parser.add_argument("--reps", type=int, default=2, help="repetitions of a cell in a launch")
    parser.add_argument("--mode", default="screen", choices=("screen", "standard", "careful"))
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the merged Markdown here")
    return parser.parse_args()


def fitted_suite(root: Path) -> Path:
    """The suite `seeds` with a wide limit for the client's own lateness: engines and client share this box's cores."""
    found = yaml.safe_load(suites.suite_files()["seeds"].read_text("utf-8"))
    place = root / "seeds.yaml"
    place.write_text(yaml.safe_dump(found | {"lag_limit_ms": 10_000.0, "version": str(found["version"])}))
    return place


def evening(env: dict[str, str], build: str, suite: Path, args: argparse.Namespace) -> None:
    """Start a demo, measure one build in its four modes, and end the demo."""
    words = ["demo", "--headless", "--no-traffic", "--port", "0", "--speed", str(args.speed)]
    demo = subprocess.Popen(
        [sys.executable, "-m", "sparkdash", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert demo.stdout is not None
        told = next(line for line in demo.stdout if READY in line and "http" in line)
        found = re.search(r"http://\S+?(?=/v1)", told)
        assert found is not None
        arms = ["/".join(filter(None, (FAMILY, "-".join(filter(None, (build, mode)))))) for mode in MODES]
        how = ("--suite", str(suite), "--mode", args.mode, "--reps", str(args.reps), "--yes", "--fresh")
        reached = {**env, "SPARKDASH_URL": found[0]}
        run(reached, "ab", *arms, *how)
        for _ in range(RESUMES):  # what a busy machine made void
            if not json.loads(run(env, "bench", "show", "last", "--json"))["filling"]:
                break
            run(reached, "bench", "resume", "--yes")
    finally:
        demo.terminate()
        demo.wait()


def run(env: dict[str, str], *argv: str) -> str:
    """Run a command of ours and return what it prints; raise SystemExit with its words when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "sparkdash", *argv], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def compared(text: str, published: list[str]) -> list[str]:
    """Return what of the merged tables differs from the published ones, figures aside."""
    lines = text.splitlines()
    taken = lines[lines.index(FIRST) : lines.index(LAST)]
    ours = [without_marks(line) for line in taken if line.startswith(("#", "| ", "Math"))]
    faults = [] if len(ours) == len(published) else [f"{len(ours)} rows, {len(published)} are published"]
    for row, theirs in zip(ours, published, strict=False):
        mine, wanted = cells(row), cells(theirs)
        if not row.startswith("|"):
            same = theirs.startswith("Math") if row.startswith("Math") else without_rate(row) == without_rate(theirs)
        else:
            same = len(mine) == len(wanted) and mine[0] == wanted[0]
            same &= all(
                figure not in ("", "-", "—") for figure, other in zip(mine, wanted, strict=False) if is_figure(other)
            )
        if not same:
            faults.append(f"{row!r} stands for {theirs!r}")
    if text.count("cannot run: Qwen3-Coder-30B-A3B has no MTP head") < len(EVENINGS):
        faults.append("an MTP table lacks its reason")
    if len(named := set(re.findall(r"run (\d{8}-\d{6}-seeds-\w+)", text))) != len(EVENINGS):
        faults.append(f"{len(named)} runs are named below the tables")
    return faults


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def is_figure(text: str) -> bool:
    """Whether the published place has a measured rate or change; right answers are another suite's."""
    return bool(re.fullmatch(r"\**([0-9.]+|[+-][0-9.]+%)\**", text))


def without_rate(heading: str) -> str:
    return re.sub(r"\([0-9.]+ tok/s\)", "", heading).strip()


def without_marks(line: str) -> str:
    """A row without the marks of notes and the brackets of differences that cannot be claimed."""
    return re.sub(r"\(([+-][0-9.]+%)\)", r"\1", re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]", "", line))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
