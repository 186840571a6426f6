"""A server of one's own in real podman, from a Containerfile: loaded, proven, served, metered, swapped, adopted.

The tests of this module share one daemon and run in their order: each begins where the one before ended.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import yaml12

pytestmark = [pytest.mark.podman, pytest.mark.timeout(240)]
os.environ.setdefault("CONTAINERS_CONF", str(Path(__file__).parents[1] / "podman" / "containers.conf"))

HERE = Path(__file__).parent
PYTHON = os.path.realpath(sys.executable)
SERVER: dict[str, Any] = {
    "routes": ["chat", "embeddings"],
    "paths": {"embeddings": "/vectors"},
    "health": "/up",
    "health_has": {"status": "ready"},
    "models": "/list",
    "metrics": {"names": {"running": "own_running", "generated": "own_tokens_total"}},
    "log": [{"stage": "weights", "pattern": r"weights (?P<done>\d+)/(?P<total>\d+)"}],
    "stop_signal": "SIGINT",
    "stop_s": 30,
}


IMAGE = f"localhost/sparkdash-test-own:{os.getpid()}"
CONTAINERFILE = f"""\
FROM scratch
COPY own_server.py /srv/own_server.py
ENTRYPOINT ["{PYTHON}", "/srv/own_server.py"]
CMD ["8000", "own-model"]
"""
"""The server's image; its Python is the host's, mounted by the profile."""


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], hostfs: Any) -> Iterator[Any]:
    """A daemon that knows the server twice: at its fixed port, and told a port."""
    daemon = new_daemon(runtime="podman", side_by_side=False, min_dwell_s=0, stop_grace_s=5, sample_s=0.2)
    base = {
        "engine": "generic",
        "image": IMAGE,
        "gpu": False,
        "mounts": hostfs.mounts(),
        "memory": {"weights_gib": 0.1, "kv_gib": 0, "overhead_gib": 0.1, "source": "measured: 20 MiB"},
    }
    build = {"context": "own", "disk_gib": 0.01, "minutes": 1}
    fixed = {"profile": "own-fixed", **base, "build": build, "server": {**SERVER, "port": 8000}}
    told = {"profile": "own-told", **base, "command": [PYTHON, "/srv/own_server.py", "{port}", "{name}"]}
    daemon.write("own-fixed", yaml12.dump(fixed))
    daemon.write("own-told", yaml12.dump(told | {"server": SERVER}))
    folder = daemon.profiles / "own"
    folder.mkdir()
    shutil.copy(HERE / "own_server.py", folder)
    (folder / "Containerfile").write_text(CONTAINERFILE)
    yield daemon.start()
    daemon.end()
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=True, capture_output=True, timeout=60)


def test_its_image_is_built_from_the_containerfile_beside_the_profile(spark: Any) -> None:
    done = spark.sparkdash("build", "own-fixed", "--yes", timeout=200)
    assert done.returncode == 0, done.stderr
    assert subprocess.run(["podman", "image", "exists", IMAGE], timeout=30).returncode == 0


def chat(spark: Any, model: str) -> tuple[int, Any]:
    said = [{"role": "user", "content": "Count."}]
    return spark.call("POST", "/v1/chat/completions", {"model": model, "messages": said}, timeout=120)


def test_a_request_brings_up_a_server_at_its_fixed_port_and_the_server_is_called_by_its_own_name(spark: Any) -> None:
    """The image's own entrypoint and arguments run; the gateway writes the name that the server lists."""
    status, answer = chat(spark, "own-fixed")
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "one two three four five")
    engine = spark.state()["engines"]["own-fixed"]
    assert (engine["kind"], engine["state"], engine["model_id"]) == ("generic", "ready", "own-model")


def test_its_port_is_open_on_the_loopback_alone(spark: Any) -> None:
    """The server listens on all addresses of a network of its own."""
    (name,) = spark.containers()
    done = subprocess.run(["podman", "port", name], check=True, capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("8000/tcp -> 127.0.0.1:")


def test_a_route_has_the_path_that_the_profile_gives_it(spark: Any) -> None:
    status, answer = spark.call("POST", "/v1/embeddings", {"model": "own-fixed", "input": "x"})
    assert (status, answer["data"][0]["embedding"]) == (200, [0.5, 0.25])


def test_a_route_that_it_does_not_serve_is_refused_with_those_that_it_serves(spark: Any) -> None:
    status, answer = spark.call("POST", "/v1/rerank", {"model": "own-fixed", "query": "x", "documents": ["y"]})
    assert (status, answer["error"]["code"]) == (404, "route_not_served")
    assert "own-fixed does not serve /v1/rerank. It serves /v1/chat/completions, /v1/embeddings." in str(answer)


def test_its_figures_are_read_by_the_names_that_the_profile_gives(spark: Any) -> None:
    said = {"model": "own-fixed", "messages": [{"role": "user", "content": "Count."}], "stream": True}
    request = urllib.request.Request(
        f"{spark.url}/v1/chat/completions", json.dumps(said).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.readline().startswith(b"data:")

        def seen(state: dict[str, Any]) -> bool:
            values = (state["sample"] or {}).get("engines", {}).get("own-fixed", {}).get("values", {})
            return values.get("running") == 1 and (values.get("decode_tok_s") or 0) > 0

        spark.until(seen, timeout=30)
        answer.read()


def test_another_takes_its_place_and_it_ends_by_its_own_signal(spark: Any) -> None:
    """SIGINT ends this server at once, where SIGTERM would be lost on a first process without a handler."""
    assert chat(spark, "own-told")[0] == 200
    assert spark.containers() == ["sparkdash-own-told"]
    swap = spark.until(lambda state: state["swap"] is None)["swaps"][0]
    assert (swap["target"], swap["outcome"]) == ("own-told", "done")
    assert swap["ended_at"] - swap["started_at"] < SERVER["stop_s"]


def test_a_daemon_that_was_killed_finds_its_servers_again(spark: Any) -> None:
    before = spark.state()["engines"]["own-told"]
    spark.kill()
    spark.start()
    after = spark.until(lambda state: state["engines"].get("own-told", {}).get("state") == "ready")
    engine = after["engines"]["own-told"]
    assert (engine["adopted"], engine["port"], engine["model_id"]) == (True, before["port"], "own-told")
    assert chat(spark, "own-told")[0] == 200


def test_nothing_of_a_stopped_server_is_left(spark: Any) -> None:
    spark.post("/api/stop", {"profile": "own-told"}, timeout=60)
    assert spark.containers() == []
