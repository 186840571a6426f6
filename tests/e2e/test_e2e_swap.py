"""Swapping real containers under many clients, and every bad input a person can give."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.podman, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tiny: Any) -> Iterator[Any]:
    """A daemon on real podman with two good profiles and a small zoo, one engine at a time."""
    daemon = new_daemon(
        runtime="podman", stop_grace_s=3, no_progress_s=100, drain_s=30, min_dwell_s=0, side_by_side=False
    )
    for name in ("east", "west"):
        daemon.write(name, tiny(name))
    daemon.write("dies", tiny("dies", die=True))
    daemon.write("hangs", tiny("hangs", hang=True))
    daemon.write("no-image", tiny("no-image", image="localhost/no-such-image:0"))
    return daemon.start()


def test_twenty_clients_two_profiles_every_request_is_answered_in_a_fair_order(spark: Any) -> None:
    import openai

    async def ask(client: "openai.AsyncOpenAI", number: int) -> tuple[int, str]:
        model = ("east", "west")[number % 2]
        answer = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": str(number)}], max_tokens=4
        )
        text = answer.choices[0].message.content
        assert text is not None
        assert text.split()[0] == model
        return number, text

    async def all_of_them() -> list[tuple[int, str]]:
        async with openai.AsyncOpenAI(base_url=f"{spark.url}/v1", api_key="x", max_retries=0, timeout=200) as client:
            asked = [asyncio.create_task(ask(client, n)) for n in range(20)]
            return [await done for done in asyncio.as_completed(asked)]

    order = [number for number, _ in asyncio.run(all_of_them())]
    assert sorted(order) == list(range(20))
    swaps = [s for s in spark.state()["swaps"] if s["outcome"] == "done"]
    assert 2 <= len(swaps) <= 6
    assert len(spark.containers()) == 1
    spark.post("/api/stop", {"profile": None})
    assert spark.containers() == []


@contextmanager
def impatient(spark: Any) -> Iterator[None]:
    """The daemon gives up soon on an engine that says nothing; good ones may be as slow as a busy machine makes them."""
    before = spark.configure(lambda text: text.replace("no_progress_s = 100", "no_progress_s = 3"))
    spark.post("/api/reload", {})
    yield
    spark.configure(lambda _: before)
    spark.post("/api/reload", {})


def refused(spark: Any, model: str) -> "openai.APIStatusError":
    """The error that the official client raises for a chat with this model."""
    import openai

    client = openai.OpenAI(base_url=f"{spark.url}/v1", api_key="x", max_retries=0, timeout=120)
    with client, pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
    return caught.value


@pytest.mark.parametrize(("model", "status", "code", "words"), [
    ("eas", 404, "model_not_found", "east"), ("no-image", 400, "image_missing", "localhost/no-such-image:0"),
    ("dies", 400, "out_of_memory", "CUDA out of memory"), ("hangs", 400, "no_progress", "progress"),
])  # fmt: skip
def test_each_bad_profile_gets_its_own_clear_error(spark: Any, model: str, status: int, code: str, words: str) -> None:
    import openai

    with impatient(spark) if code == "no_progress" else nullcontext():
        error = refused(spark, model)
        told = spark.sparkdash("use", model, "--yes")
    assert (error.status_code, error.code) == (status, code)
    assert words in str(error.body)
    assert told.returncode != 0
    assert words in told.stderr + told.stdout
    assert "Traceback" not in told.stderr
    with openai.OpenAI(base_url=f"{spark.url}/v1", api_key="x", max_retries=0, timeout=120) as client:
        answer = client.chat.completions.create(model="east", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content
    assert len(spark.containers()) == 1


def test_without_podman_the_service_runs_and_says_what_is_missing(
    new_daemon: Callable[..., Any], tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = new_daemon(runtime="podman")
    lonely.env["PATH"] = "/nonexistent"
    lonely.write("east", tiny("east"))
    lonely.start()
    error = refused(lonely, "east")
    assert (error.status_code, error.code) == (400, "runtime_missing")
    assert "podman" in str(error.body)
    assert [p["name"] for p in lonely.get("/api/profiles")["profiles"]] == ["east"]
