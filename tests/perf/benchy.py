"""sparkdash's bench beside llama-benchy, on the same cells: do two clients that share no code give one figure?

    python3 -m venv /tmp/benchy && /tmp/benchy/bin/pip install llama-benchy==0.4.0
    .venv/bin/python tests/perf/benchy.py --benchy /tmp/benchy/bin/llama-benchy
        [--pp 512,2048] [--tg 128] [--runs 7] [--decode 100] [--prefill 4000] [--tokens-per-step 1]
        [--engine sim | exact | silent]

One simulated engine, in a process of its own, is measured by llama-benchy and by `sparkdash bench --url`, each directly
and through the gateway, one after the other. Its speeds are known (--decode, --prefill, tokens/s, at any
context), so all have a truth to be held against. Both clients force the answer's length, and a cell of `pp` is a
whole prompt of so many tokens for both. Nothing is fetched: the book that llama-benchy cuts its prompts from, and the
tokenizer, are made here. Figures are medians over the requests, of what llama-benchy keeps of each run, too.

`--engine exact` is a server of exact speed (tests/shared/exact_server.py) that packs --tokens-per-step tokens into
every chunk, the first one included, and counts them where it is asked to; `silent` does not count chunks, and has
a /tokenize route. The simulated engine's first chunk has one token, whatever its steps have.

What is divided: tg is the tokens after the first chunk's / (last token - first token). pp is the prompt's tokens / (first
response - request sent), of which llama-benchy takes off what a list of the models took (its mode `api`, the default); for ours
the first token counts, which this engine sends together with the first response, and nothing is taken off. Our own prefill
column takes a fixed time off, fitted over the prompts' lengths, and is told below the table. A request of ours that does not count (docs/bench.md) is sent again.
Prints a Markdown table and a line for each comparison of the two clients that says on which side of 1 % it is; ends with 1 when
one is over it. What the gateway itself adds is told beside them.
Not part of the test suite; docs/evidence.md has what was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import http.server
import json
import multiprocessing as mp
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
import relays
from exact_server import ExactServer
from simulated import serving

from sparkdash.bench import run_folder as runs
from sparkdash.bench.plan import texts
from sparkdash.domain.profile import EngineKind, Profile, SimSpec, SimSpeed
from sparkdash.sim.speed import text_of, tokenize

MODEL = "alpha"
"""As relays.serve_gateway calls it."""
GOAL = 0.01
BOOK = 100_000
"""Words: long enough that two prompts hardly begin at one place."""
Figures = Mapping[tuple[str, int, int], float]
"""tok/s by (pp or tg, prompt tokens, answer tokens)."""


def main() -> int:
    """Measure four times, print, and say whether they agree."""
    args = arguments()
    if shutil.which(args.benchy) is None:
        sys.stderr.write(
            f"{args.benchy} is not here. Install it in an environment of its own and name it:\n"
            "  python3 -m venv /tmp/benchy && /tmp/benchy/bin/pip install llama-benchy==0.4.0\n"
            f"  {sys.executable} {__file__} --benchy /tmp/benchy/bin/llama-benchy\n"
        )
        return 2
    mp.set_start_method("spawn")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_book(folder)
        serve = serve_sim if args.engine == "sim" else functools.partial(serve_exact, args.engine == "exact")
        engine = relays.Child(serve, args.decode, args.prefill, args.tokens_per_step)
        gateway = relays.Child(relays.serve_gateway, engine.port)
        try:
            direct = benchy(args, folder, engine.port, "directly")
            through = benchy(args, folder, gateway.port, "through the gateway")
            ours = own(args, folder, engine.port, "directly")
            ours_through = own(args, folder, gateway.port, "through the gateway")
        finally:
            gateway.end()
            engine.end()
    others = (
        Other("sparkdash bench", ours, "llama-benchy, both directly", direct),
        Other("llama-benchy through the gateway", through, "itself, directly", direct, judged=False),
        Other("sparkdash bench through the gateway", ours_through, "llama-benchy, both through the gateway", through),
    )
    return show(args, direct, others, ours, ours_through, load)


def arguments() -> argparse.Namespace:
    """Defaults give a run of a few minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchy", default="llama-benchy", metavar="PROGRAM")
    parser.add_argument("--pp", type=lengths, default=(512, 2048), metavar="N,N", help="prompts, in tokens")
    parser.add_argument("--tg", type=lengths, default=(128,), metavar="N,N", help="answers, in tokens")
    parser.add_argument("--runs", type=int, default=7, help="requests per cell and client")
    parser.add_argument("--decode", type=float, default=100.0, help="the engine's tokens/s")
    parser.add_argument("--prefill", type=float, default=4000.0, help="the engine's tokens/s")
    parser.add_argument("--tokens-per-step", type=int, default=1, help="more than 1: speculation, all of it accepted")
    parser.add_argument("--engine", choices=("sim", "exact", "silent"), default="sim", help="what is measured")
    return parser.parse_args()


def lengths(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


# --- the clients ------------------------------------------------------------------------------------------------


def benchy(args: argparse.Namespace, folder: Path, port: int, how: str) -> Figures:
    """What llama-benchy says of the server at `port`."""
    result = folder / f"{port}.json"
    with book_shop(folder) as shop:
        argv = [args.benchy, "--base-url", f"http://127.0.0.1:{port}/v1", "--model", MODEL, "--tokenizer", str(folder)]
        argv += ["--book-url", f"http://127.0.0.1:{shop}/book.txt", "--skip-coherence", "--exact-tg"]
        argv += ["--runs", str(args.runs), "--exit-on-first-fail"]
        argv += ["--pp", *map(str, args.pp), "--tg", *map(str, args.tg)]
        call(f"llama-benchy {how}", [*argv, "--format", "json", "--save-result", str(result)], folder)
    return {
        (row, cell["prompt_size"], cell["response_size"]): median(cell[f"{row}_throughput"]["values"])
        for cell in json.loads(result.read_text())["benchmarks"]
        for row in (("pp", "tg") if args.engine == "sim" else ("tg",))
    }


def own(args: argparse.Namespace, folder: Path, port: int, how: str) -> Figures:
    suite = folder / "cells.yaml"
    cells = [{"context": list(args.pp), "output": list(args.tg), "reps": args.runs}]
    suite.write_text(yaml.safe_dump({"suite": "cells", "version": 1, "about": "llama-benchy's cells", "cells": cells}))
    argv = [sys.executable, "-m", "sparkdash", "bench", "run", "--url", f"http://127.0.0.1:{port}"]
    told = json.loads(call(f"sparkdash bench {how}", [*argv, "--suite", str(suite), "--yes", "--json"], folder))
    void, missing = (sum(one[of] for one in told[what]) for what, of in (("voids", "samples"), ("filling", "cells")))
    sys.stderr.write(f"{void} of its requests did not count, {missing} cell(s) are missing.\n")
    results = runs.read_results(folder / "state" / "sparkdash" / "bench" / told["run"]["id"])
    found: dict[tuple[str, int, int], float] = {}
    for name, metric in (("tg", "decode"), ("prefill", "prefill")):
        (rows,) = (table["rows"] for table in told["tables"] if table["metric"] == metric)
        for row in rows:
            if (value := row["figures"][0]["median"]) is not None:
                found[name, row["key"]["context"], row["key"]["output"]] = value
    for (
        cell
    ) in results.run.cells:  # by each prompt's own count: through the gateway, which has no /tokenize, it is estimated
        good = results.good(results.run.baseline, cell.key)
        if rates := [one.prompt_tokens / one.ttft_s for one in good if one.prompt_tokens and one.ttft_s]:
            found["pp", cell.key.context, cell.key.output] = median(rates)
    return found


def call(name: str, argv: Sequence[str], folder: Path) -> str:
    """Run a client to its end, with a home of its own and no way to the model hub; what it printed."""
    sys.stderr.write(f"{name} ...\n")
    homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "STATE", "DATA", "CACHE")}
    alone = {"HOME": str(folder), "NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "1"}
    env = {key: value for key, value in os.environ.items() if not key.startswith("SPARKDASH_")}
    done = subprocess.run(argv, env=env | homes | alone, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


# --- what they are given ----------------------------------------------------------------------------------------


def write_book(folder: Path) -> None:
    """A book of made-up prose, and a tokenizer that cuts it as the simulated engine does."""
    book = "".join(islice(texts.text_pieces("prose", "book"), BOOK))
    pieces = sorted({text_of([token]) for token in tokenize(book)})
    (folder / "book.txt").write_text(book)
    vocabulary = {piece: number for number, piece in enumerate(["<unk>", *pieces])}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    document: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": split, "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(document))


PATTERN = r" ?[A-Za-z]{1,5}|[0-9]{1,3}| ?[!-/:-@\[-`{-~]{1,3}|\s{1,6}"
"""sim.tokens', for a text of plain ASCII."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Without a line per request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def book_shop(folder: Path) -> Iterator[int]:
    """The port of a server of that folder: llama-benchy takes its book from a URL only."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def serve_sim(pipe: Connection, decode: float, prefill: float, tokens_per_step: int) -> None:
    """The simulated engine, equally fast at any context."""
    spec = SimSpec(
        speeds=(SimSpeed(context=0, decode_tok_s=decode, prefill_tok_s=prefill),),
        acceptance=(1.0,) * (tokens_per_step - 1),
    )
    profile = Profile(name=MODEL, engine=EngineKind.SIM, context=65536, sim=spec)

    async def run() -> None:
        async with serving(profile) as (_, url):
            await relays.serve(pipe, int(url.rpartition(":")[2]))

    asyncio.run(run())


def serve_exact(counts: bool, pipe: Connection, decode: float, prefill: float, per_chunk: int) -> None:
    """The server of exact speed. Its words are not llama-benchy's tokens: `tg` alone is comparable."""

    async def run() -> None:
        server = ExactServer(per_chunk=per_chunk, decode=decode, prefill=prefill, counts=counts, model=MODEL)
        async with server.serving() as url:
            await relays.serve(pipe, int(url.rpartition(":")[2]))

    asyncio.run(run())


# --- what is printed --------------------------------------------------------------------------------------------


class Other(NamedTuple):
    """A client's figures, and those that they are held against."""

    name: str
    figures: Figures
    held: str
    against: Figures
    judged: bool = True
    """Is it to be within the goal? What the gateway adds to a first byte is told, and is no disagreement of two clients."""


def show(
    args: argparse.Namespace,
    direct: Figures,
    others: Sequence[Other],
    ours: Figures,
    ours_through: Figures,
    load: float,
) -> int:
    """The table and the verdicts; 1 when a difference is over the goal or a figure is missing."""
    out = sys.stdout.write
    what = {"sim": "A simulated engine", "exact": "A server of exact speed", "silent": "A server that counts no chunk"}
    out(f"{what[args.engine]}: decode {args.decode:g}, prefill {args.prefill:g} tok/s, {args.tokens_per_step} a step; ")
    out(f"{args.runs} requests a cell, {os.cpu_count()} cores ({platform.machine()}), ")
    out(f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after\n\n")
    out("| tok/s | llama-benchy |" + "".join(f" {other.name} | |" for other in others) + "\n")
    out("|---|---:|" + "---:|---:|" * len(others) + "\n")
    for cell, base in sorted(direct.items()):
        row, pp, tg = cell
        out(f"| {row} at {pp} x {tg} | {base:.1f} |")
        for other in others:
            value = other.figures.get(cell)
            out(f" {'-' if value is None else f'{value:.1f}'} | {percent(apart(cell, other))} |")
        out("\n")
    for name, figures in (("directly", ours), ("through the gateway", ours_through)):
        fitted = [f"{value:.1f} at {pp} x {tg}" for (row, pp, tg), value in sorted(figures.items()) if row == "prefill"]
        out(f"\nsparkdash's own prefill {name}, its fixed time taken off: {', '.join(fitted) or '-'}\n")
    out("\n")
    good = [verdict(direct, other) for other in others]
    return 0 if all(good) else 1


def verdict(cells: Iterable[tuple[str, int, int]], other: Other) -> bool:
    """One line: is this client within the goal of what it is held against?"""
    found = {cell: apart(cell, other) for cell in cells}
    missing = [cell for cell, delta in found.items() if delta is None]
    (row, pp, tg), worst = max(found.items(), key=lambda one: abs(one[1] or 0.0))
    good = not missing and abs(worst or 0.0) <= GOAL
    word = ("WITHIN" if good else "OVER") + f" {GOAL:.0%}" if other.judged else "TOLD"
    lacks = f"; {len(missing)} figure(s) missing" if missing else ""
    sys.stdout.write(
        f"{word}: {other.name} against {other.held}; worst {row} at {pp} x {tg}, {percent(worst)}{lacks}\n"
    )
    return good or not (other.judged or missing)


def apart(cell: tuple[str, int, int], other: Other) -> float | None:
    """The relative difference; None while one is missing."""
    value, base = other.figures.get(cell), other.against.get(cell)
    return None if value is None or base is None else value / base - 1


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:+.2%}"


if __name__ == "__main__":
    sys.exit(main())
