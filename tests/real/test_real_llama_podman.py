"""A real llama-server in a real container: it is asked for its flags there, serves, and gives way to another."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_profiles
from figures import podman

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.podman, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def boxed(new_daemon: Callable[..., Any], llama: Path, hostfs: Any) -> Iterator[Any]:
    daemon = new_daemon(runtime="podman", stop_grace_s=20, side_by_side=False, min_dwell_s=0)
    placed = {"image": hostfs.image, "mounts": hostfs.mounts(llama)}
    daemon.write("boxed", tiny_profiles.llama_document(llama, "boxed", **placed))
    kept = {"keep_kv": {"max_gib": 1}, "args": {"ctx-size": 16384, "threads": 1}, "variants": {}}
    daemon.write("boxed-kept", tiny_profiles.llama_document(llama, "boxed-kept", **placed, **kept))
    wrong = {"no-mmap": True, "mlock": True}
    daemon.write("boxed-wrong", tiny_profiles.llama_document(llama, "boxed-wrong", **placed, args=wrong))
    return daemon.start()


def chat(spark: Any, model: str, words: int = 40) -> tuple[int, Any]:
    said = [{"role": "user", "content": "spark " * words}]
    body = {"model": model, "messages": said, "max_tokens": 8, "ignore_eos": True}
    return spark.call("POST", "/v1/chat/completions", body, timeout=120)  # type: ignore[no-any-return]


def test_its_engine_reads_its_file_and_caches_prefixes(boxed: Any) -> None:
    status, first = chat(boxed, "boxed")
    assert (status, first["usage"]["completion_tokens"]) == (200, 8)
    (container,) = boxed.containers()
    assert "LLAMA_ARG_LOAD_MODE=none" in json.loads(podman("inspect", "--format", "{{json .Config.Env}}", container))
    _, second = chat(boxed, "boxed")
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == second["usage"]["prompt_tokens"] - 1


def test_a_conversation_outlives_its_container(boxed: Any) -> None:
    """Saved through the mount, and found again by the next container; the engine's own count says so."""
    chat(boxed, "boxed-kept", 1200)
    chat(boxed, "boxed")
    status, again = chat(boxed, "boxed-kept", 1200)
    usage, told = again["usage"], [one["text"] for one in boxed.state()["notices"]]
    assert (status, usage["prompt_tokens_details"]["cached_tokens"]) == (200, usage["prompt_tokens"] - 1), told
    boxed.post("/api/stop", {"profile": None})


def test_an_old_flag_is_refused_in_the_engines_words(boxed: Any) -> None:
    """`mlock`; `no-mmap` is said by a variable, which each build takes or ignores."""
    status, body = chat(boxed, "boxed-wrong")
    assert status == 400
    assert "invalid argument: --mlock" in body["error"]["message"]
