"""`sparkdash setup` before a real daemon: from a server that runs elsewhere to a first token."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import programs
import pytest

HERE = Path(__file__).parent
STEPS = ("--only", "attach", "--only", "import", "--only", "model", "--only", "first-token")


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """A server that nobody told sparkdash of; its port."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    words = [str(HERE / "tiny_engine.py"), "--port", str(port), "--served-model-name", "org/Tiny:8b"]
    process = programs.Program(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any("startup complete" in line for line in process.stdout)
    yield port
    process.stdout.close()
    process.kill()
    process.wait(timeout=30)


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], server: int) -> Iterator[Any]:
    """A daemon without any profile, and a home with a llama-swap configuration."""
    daemon = new_daemon(runtime="process", reserve_gib=0)
    home = daemon.root / "home"
    config = home / ".config/llama-swap/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("models:\n  quick:\n    cmd: llama-server --port ${PORT} -m /models/q.gguf\n    ttl: 60\n")
    daemon.env["HOME"] = str(home)
    daemon.start()
    yield daemon
    daemon.end()


def steps(spark: Any, server: int) -> dict[str, dict[str, Any]]:
    done = spark.sparkdash("setup", "--json", *STEPS, "--port", str(server))
    assert done.returncode == 0, done.stderr
    return {step["step"]: step for step in json.loads(done.stdout)["steps"]}


def test_a_setup_is_shown_then_taken_then_done(spark: Any, server: int) -> None:
    shown = steps(spark, server)
    assert "tiny-8b.yaml" in shown["attach"]["subjects"]  # beside those of servers that this box really has
    assert shown["import"]["outlook"] == "proposed"
    idle = spark.sparkdash("setup", *STEPS, "--port", str(server))
    assert "Nothing was changed." in idle.stderr
    assert not any(spark.profiles.iterdir())

    done = spark.sparkdash("setup", "--yes", "--model", "tiny-8b", *STEPS, "--port", str(server))
    assert re.search(r"First token after \d+\.\d\d s; tiny-8b said: org/Tiny:8b", done.stdout), done.stderr
    assert "idle_ttl_s = 60" in done.stdout
    assert "It needs" not in done.stderr, "a server that runs elsewhere takes no memory of the profile's"
    assert {file.name for file in spark.profiles.iterdir()} >= {"tiny-8b.yaml", "quick.yaml"}

    again = steps(spark, server)
    assert {name: step["outlook"] for name, step in again.items()} == {
        "attach": "done", "import": "done", "model": "done", "first-token": "proposed",
    }  # fmt: skip


@pytest.mark.full
def test_the_daemons_own_port_is_no_fault_of_the_box(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spark.env, "SPARKDASH_PORT", spark.url.rpartition(":")[2])
    done = spark.sparkdash("setup", "--json", "--only", "box")
    (box,) = json.loads(done.stdout)["steps"]
    assert "port" not in box["subjects"], box


@pytest.mark.full
def test_a_step_that_fails_is_named_and_the_next_is_taken(spark: Any, server: int) -> None:
    done = spark.sparkdash("setup", "--yes", "--only", "import", "--only", "first-token", "--model", "nothing")
    assert done.returncode == 3
    assert "No profile or alias is called 'nothing'." in done.stderr
    assert not done.stdout
    (spark.profiles / "gone.yaml").write_text(
        "profile: gone\nabout: nobody answers there\nengine: openai\nurl: http://127.0.0.1:1\nmodel_id: x\n"
    )
    failed = spark.sparkdash("setup", "--yes", "--only", "first-token", "--model", "gone")
    assert failed.returncode not in (0, 2)
    assert "Not done: first-token." in failed.stderr
    assert "Traceback" not in failed.stderr
