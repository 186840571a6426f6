"""Conversations of a real vLLM, which its file tier keeps; the engine's own count says what came back.

Stock vLLM refuses the tier on a CPU; tests/real/shim replaces the one copy that needs a GPU. The tests of this module
share one daemon and run in their order.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_profiles
import yaml

from sparkdash.catalog import yaml12

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.podman, pytest.mark.timeout(600)]

SHIM = Path(__file__).parent / "shim"
LONG = "cache swap stream memory token profile engine spark " * 150


@pytest.fixture(scope="module")
def keeper(new_daemon: Callable[..., Any], tiny_profile: str) -> Iterator[Any]:
    daemon = new_daemon(runtime="podman", reserve_gib=1.0, stop_grace_s=20)
    daemon.profile = yaml.safe_load(tiny_profile) | {"profile": "kept", "keep_kv": {"max_gib": 1}, "variants": {}}
    daemon.profile["mounts"] += [{"source": str(SHIM), "target": str(SHIM)}]
    daemon.profile["env"] |= {"PYTHONPATH": str(SHIM)}
    daemon.write("kept", yaml12.dump(daemon.profile))
    return daemon.start()


def asked(spark: Any) -> tuple[int, int, str]:
    """Ask for the long conversation; return its tokens, those that the engine found in its cache, and the answer."""
    body = {"model": "kept", "messages": [{"role": "user", "content": LONG}], "max_tokens": 8, "temperature": 0}
    told = spark.post("/v1/chat/completions", body, timeout=280)
    usage = told["usage"]
    return (
        usage["prompt_tokens"],
        (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0),
        str(told["choices"][0]["message"]["content"]),
    )


def blocks(spark: Any) -> list[Path]:
    return sorted(spark.root.glob("**/kv/*/kept/**/*.bin"))


def left(spark: Any) -> None:
    spark.post("/api/stop", {"profile": "kept"}, timeout=120)
    spark.until(lambda state: "kept" not in state["engines"])


def test_a_conversation_is_there_and_back(keeper: Any) -> None:
    """Every block but the last comes back, from files that nobody else may read. The answer is the same."""
    tokens, cached, answer = asked(keeper)
    assert cached == 0
    left(keeper)
    assert len(blocks(keeper)) >= tokens // 32
    (folder,) = keeper.root.glob("**/kv/*/kept")
    assert folder.stat().st_mode & 0o777 == 0o700
    again, cached, same = asked(keeper)
    assert (again, same) == (tokens, answer)
    assert cached >= 0.9 * tokens


def test_torn_blocks_are_computed_again_and_the_answer_is_the_same(keeper: Any) -> None:
    """As a power cut leaves them."""
    left(keeper)
    for file in blocks(keeper)[::2]:
        file.write_bytes(file.read_bytes()[:4096])
    tokens, cached, answer = asked(keeper)
    assert cached < 0.1 * tokens
    assert any("their files are damaged" in one["text"] for one in keeper.state()["notices"])
    assert asked(keeper)[1:] == (tokens // 32 * 32, answer)
    assert {file.stat().st_size for file in blocks(keeper)} == {16384}


def test_with_another_template_the_blocks_are_gone_and_all_is_computed_again(keeper: Any) -> None:
    left(keeper)
    keeper.profile["args"]["chat-template"] = "\n" + tiny_profiles.STRICT
    keeper.write("kept", yaml12.dump(keeper.profile))
    keeper.post("/api/reload", {})
    tokens, cached, _ = asked(keeper)
    assert cached < tokens / 10
