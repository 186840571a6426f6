"""A real llama-server that somebody else started: used under its own name, its figures shown, found again, and never stopped.

The tests of this module share one server and one daemon and run in their order: each begins where the one before ended.
"""

import subprocess
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from figures import PROMPT, sampled

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]

NAME = "somebody/tiny-random"
"""The server's name for its model."""


@pytest.fixture(scope="module")
def server(attached: Callable[..., subprocess.Popen[str]]) -> subprocess.Popen[str]:
    return attached("--alias", NAME, "--metrics", "--ctx-size", "4096")


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], server: subprocess.Popen[str], ports: tuple[int, int]) -> Any:
    daemon = new_daemon(runtime="process")
    daemon.write("theirs", f"profile: theirs\nengine: openai\nurl: http://127.0.0.1:{ports[0]}/v1\ncontext: 4096\n")
    return daemon.start()


def ask(spark: Any) -> dict[str, Any]:
    body = {"model": "theirs", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    answer = spark.post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": PROMPT}]})
    return dict(answer["usage"])


def test_it_is_used_under_its_own_name_and_its_figures_are_shown(spark: Any) -> None:
    """The URL ends with /v1, the model's name is the one that the server lists, and the figures are what was sent, to the token."""
    sent = [ask(spark), ask(spark)]
    engine = spark.state()["engines"]["theirs"]
    assert (engine["state"], engine["model_id"], engine["container"]) == ("ready", NAME, None)
    hits = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in sent)
    rate = pytest.approx(hits / sum(usage["prompt_tokens"] for usage in sent))
    state = spark.until(lambda state: sampled(state, "theirs", "prefix_hit_lifetime") == rate)
    assert sampled(state, "theirs", "running") == 0


def test_the_next_daemon_uses_it_again(spark: Any) -> None:
    """After a SIGKILL, before anybody asks; nothing of what was sent before counts as its own."""
    spark.kill()
    spark.start()
    state = spark.until(lambda state: sampled(state, "theirs", "running") == 0)
    assert (state["engines"]["theirs"]["state"], state["engines"]["theirs"]["adopted"]) == ("ready", True)
    assert sampled(state, "theirs", "prefix_hit_lifetime") is None
    assert ask(spark)["completion_tokens"] == 40


def test_stop_says_that_it_goes_on(spark: Any, server: subprocess.Popen[str], ports: tuple[int, int]) -> None:
    done = spark.sparkdash("stop", "theirs")
    assert done.returncode == 0
    assert done.stdout.startswith("theirs is no longer used. The server at http://127.0.0.1:")
    assert done.stdout.endswith(" keeps running: sparkdash did not start it.\n")
    assert spark.state()["engines"] == {}
    assert server.poll() is None
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/health", timeout=60) as answer:
        assert answer.status == 200
