"""`ab` and `bench` as their user runs them: swaps by itself, others told, killed in the middle, gone on with."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Program

from sparkdash.bench.plan.run_plan import launch_order
from sparkdash.bench.run import Mode

pytestmark = pytest.mark.timeout(240)

ENGINE = """\
profile: {name}
engine: sim
context: 4096
sim:
  load_s: 0.2
  memory_gib: 0.1
  time_scale: 10
  acceptance: {acceptance}
  speeds: [{{context: 0, decode_tok_s: {rate}, prefill_tok_s: 4000}}]
"""
SUITE = """\
suite: tiny
version: 1
about: for tests
lag_limit_ms: 10000
cells:
  - {context: [0, 256], output: 24, reps: 2}
"""
HALTING = Path(__file__).with_name("halting_bench.py")
CHAT = {"model": "plain", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def box(new_daemon: Callable[..., Any]) -> Iterator[Any]:
    """A daemon with two simulated profiles and a suite of the owner's."""
    daemon = new_daemon(runtime="process")
    daemon.write("plain", ENGINE.format(name="plain", acceptance="[]", rate=40))
    daemon.write("fast", ENGINE.format(name="fast", acceptance="[1.0]", rate=60))
    daemon.write("home", ENGINE.format(name="home", acceptance="[]", rate=50))
    (daemon.root / "config" / "suites").mkdir()
    (daemon.root / "config" / "suites" / "tiny.yaml").write_text(SUITE)
    (daemon.root / "config" / "suites" / "long.yaml").write_text(SUITE.replace("tiny", "long").replace("2}", "500}"))
    return daemon.start()


def records(box: Any, run: str) -> list[dict[str, Any]]:
    text = (box.root / "state" / "bench" / run / "records.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def newest(box: Any) -> str:
    """The id of the newest run; ids themselves tell the second."""
    began = Path(box.root / "state" / "bench").glob("*/run.json")
    return max(began, key=lambda file: file.stat().st_mtime_ns).parent.name


def cells(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(one["launch"], one["key"]["context"]) for one in found if one["record"] == "cell"]


def test_killed_in_the_middle_it_goes_on_and_measures_nothing_twice(box: Any) -> None:
    assert box.sparkdash("use", "home").returncode == 0
    words = [str(HALTING), "ab", "plain", "fast", "--suite", "tiny", "--yes"]
    with Program(words, env=box.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == b"halted\n"
        status, told = box.call("POST", "/v1/chat/completions", CHAT)
        bench.kill()
    assert (status, told["error"]["code"]) == (503, "held")
    assert "sparkdash bench (tiny)" in told["error"]["message"]
    before = records(box, newest(box))
    assert len(cells(before)) == 3

    unasked = box.sparkdash("ab", "plain", "fast", "--suite", "tiny")
    assert unasked.returncode != 0
    assert "Add --yes" in unasked.stderr, "without a terminal nothing is stopped unasked"

    done = box.sparkdash("ab", "plain", "fast", "--suite", "tiny", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Resuming" in done.stderr
    assert "Bringing home back." in done.stderr, "what ran before the run that was killed"
    assert [name for name, one in box.state()["engines"].items() if one["state"] not in ("absent", "stopping")] == [
        "home"
    ]
    after = records(box, newest(box))
    assert after[: len(before)] == before
    assert len(cells(after)) == len(set(cells(after))) == 12
    launched = [one["arm"] for one in after if one["record"] == "launch"]
    drawn = [slot.arm for slot in launch_order(("plain", "fast"), Mode.STANDARD, newest(box))]
    assert launched == [*drawn[:2], *drawn[1:]], "the killed launch, the second, is made anew"
    assert {one["void"] for one in after if one["record"] != "launch"} == {None}
    assert {swap["cause"] for swap in box.state()["swaps"] if swap["target"]} >= {"bench"}
    assert [one["id"] for one in json.loads(box.sparkdash("bench", "show", "--json").stdout)] == [newest(box)]
    assert json.loads(box.sparkdash("bench", "show", "last", "--json").stdout)["filling"] == []
    assert "SIMULATED" in done.stdout.upper()


def test_a_launch_is_a_process_of_its_own(box: Any) -> None:
    launches = [one for one in records(box, newest(box)) if one["record"] == "launch"]
    assert len({one["provenance"]["startup_s"] for one in launches}) == len(launches)
    for one in launches:
        assert one["provenance"]["argv"][1:4] == ["-P", "-m", "sparkdash.sim"]
        assert one["provenance"]["fingerprint"]
        assert len(one["provenance"]["tokenizer_sha256"]) == 64
        assert one["provenance"]["image_digest"] is None
        assert one["provenance"]["engine_version"].endswith("+sim")


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly_and_lets_others_in(box: Any, number: signal.Signals) -> None:
    """Exit code 130, a word on how to go on, the box as it was, and free at once; so also when the terminal closes."""
    box.sparkdash("stop", "fast")
    assert box.sparkdash("use", "plain").returncode == 0
    bench = box.begin("bench", "fast", "--suite", "long", "--yes")
    assert bench.stderr is not None
    with bench.stderr as lines:
        next(line for line in lines if "ctx" in line)
        bench.send_signal(number)
        said = lines.read()
    assert bench.wait() == 130
    assert "Stopped. The measured cells are kept" in said
    assert "Bringing plain back." in said
    status, _ = box.call("POST", "/v1/chat/completions", CHAT | {"max_tokens": 8})
    assert status == 200
    assert "fast" not in [name for name, one in box.state()["engines"].items() if one["state"] == "ready"]


@pytest.mark.full
def test_it_is_ended_and_resumed_from_elsewhere(box: Any) -> None:
    """As the dashboard does: how far it is stands in the snapshot; it ends as with Ctrl-C,
    and goes on beside the daemon."""
    bench = box.begin("bench", "fast", "--suite", "long", "--yes")
    assert bench.stderr is not None
    with bench.stderr as lines:
        next(line for line in lines if "ctx" in line)
        seen = box.until(lambda state: (state["measuring"] or {}).get("cell"))["measuring"]
        assert (seen["run"], seen["arm"], seen["cells"]) == (newest(box), "fast", 2)
        box.post("/api/bench/end", {})
        said = lines.read()
    assert bench.wait() == 130
    assert "Stopped. The measured cells are kept" in said
    assert box.state()["measuring"] is None
    box.post(f"/api/bench/{newest(box)}/resume", {})
    box.until(lambda state: (state["measuring"] or {}).get("run") == newest(box))
    box.post("/api/bench/end", {})
    box.until(lambda state: state["measuring"] is None)
    status, answer = box.call("POST", "/api/bench/2001/resume", {}, 60)
    assert (status, answer["error"]["code"]) == (404, "run_not_found")
    broken = box.root / "state" / "bench" / "2001"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    box.post("/api/bench/2001/resume", {})
    seen = box.until(lambda state: any(one["code"] == "bench_failed" for one in state["notices"]))
    assert any(one["text"].startswith("2001 was not resumed.") for one in seen["notices"])
