"""The main job with nothing pretended: podman, vLLM, the official client.

The tests of this module share one daemon and run in their order: each begins where the one before ended.
"""

import json
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from figures import client, counters, engine_page, exported, podman, sampled, stream

from sparkdash.catalog.checkpoint import weights

pytestmark = [pytest.mark.real, pytest.mark.podman, pytest.mark.timeout(600)]

LONG = 3500
"""Tokens of an answer that nobody waits for."""
SLOW_CPUS = 0.4
"""CPUs of an engine that must not be through with such an answer too soon."""
AGAIN = 600
"""Tokens of an answer that a second engine makes whole: beside others it drafts at 4 a second."""
SENT: list[Any] = []
"""The usage of every answer of `tiny`, its own warm-up left out."""


def test_a_request_brings_its_profile_up_and_streams(spark: Any) -> None:
    """From nothing: the request waits for the load, then gets its forty tokens."""
    assert spark.containers() == []
    usage = stream(spark, "tiny-plain")[-1]
    SENT.append(usage)
    assert usage.completion_tokens == 40
    engine = spark.state()["engines"]["tiny"]
    assert (engine["state"], engine["version"]) == ("ready", "0.32.0")
    assert spark.containers() == [engine["container"]]


def test_its_start_is_taken_apart_as_the_runtime_dates_its_lines(spark: Any) -> None:
    """Within 5 %, or half a second by which a busy box reads a line late: the container's own start, and the times that
    podman's monitor gave the lines of the log.
    """
    start, name = spark.state()["swaps"][0]["start"], spark.containers()[0]
    took = {step["name"]: step["s"] for step in start["stages"]}
    form = '{{.State.StartedAt.Format "2006-01-02T15:04:05.000000000Z07:00"}}'
    begun = podman("inspect", "--format", form, name)
    printed = subprocess.run(
        ["podman", "logs", "--timestamps", name], capture_output=True, text=True, check=True
    )  # both streams have lines of the start
    lines = sorted(line.partition(" ")[::2] for line in (printed.stdout + printed.stderr).splitlines() if line)

    def at(words: str) -> float:
        return seconds(next(time for time, text in lines if words in text))

    marks = (
        seconds(begun),
        *map(at, ("", "Starting to load model", "Loading weights", "KV cache size", "init engine")),
    )
    dated = [until - since for since, until in pairwise(marks)]
    found = [
        sum(took.get(name, 0.0) for name in names)
        for names in (["process"], ["imports"], ["weights"], ["compile", "kv"], ["kernels", "warmup"])
    ]
    assert found == [pytest.approx(each, rel=0.05, abs=0.5) for each in dated], f"{took}, dated {dated}"
    assert start["disk_bytes"] is not None
    assert start["peak_bytes"] > 100 * 2**20


def seconds(time: str) -> float:
    """Unix seconds of one of podman's times, which have nine digits after the point."""
    whole, zone = re.fullmatch(r"([\d:T-]+\.?\d{0,6})\d*(\S+)", time.strip()).groups()
    return datetime.fromisoformat(whole + zone.replace("Z", "+00:00")).timestamp()


def test_a_tool_that_must_be_called_is_called(spark: Any) -> None:
    """The engine's grammar makes random weights begin a call of this tool; they end it in one of some tries."""
    tool = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}
    for seed in range(20):
        answer = client(spark).chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "note"}],
            tools=[tool],
            tool_choice="required",
            max_tokens=200,
            temperature=1,
            seed=seed,
        )
        SENT.append(answer.usage)
        if calls := answer.choices[0].message.tool_calls:
            break
    assert [call.function.name for call in calls or ()] == ["note"]


def held(spark: Any, profile: str) -> int:
    """Anonymous memory of all processes of this profile's container, in bytes, as the kernel tells it."""
    listed = podman("top", spark.state()["engines"][profile]["container"], "hpid")
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in listed.split()[1:]]
    return sum(int(kib) for text in texts for kib in re.findall(r"RssAnon:\s+(\d+)", text)) * 1024


def learned(spark: Any, profile: str) -> int:
    """Bytes that sparkdash has learned that this launch holds."""
    spark.until(lambda _: spark.get(f"/api/plan/{profile}")["need"]["basis"] == "learned")
    (steady, *_) = spark.get(f"/api/plan/{profile}")["need"]["terms"]
    assert steady["name"] == "steady"
    return int(steady["bytes"])


def test_its_footprint_is_learned_as_the_kernel_tells_it(spark: Any) -> None:
    """Memory of all processes of the container, within 5 %; the plan of the next load rests on it."""
    assert learned(spark, "tiny") == pytest.approx(held(spark, "tiny"), rel=0.05)
    swap = spark.state()["swaps"][0]
    stages = [step["name"] for step in swap["steps"]]
    assert (
        stages.index("start") < stages.index("weights") < stages.index("warm")
    )  # "http" may be read when it answers already


def test_the_cache_holds_the_tokens_that_the_headers_foretold(spark: Any, engine: Path) -> None:
    """1 GiB divided by what config.json and the headers say a token keeps is the engine's own count, to the token.

    It computes in float32.
    """
    info = dict(re.findall(r'(num_gpu_blocks|block_size)="(\d+)"', engine_page(spark, "tiny")))
    assert int(info["num_gpu_blocks"]) * int(info["block_size"]) == (
        2**30 // (weights.read_weight_facts(engine / "tiny-qwen3").kv_bytes_per_token(bits=32) or 0)
    )


def test_the_prefix_cache_figures_equal_the_engines_own(spark: Any) -> None:
    """A repeated prompt hits the cache, and the dashboard's lifetime rate is hits / queries of /metrics, the warm-up left out."""
    SENT.append(stream(spark, "tiny")[-1])
    assert SENT[-1].prompt_tokens_details.cached_tokens > 0
    own = counters(spark, "tiny", "vllm:")
    asked = sum(usage.prompt_tokens for usage in SENT)
    assert 0 < own["vllm:prefix_cache_queries_total"] - asked < 60, "the warm-up's own prompt"
    rate = own["vllm:prefix_cache_hits_total"] / asked
    state = spark.until(lambda s: sampled(s, "tiny", "prefix_hit_lifetime") == pytest.approx(rate))
    assert 0 < sampled(state, "tiny", "prefix_hit_lifetime") < 1


def test_the_exported_counters_are_what_was_sent(spark: Any) -> None:
    wanted = {
        "output_tokens_total": sum(usage.completion_tokens for usage in SENT),
        "prompt_tokens_total": sum(usage.prompt_tokens for usage in SENT),
    }
    spark.until(lambda _: {name: exported(spark, name, "tiny") for name in wanted} == wanted)


@pytest.mark.full
def test_a_requests_own_rate_is_among_its_profiles_figures(spark: Any) -> None:
    """Greedily the random model may say half a character for ever; and on a busy box the engine may say all of an answer at once,
    which has no rate."""

    def has_a_rate() -> bool:
        stream(spark, "tiny", tokens=400, temperature=1)
        return bool(spark.state()["figures"]["tiny"]["rates"])

    assert any(has_a_rate() for _ in range(20))


def limit_cpus(spark: Any, profile: str, cpus: float) -> None:
    """Give the profile's container that much CPU, so that a long answer is under way long enough to be met at work."""
    podman("update", "--cpus", str(cpus), spark.state()["engines"][profile]["container"])


def seen_at_work(spark: Any, whole: float) -> bool:
    """Look until the engine tells of a running request; False once it has made `whole` tokens, as it was through before."""
    while (own := counters(spark, "tiny", "vllm:"))["vllm:num_requests_running"] != 1:
        if own["vllm:generation_tokens_total"] >= whole:
            return False
    return True


def left_at_work(spark: Any) -> tuple[str, float]:
    """Leave a long answer once the engine is seen at work; the state of its row, and the tokens that were made of it."""
    made = counters(spark, "tiny", "vllm:")["vllm:generation_tokens_total"]
    earlier = spark.state()["recent"][0]["id"]
    chunks = client(spark).chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "go"}], max_tokens=LONG, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    next(iter(chunks))
    seen_at_work(spark, made + LONG)
    chunks.close()

    def looked_at_since(state: dict[str, Any]) -> bool:
        row = state["recent"][0]
        if row["id"] == earlier:
            return False
        seen = state["sample"]["engines"]["tiny"]["at"]
        return seen > row["finished_at"] and sampled(state, "tiny", "running") == 0

    row = spark.until(looked_at_since)["recent"][0]
    own = counters(spark, "tiny", "vllm:")
    assert own["vllm:num_requests_running"] == 0
    return row["state"], own["vllm:generation_tokens_total"] - made


def test_a_client_that_leaves_frees_the_engine(spark: Any) -> None:
    """The disconnect reaches vLLM, which drops the request: of its tokens some are never made.

    On a busy box the engine may have made all of them before anybody else gets to run: then it is asked once more.
    """
    seen = []
    limit_cpus(spark, "tiny", SLOW_CPUS)
    try:
        for _ in range(20):
            state, made = left_at_work(spark)
            if state == "gone" and made < LONG:
                return
            seen.append((state, made))
    finally:
        limit_cpus(spark, "tiny", os.cpu_count() or 1)
    pytest.fail(f"every answer was made to its end: {seen}")


def test_another_profile_comes_up_and_its_acceptance_equals_the_engines_own(spark: Any) -> None:
    """Beside the first where both fit, else in its place; what it holds is its own, and acceptance is accepted / drafted."""
    (first,) = spark.containers()
    stream(spark, "tiny/ngram", tokens=8)
    second = spark.state()["engines"]["tiny/ngram"]["container"]
    assert {second} <= set(spark.containers()) <= {first, second}
    assert learned(spark, "tiny/ngram") == pytest.approx(held(spark, "tiny/ngram"), rel=0.05)
    for _ in range(6):  # a look in the middle of the stream parts its drafts between two windows
        base = counters(spark, "tiny/ngram", "vllm:")
        assert stream(spark, "tiny/ngram", tokens=200)[-1].completion_tokens == 200
        own = counters(spark, "tiny/ngram", "vllm:")
        gained = {name: own[name] - base[name] for name in own}
        assert gained["vllm:spec_decode_num_drafts_total"] > 0
        window = [
            one["vllm:spec_decode_num_accepted_tokens_total"] / one["vllm:spec_decode_num_draft_tokens_total"]
            for one in (own, gained)
        ]
        shown = [pytest.approx(value) for value in window]
        with suppress(AssertionError):
            state = spark.until(lambda s, shown=shown: sampled(s, "tiny/ngram", "acceptance") in shown, timeout=15)
            break
    else:
        pytest.fail(f"its acceptance was never shown as the engine counts it: {window}")
    whole = sampled(state, "tiny/ngram", "acceptance") == pytest.approx(window[0])
    source = own if whole else gained
    drafts = source["vllm:spec_decode_num_drafts_total"]
    per_position = [source[f"vllm:spec_decode_num_accepted_tokens_per_pos_total@{i}"] / drafts for i in range(3)]
    assert state["sample"]["engines"]["tiny/ngram"]["acceptance_at"] == pytest.approx(per_position)
    length = 1 + source["vllm:spec_decode_num_accepted_tokens_total"] / drafts
    assert sampled(state, "tiny/ngram", "acceptance_length") == pytest.approx(length)


def test_a_killed_daemon_finds_its_engine_again(spark: Any) -> None:
    """SIGKILL, a new daemon, and the next request is answered by the same container without a load."""
    before = spark.containers()
    spark.kill()
    assert spark.containers() == before
    spark.start()
    # it serves before it has looked at what its predecessor left
    state = spark.until(lambda s: s["engines"].get("tiny/ngram", {}).get("state") == "ready")
    assert state["engines"]["tiny/ngram"]["adopted"] is True
    assert stream(spark, "tiny/ngram", tokens=16)[-1].completion_tokens == 16
    assert spark.containers() == before


def engine_core(spark: Any, profile: str) -> int:
    """The process in which this profile's engine computes, as the host counts."""
    name = spark.state()["engines"][profile]["container"]
    for _ in range(20):  # on a busy box a look now and then finds a title that is being written
        listed = podman("top", name, "hpid", "args")
        for title in ("EngineCore", "--multiprocessing-fork"):  # the latter until it has set its own
            pids = [int(line.split()[0]) for line in listed.splitlines() if title in line]
            if len(pids) == 1:
                return pids[0]
    pytest.fail(f"no EngineCore, or several, among its processes:\n{listed}")


def killed_at_work(spark: Any, model: str, *, streams: bool) -> tuple[httpx.Response, dict[str, Any], dict[str, Any]]:
    """The answer to a long request whose engine's core is killed while it runs; its row, and what was told of the death."""
    body = {
        "model": model, "messages": [{"role": "user", "content": "go"}], "max_tokens": AGAIN, "temperature": 1,
        "ignore_eos": True, "stream": streams,
    }  # fmt: skip

    def answer() -> httpx.Response:
        try:
            return httpx.post(f"{spark.url}/v1/chat/completions", json=body, timeout=300)
        except httpx.ReadTimeout:
            pytest.fail(f"no answer within 300 s: {json.dumps(spark.state())[:6000]}")

    def deaths(state: dict[str, Any]) -> list[Any]:
        return [notice for notice in state["notices"] if notice["code"] == "engine_crash"]

    stream(spark, model, tokens=8)
    core, before = engine_core(spark, model), len(deaths(spark.state()))
    limit_cpus(spark, model, SLOW_CPUS)
    with ThreadPoolExecutor(1) as thread:
        for _ in range(20):
            asked = thread.submit(answer)
            # On a busy box its figures may be late, or it is through before it can be seen at work.
            while not asked.done():
                if counters(spark, model, "vllm:")["vllm:num_requests_running"] == 1:
                    os.kill(core, signal.SIGKILL)
                    got = asked.result()
                    state = spark.until(lambda s: len(deaths(s)) > before and not s["requests"])
                    return got, state["recent"][0], deaths(state)[0]
    pytest.fail("the engine was never seen at work")


@pytest.mark.full
def test_a_request_whose_engine_core_is_killed_is_answered_by_the_next_engine(spark: Any) -> None:
    """vLLM answers 500 before it exits: the client never sees that, and the profile is started again."""
    answer, row, death = killed_at_work(spark, "tiny/ngram", streams=False)
    assert (answer.status_code, "error" in answer.json()) == (200, False), answer.text
    assert answer.json()["usage"]["completion_tokens"] == AGAIN
    assert (row["state"], row["error"]) == ("done", None)
    assert "exited unexpectedly" in death["text"]
    assert row["finished_at"] > death["at"] > row["started_at"]


def test_a_stream_whose_engine_core_is_killed_is_ended_with_the_reason(spark: Any) -> None:
    """The stream has begun, so that the client is told in it; the row and the engine's failure name the reason."""
    spark.post("/api/release", {"profile": None})  # else the second death within ten minutes parks it
    answer, row, _ = killed_at_work(spark, "tiny/ngram", streams=True)
    assert answer.status_code == 200
    assert b'data: {"error"' in answer.content
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert (row["state"], row["error"]) == ("failed", "engine_crash")
    assert "exited unexpectedly" in spark.state()["engines"]["tiny/ngram"]["failure"]["message"]


def test_stop_leaves_nothing(spark: Any) -> None:
    done = spark.sparkdash("stop", "--all", "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert spark.containers() == []
