"""A real llama-server as any server: a plain process whose profile says only how it is started and what it serves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from figures import sampled

from sparkdash.catalog import yaml12

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], llama: Path) -> Any:
    """A daemon that knows llama-server as two generic servers: one that chats, one that embeds."""
    daemon = new_daemon(runtime="process", side_by_side=False, min_dwell_s=0, stop_grace_s=20, sample_s=0.2)
    daemon.write("anychat", document(llama, "anychat", "chat", "completions"))
    daemon.write("anyembed", document(llama, "anyembed", "embeddings", embedding=True, pooling="mean"))
    return daemon.start()


def document(llama: Path, name: str, *routes: str, **more: object) -> str:
    """Profile of llama-server as a server that serves these routes."""
    args = {"model": "{target}", "alias": "{name}", "ctx-size": 2048, "threads": 1, "metrics": True}
    profile = {
        "profile": name,
        "engine": "generic",
        "gpu": False,
        "models": {"target": {"path": str(llama / "tiny.gguf")}},
        "command": [str(llama / "bin/llama-server"), "--host", "127.0.0.1", "--port", "{port}"],
        "args": args | more,
        "memory": {"weights_gib": 0.1, "kv_gib": 0.1, "overhead_gib": 0.2, "source": "measured: 60 MiB in all"},
        "server": {"routes": list(routes)},
    }
    return yaml12.dump(profile)


def test_it_loads_serves_and_its_metrics_are_recognised(spark: Any) -> None:
    """Nobody said that it is llama.cpp: the names of its metrics do."""
    said = [{"role": "user", "content": "Count."}]
    asked = {"model": "anychat", "messages": said, "max_tokens": 400, "ignore_eos": True}
    status, answer = spark.call("POST", "/v1/chat/completions", asked, timeout=120)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 400)
    spark.until(lambda state: sampled(state, "anychat", "running") is not None, timeout=30)


def test_the_other_is_proven_by_an_embedding_and_takes_its_place(spark: Any) -> None:
    """A chat would be refused by it, so a chat cannot be the proof."""
    status, answer = spark.call("POST", "/v1/embeddings", {"model": "anyembed", "input": "one"}, timeout=120)
    assert status == 200, answer
    assert any(answer["data"][0]["embedding"])
    assert spark.state()["engines"]["anyembed"]["does"] == ["embed"]
    assert spark.state()["engines"].get("anychat", {}).get("state") in (None, "absent")


def test_a_server_that_cannot_do_its_work_is_not_ready(spark: Any, llama: Path) -> None:
    """The health path says yes; the proof says no, with the server's own words."""
    spark.write("anywrong", document(llama, "anywrong", "embeddings"))
    spark.post("/api/reload", {})
    status, answer = spark.call("POST", "/v1/embeddings", {"model": "anywrong", "input": "one"}, timeout=120)
    assert status == 400
    assert answer["error"]["code"] == "bad_answer"
    assert "the trial of embeddings at /v1/embeddings answered 501" in answer["error"]["message"].lower()
