"""Conversations of a real llama-server, kept while another engine runs; the engine's own count says what came back.

The tests of this module share one daemon and run in their order: each begins where the one before ended.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_profiles

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]

LONG = "cache swap stream memory token profile engine spark " * 150


@pytest.fixture(scope="module")
def keeper(new_daemon: Callable[..., Any], llama: Path) -> Iterator[Any]:
    """A daemon with a profile that keeps its conversations, and another one, one engine at a time."""
    daemon = new_daemon(runtime="process", stop_grace_s=20, side_by_side=False, min_dwell_s=0)
    template = daemon.root / "own.jinja"
    template.write_text(tiny_profiles.STRICT)
    args = {"ctx-size": 16384, "parallel": 2, "threads": 1, "chat-template-file": str(template)}
    daemon.write("kept", tiny_profiles.llama_document(llama, "kept", args=args, keep_kv={"max_gib": 1}, variants={}))
    daemon.write("other", tiny_profiles.llama_document(llama, "other", variants={}))
    return daemon.start()


def folder(spark: Any) -> Path:
    (found,) = spark.root.glob("**/kv/*/kept")
    return Path(found)


def saved(spark: Any) -> list[Path]:
    return sorted(folder(spark).glob("slot*.bin"))


def asked(spark: Any) -> tuple[int, int]:
    """Tokens of the long conversation, and those of them that the engine found in its cache."""
    body = {"model": "kept", "messages": [{"role": "user", "content": LONG}], "max_tokens": 4, "temperature": 0}
    usage = spark.post("/v1/chat/completions", body)["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def left(spark: Any) -> None:
    """Another model takes its place."""
    spark.post(
        "/v1/chat/completions", {"model": "other", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    )


def told(spark: Any) -> list[str]:
    return [one["text"] for one in spark.state()["notices"] if one["code"] in ("kv_back", "kv_not_kept")]


def test_a_conversation_is_there_and_back(keeper: Any) -> None:
    """The engine finds all of it but the last token in its cache; nobody else may read the files."""
    asked(keeper)
    left(keeper)
    assert len(saved(keeper)) == 1
    assert folder(keeper).stat().st_mode & 0o777 == 0o700
    tokens, cached = asked(keeper)
    assert cached == tokens - 1, told(keeper)
    (words,) = told(keeper)
    assert f"{tokens + 3:,} tokens back in" in words
    start = next(one for one in keeper.state()["swaps"] if one["target"] == "kept")["start"]
    assert start["kv_back"]["s"] < start["kv_back"]["prefill_s"]


def test_a_torn_file_is_named_and_never_read(keeper: Any) -> None:
    """llama-server ends itself at one; the conversation is computed again."""
    left(keeper)
    (file,) = saved(keeper)
    file.write_bytes(file.read_bytes()[:-5000])
    tokens, cached = asked(keeper)
    assert cached < tokens / 10
    assert any("its file is damaged" in words for words in told(keeper))


def test_with_another_template_everything_is_computed_again(keeper: Any) -> None:
    left(keeper)
    (keeper.root / "own.jinja").write_text(tiny_profiles.STRICT.replace("assistant\\n", "assistant:\\n"))
    tokens, cached = asked(keeper)
    assert cached < tokens / 10
    assert saved(keeper) == []


def test_a_restored_prompt_that_is_answered_otherwise_is_told_and_nothing_is_restored(keeper: Any) -> None:
    """The file is as long as before and holds other values, as a bad disk makes them."""
    left(keeper)
    assert len(saved(keeper)) == 1
    proof = folder(keeper) / "proof.bin"
    held = proof.read_bytes()
    last, end = (
        len(held) // 5,
        len(held) // 50,
    )  # zeros in the values alone: else llama-server refuses the file, or dies
    proof.write_bytes(held[:-last] + bytes(last - end) + held[-end:])
    tokens, cached = asked(keeper)
    assert cached < tokens / 10
    (words,) = (one for one in told(keeper) if "answers a restored prompt with" in one)
    assert ", and answered " in words
    (keeper.root / "own.jinja").write_text(tiny_profiles.STRICT)
    left(keeper)
    asked(keeper)


def test_what_was_kept_goes_with_its_profile(keeper: Any) -> None:
    left(keeper)
    assert len(saved(keeper)) == 1
    kept = folder(keeper)
    (keeper.profiles / "kept.yaml").unlink()
    keeper.post("/api/reload", {})
    keeper.until(lambda _: not kept.exists())
