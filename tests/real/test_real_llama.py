"""A real llama-server of November 2026: a request brings it up, its figures are its own, and another takes its place.

The tests of this module share one daemon and run in their order: each begins where the one before ended.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from figures import counters, exported, processes, sampled, stream

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TURNS = [{"role": role, "content": "hi"} for role in ("developer", "system", "user", "system", "user")]
SENT: list[Any] = []
"""The usage of every answer of `small`, its own warm-up left out."""


def cached_tokens() -> int:
    """Tokens of all that was sent that the engine found in its prefix cache."""
    return sum(usage.prompt_tokens_details.cached_tokens for usage in SENT)


def test_a_request_brings_its_profile_up_and_streams(llama_spark: Any) -> None:
    """Weights are read and not mapped, which is ten times slower on a Spark."""
    (usage,) = stream(llama_spark, "small-plain")
    SENT.append(usage)
    assert usage.completion_tokens == 40
    assert llama_spark.state()["engines"]["small"]["state"] == "ready"
    (engine,) = processes(llama_spark)
    assert "tiny.gguf" not in Path(f"/proc/{engine}/maps").read_text()


def test_the_second_request_hits_the_prefix_cache(llama_spark: Any) -> None:
    """The prompt's tokens but the last are found there, and the dashboard's lifetime rate is that of what was sent."""
    (usage,) = stream(llama_spark, "small")
    SENT.append(usage)
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    rate = pytest.approx(cached_tokens() / sum(one.prompt_tokens for one in SENT))
    llama_spark.until(lambda state: sampled(state, "small", "prefix_hit_lifetime") == rate)
    # a sample during the answer's last words has all of its counts, and its request still runs
    llama_spark.until(lambda state: sampled(state, "small", "running") == sampled(state, "small", "waiting") == 0)


def test_its_counters_are_what_was_sent(llama_spark: Any) -> None:
    """Beside the warm-up, of which only the gateway's books say nothing; they have each answer's own figures."""
    own = counters(llama_spark, "small", "llamacpp:")
    prompts = sum(usage.prompt_tokens for usage in SENT)
    cached = cached_tokens()
    warm_up = own["llamacpp:tokens_predicted_total"] - sum(usage.completion_tokens for usage in SENT)
    assert 0 < warm_up < 40
    assert own["llamacpp:prompt_tokens_cached_total"] >= cached
    assert 0 < own["llamacpp:prompt_tokens_total"] - (prompts - cached) < 60
    booked = llama_spark.state()["recent"]
    assert sorted((row["prompt_tokens"], row["completion_tokens"]) for row in booked) == sorted(
        (usage.prompt_tokens, usage.completion_tokens) for usage in SENT
    )


def test_the_exported_counters_are_what_was_sent(llama_spark: Any) -> None:
    prompts, cached = sum(usage.prompt_tokens for usage in SENT), cached_tokens()
    wanted = {
        "output_tokens_total": sum(usage.completion_tokens for usage in SENT),
        "prompt_computed_tokens_total": prompts - cached,
        "prompt_cached_tokens_total": cached,
        "prompt_tokens_total": prompts,
    }
    llama_spark.until(lambda _: {name: exported(llama_spark, name, "small") for name in wanted} == wanted)


def test_what_is_asked_every_second_leaves_no_line_in_its_log(llama_spark: Any) -> None:
    before = llama_spark.sparkdash("logs", "small").stdout
    assert "model loaded" in before
    seen: set[float] = set()

    def looked_at(state: dict[str, Any]) -> bool:
        seen.add(state["sample"]["engines"]["small"]["at"])
        return len(seen) > 3

    llama_spark.until(looked_at)
    assert llama_spark.sparkdash("logs", "small").stdout == before


def test_another_profile_takes_its_place(llama_spark: Any) -> None:
    (first,) = processes(llama_spark)
    assert stream(llama_spark, "small/short", tokens=8)[-1].completion_tokens == 8
    (second,) = processes(llama_spark)
    assert first != second
    engines = llama_spark.state()["engines"]
    assert [name for name, engine in engines.items() if engine["state"] == "ready"] == ["small/short"]


def recorded(client: str, case: str, path: str) -> dict[str, Any]:
    """The first such request that a real client sent."""
    whole = json.loads((Path(__file__).parents[1] / "data" / "client-requests.json").read_text("utf-8"))
    return next(one["body"] for one in whole if (one["client"], one["case"], one["path"]) == (client, case, path))


@pytest.mark.parametrize("client", ["codex", "claude-code", "chat"])
def test_agents_are_answered_at_once_by_a_template_that_takes_one_system_message(llama_spark: Any, client: str) -> None:
    """In the protocol of each, which llama-server speaks itself."""
    path, body = {
        "codex": ("/v1/responses", recorded("codex", "codex.plain", "/v1/responses") | {"max_output_tokens": 8}),
        "claude-code": ("/v1/messages", recorded("claude-code", "claude.plain", "/v1/messages") | {"max_tokens": 8}),
        "chat": ("/v1/chat/completions", {"max_tokens": 8, "messages": TURNS}),
    }[client]
    llama_spark.post(path, body | {"model": "strict", "stream": False})
