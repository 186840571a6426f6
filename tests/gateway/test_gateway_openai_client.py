"""The official client, unmodified, through the gateway."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from scripted import streaming

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.usefixtures("openai_sdk")


@pytest.fixture
async def client(house: Any) -> "AsyncIterator[openai.AsyncOpenAI]":
    import openai

    async with openai.AsyncOpenAI(base_url=house.base + "/v1", api_key="sk-local", max_retries=1) as made:
        yield made


async def test_errors_are_the_clients_own(house: Any, client: Any) -> None:
    """Unknown model: NotFoundError. Bad request: BadRequestError. No engine: an APIStatusError, tried once more at most."""
    import openai

    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="nope", messages=[])
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nope")
    with pytest.raises(openai.BadRequestError) as bad:
        await client.chat.completions.create(model="", messages=[])
    assert bad.value.code == "model_missing"


async def test_a_death_in_the_stream_is_an_error_with_its_words(house: Any, client: Any) -> None:
    """The client raises APIError and shows what happened."""
    import openai

    event = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n'
    house.engine.script = streaming(event, dies=True)
    stream = await client.chat.completions.create(model="alpha", messages=[], stream=True)
    with pytest.raises(openai.APIError, match="broke off in the middle"):
        [chunk async for chunk in stream]


async def test_a_response_whose_engine_dies_ends_in_a_clear_error(house: Any, client: Any, recorded_body: Any) -> None:
    """The SDK's helper reads no `response.failed`; without `error` it only misses `response.completed`."""
    import openai

    recorded = recorded_body("vllm-0.32.0-base-responses-stream")
    house.engine.script = streaming(recorded[: recorded.index(b"event: response.completed")], dies=True)
    with pytest.raises(openai.APIError, match="broke off in the middle of its answer"):
        async with client.responses.stream(model="alpha", input="go") as stream:
            await stream.get_final_response()
