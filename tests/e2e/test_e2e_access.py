"""Keys from the command line to a daemon's port, its socket, and its books."""

import json
import os
from collections.abc import Callable
from typing import Any

import programs

PROFILE = "profile: tiny\nengine: sim\nserves: [small]\nsim: {load_s: 0.1, memory_gib: 0.1, time_scale: 20}\n"


def test_a_key_from_its_making_to_its_end(new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon(runtime="process", reserve_gib=0)
    daemon.write("tiny", PROFILE)
    daemon.start()
    hello = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}

    def asked(path: str, key: str | None) -> int:
        return daemon.call("GET", path, key=key)[0]

    def chatted(key: str) -> int:
        return daemon.call("POST", "/v1/chat/completions", hello, key=key)[0]

    assert asked("/v1/models", "anything") == 200
    secret = daemon.sparkdash("keys", "add", "laptop", "--models", "small").stdout.strip()
    assert [asked("/v1/models", key) for key in (None, "anything", secret)] == [401, 401, 200]
    assert asked("/api/state", secret) == 403
    assert chatted(secret) == 200
    assert daemon.sparkdash("status").returncode == 0
    far = {**daemon.env, "SPARKDASH_URL": daemon.url}
    status = ["-m", "sparkdash", "status"]
    assert programs.run(status, env=far).returncode != 0
    console = daemon.sparkdash("keys", "add", "console", "--scope", "control").stdout.strip()
    assert programs.run(status, env={**far, "SPARKDASH_KEY": console}).returncode == 0
    assert daemon.sparkdash("stop", "--all").returncode == 0
    used = json.loads(daemon.sparkdash("keys", "list", "--json").stdout)["keys"][0]["usage"]
    assert used["requests_today"] == 1
    assert used["prompt_tokens"] > 0 < used["completion_tokens"]
    daemon.sparkdash("keys", "revoke", "laptop")
    assert chatted(secret) == 401
    audit = [json.loads(line) for line in (daemon.root / "state" / "audit.jsonl").read_text().splitlines()]
    assert [(line["who"], line["did"]) for line in audit] == [
        (f"uid {os.getuid()}", "keys add"),
        (f"uid {os.getuid()}", "keys add"),
        ("socket", "POST /api/stop"),
        (f"uid {os.getuid()}", "keys revoke"),
    ]
    assert secret not in (daemon.root / "state" / "audit.jsonl").read_text() + daemon.log.read_text()
    assert daemon.end(engines=False) == 0
