"""Another program on the same engine: what it is asked, what is read of its results, and the page beside ours."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exact_server import ExactServer
from typer.testing import CliRunner

from sparkdash.bench.report.peer_table import agreement, compare
from sparkdash.bench.report.peer_tools import TOOLS, PeerMetric, PeerRequest, read_result
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey
from sparkdash.cli.main import app
from sparkdash.errors import AdmissionError

ALONE = CellKey(suite="s", context=512, output=128)
STEADY = CellKey(suite="s", context=2048, output=128)
FOUR = CellKey(suite="s", context=512, output=128, concurrency=4)
SUITE = """
suite: tiny
version: 1
about: two cells
lag_limit_ms: 1000000
cells:
  - {context: 256, output: [32, 64], reps: 2}
"""
PEER = """#!{python}
import json, os, sys, urllib.request
if sys.argv[1:] == ["--version"]:
    print("llama-benchy 9.8.7"); sys.exit()
given = dict(zip(sys.argv[1:], sys.argv[2:]))
if given["--tg"] == "{fails}":
    sys.exit("the server hung up")
book = urllib.request.urlopen(given["--book-url"]).read()
assert len(book) > 100_000 and "SPARKDASH_KEY" not in os.environ and os.environ["HF_HUB_OFFLINE"] == "1"
values = {{"values": [99.0, 100.5, 101.0]}}
cell = {{"prompt_size": int(given["--pp"]), "response_size": int(given["--tg"]), "tg_throughput": values}}
json.dump({{"benchmarks": [cell]}}, open(given["--save-result"], "w"))
"""


@pytest.fixture
def served() -> Iterator[str]:
    """A server of exact chunks in a thread of its own, as commands have loops of their own."""
    loop, started, ends = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with ExactServer(per_chunk=3, decode=2000.0, prefill=1e6).serving() as url:
            urls.append(url)
            started.set()
            await ends.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(30)
    yield urls[0]
    loop.call_soon_threadsafe(ends.set)
    thread.join(30)
    loop.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's folders, a suite, and a secret that no other program may see."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SPARKDASH_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("SPARKDASH_KEY", "sk-secret")
    (tmp_path / "tiny.yaml").write_text(SUITE)
    return tmp_path


def peer(folder: Path, fails: int = 0) -> str:
    """A program with llama-benchy's command line and result."""
    program = folder / "llama-benchy"
    program.write_text(PEER.format(python=sys.executable, fails=fails))
    program.chmod(0o755)
    return str(program)


def verify(folder: Path, url: str, program: str, *more: str) -> str:
    """What the command prints."""
    argv = ["bench", "verify", "--url", url, "--program", program, "--suite", str(folder / "tiny.yaml"), "--yes", *more]
    done = CliRunner().invoke(app, argv, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_program_measures_the_same_cells_and_stands_beside_ours(served: str, folder: Path) -> None:
    """Cell by cell, each definition in words, and whether the decode rates agree."""
    told = json.loads(verify(folder, served, peer(folder), "--json"))
    assert (told["tool"], told["version"], told["failures"]) == ("llama-benchy", "9.8.7", [])
    decode = {row["key"]["output"]: row for row in told["rows"] if row["metric"] == "decode"}
    assert {output: row["theirs"] for output, row in decode.items()} == {32: 100.5, 64: 100.5}
    assert all(row["ours"] > 0 for row in decode.values())
    assert len(set(told["runs"])) == 2
    assert "tokens of the first chunk" in told["definitions"]["decode"][0]
    assert "without token counts" in told["definitions"]["decode"][1]


def test_a_cell_that_the_program_fails_is_told_with_its_words(served: str, folder: Path) -> None:
    """The others are compared; our own figures stay."""
    shown = " ".join(verify(folder, served, peer(folder, fails=64)).split())
    assert "llama-benchy failed at 256 x 64: the server hung up" in shown
    assert "sparkdash beside llama-benchy 9.8.7" in shown


def test_an_engine_that_moved_meanwhile_shows_nothing(rehearse: Callable[..., Results]) -> None:
    """Of two cells with equal means, the one whose engine stood still is judged."""
    arm = [Arm(name="A", profile="http://x")]
    before = rehearse(arms=arm, rates={"A": {ALONE: 60.0, STEADY: 60.0}})
    after = rehearse(arms=arm, rates={"A": {ALONE: 66.0, STEADY: 60.0}})
    true = 127 / (0.9 * 128 / 60.0)
    theirs = {key: {PeerMetric.DECODE: true} for key in (ALONE, STEADY)}
    found = compare(before, after, TOOLS["llama-benchy"], theirs, version=None, failures=())
    assert [(round(row.drift or 0, 3), row.is_steady) for row in found.decode] == [(0.1, False), (0.0, True)]
    said = agreement(found)
    assert "agree within 1% in 1 of 1 cells" in said
    assert "Cells whose engine moved by more than 1%, which show nothing: 1." in said
    nothing = compare(before, after, TOOLS["llama-benchy"], {ALONE: theirs[ALONE]}, version=None, failures=())
    assert "verifies nothing" in agreement(nothing)
    lacking = rehearse(arms=arm, rates={"A": {ALONE: 60.0}})
    half = compare(before, lacking, TOOLS["llama-benchy"], theirs, version=None, failures=())
    assert "Cells that lack one of sparkdash's two measurements: 1." in agreement(half)


def test_a_program_that_is_not_there_says_how_to_get_it(folder: Path) -> None:
    """Before anything is measured; nothing is fetched."""
    done = CliRunner().invoke(
        app, ["bench", "verify", "--url", "http://127.0.0.1:9", "--program", str(folder / "none")]
    )
    assert isinstance(done.exception, AdmissionError)
    assert done.exception.code == "peer_not_found"
    assert "pip install llama-benchy" in (done.exception.hint or "")


BENCHY = {
    "benchmarks": [
        {
            "prompt_size": 512, "response_size": 128, "tg_throughput": {"values": [390.0]},
            "tg_req_throughput": {"values": [99.0, 100.0, 102.0]}, "pp_req_throughput": {"values": [3900.0]},
            "pp_throughput": {"values": [8000.0]}, "e2e_ttft": {"values": [130.0]},
        }
    ]
}  # fmt: skip
GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                name: {"successful": {"median": value, "mean": value}}
                for name, value in (
                    ("time_to_first_token_ms", 200.0), ("inter_token_latency_ms", 10.0),
                    ("prompt_token_count", 512.0), ("output_tokens_per_second", 380.0),
                )
            }
        }
    ]
}  # fmt: skip
VLLM = {
    "median_ttft_ms": 200.0,
    "median_tpot_ms": 10.0,
    "total_input_tokens": 2048,
    "completed": 4,
    "output_throughput": 380.0,
}


@pytest.mark.parametrize(
    ("name", "result", "decode", "prompt", "aggregate"),
    [("llama-benchy", BENCHY, 100.0, 3900.0, 390.0), ("guidellm", GUIDELLM, 100.0, 2560.0, 380.0), ("vllm", VLLM, 100.0, 2560.0, 380.0)],
)  # fmt: skip
def test_results_are_read_as_each_program_writes_them(
    name: str, result: Any, decode: float, prompt: float, aggregate: float
) -> None:
    """The rate of one request, and of all together; seconds for milliseconds."""
    found = read_result(TOOLS[name], json.dumps(result), FOUR)
    assert found[PeerMetric.DECODE] == pytest.approx(decode)
    assert found[PeerMetric.PROMPT] == pytest.approx(prompt)
    assert found[PeerMetric.AGGREGATE] == pytest.approx(aggregate)
    assert 0.1 < found[PeerMetric.TTFT] < 0.3
    assert PeerMetric.AGGREGATE not in read_result(TOOLS[name], json.dumps(result), ALONE)
    for odd in ("{}", "[]", '{"benchmarks": []}', "no JSON"):
        with pytest.raises(ValueError, match=r"another shape|Expecting value"):
            read_result(TOOLS[name], odd, ALONE)


def test_a_result_that_vllm_bench_serve_wrote_is_read() -> None:
    """vLLM 0.32, four requests of 64 tokens to a simulated engine of 100 tok/s. Its client's p50 TPOT was 9.90 ms."""
    written = (Path(__file__).parent / "peers" / "vllm-0.32-bench-serve.json").read_text()
    found = read_result(TOOLS["vllm"], written, CellKey(suite="s", context=256, output=64, concurrency=2))
    assert found[PeerMetric.DECODE] == pytest.approx(101.0, abs=0.1)
    assert found[PeerMetric.TTFT] == pytest.approx(0.0553, abs=0.0001)
    assert found[PeerMetric.PROMPT] == pytest.approx(594 / 4 / 0.0553, rel=0.01)
    assert found[PeerMetric.AGGREGATE] == pytest.approx(94.2, abs=0.1)


def test_vllm_is_asked_to_answer_greedily_as_we_ask() -> None:
    """Since 0.32 its client leaves the temperature to the server."""
    asked = PeerRequest("/bin/p", "http://h:1", "m", "/t", FOUR, 3, "/out/r.json", "http://b")
    assert "--temperature 0" in " ".join(TOOLS["vllm"].command(asked))


@pytest.mark.parametrize("name", ["guidellm", "vllm"])
def test_each_cell_of_each_run_has_prompts_that_no_cache_knows(name: str) -> None:
    """With one seed vLLM's prefix cache had the second cell's prompts: 131,000 tok/s where 15,600 was true."""
    asked = [
        PeerRequest("/bin/p", "http://h:1", "m", "/t", FOUR, 3, f"/tmp/{one}.json", "b")
        for one in ("a/0", "a/1", "b/0")
    ]
    seeds = []
    for one in asked:
        line = TOOLS[name].command(one)
        seeds.append(line[line.index("--seed") + 1])
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("name", TOOLS)
def test_a_program_is_asked_for_the_cell_by_its_own_flags(name: str) -> None:
    """Length, number and address are in it; no figure of it is left undefined."""
    asked = PeerRequest("/bin/p", "http://h:1", "m", "/t", FOUR, 3, "/out/r.json", "http://b")
    line = " ".join(TOOLS[name].command(asked))
    for word in ("http://h:1", "512", "128", "/t", "r.json"):
        assert word in line
    assert ("--runs 3" if name == "llama-benchy" else "12") in line
    assert TOOLS[name].definitions.keys() == set(PeerMetric)
