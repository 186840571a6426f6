"""A real llama-server without any figures of its own: what the gateway counts of it, held against what clients saw.

The server is attached (`engine: openai`), with its metrics and its slots switched off.
"""

import bisect
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from figures import PROMPT

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]

TOKENS = 2600
"""Output tokens of each client."""
CLIENTS = 3
LATE_S = 3.0
"""Most by which a client reads a token later than the gateway passed it on, while other tests run."""


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], attached: Callable[..., Any], ports: tuple[int, int]) -> Any:
    """A daemon that uses a silent server, which somebody else started."""
    attached("--no-slots", "--parallel", str(CLIENTS), "--ctx-size", str(4096 * CLIENTS))
    daemon = new_daemon(runtime="process")
    daemon.write("theirs", f"profile: theirs\nengine: openai\nurl: http://127.0.0.1:{ports[0]}/v1\ncontext: 4096\n")
    return daemon.start()


class StreamingClient(threading.Thread):
    """One client, with the time at which it read each token."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.times: list[float] = []
        self.usage: dict[str, Any] = {}

    def run(self) -> None:
        body = {
            "model": "theirs", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": PROMPT}],
        }  # fmt: skip
        request = urllib.request.Request(
            f"{self._url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                self.usage = event.get("usage") or self.usage
                if event["choices"] and event["choices"][0]["delta"].get("content"):
                    self.times.append(time.time())

    def seen(self, at: float) -> int:
        return bisect.bisect_right(self.times, at)


def test_the_gateways_count_of_a_silent_engine_is_what_its_clients_saw(spark: Any) -> None:
    """Tokens so far and the rate of all while they run; every token once they have ended."""
    spark.until(lambda state: state["sample"])  # from now on once a second
    clients = [StreamingClient(spark.url) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    samples: dict[float, dict[str, Any]] = {}
    while any(client.is_alive() for client in clients):
        state = spark.state()
        if state["sample"] is not None:
            samples[state["sample"]["at"]] = state["sample"]
        time.sleep(0.1)
    running = {at: each for at, each in samples.items() if len(each["requests"]) == CLIENTS}
    assert running, "the clients were too quick to be seen"
    for at, sample in running.items():
        told = sum(each["output_tokens"] or 0 for each in sample["requests"].values())
        least, most = (sum(client.seen(moment) for client in clients) for moment in (at - 0.1, at + LATE_S))
        assert 0.98 * least - CLIENTS <= told <= 1.02 * most + CLIENTS, (at, least, told, most)
    spark.until(lambda state: state["sample"] and state["sample"]["engines"]["theirs"]["gateway"]["decode_tok_s"])
    state = spark.until(lambda state: not state["requests"] and not (state["sample"] or {}).get("requests"))
    counted = state["sample"]["engines"]["theirs"]["gateway"]
    assert counted["output_tokens"] == sum(client.usage["completion_tokens"] for client in clients) == TOKENS * CLIENTS
    assert counted["prompt_tokens"] == sum(client.usage["prompt_tokens"] for client in clients)
    assert counted["requests"] == CLIENTS
    assert state["sample"]["engines"]["theirs"]["values"] == {}
