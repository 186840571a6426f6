"""A prompt that is too long is told in the words on which agents compact it, whichever engine says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkdash.gateway.protocol.problems import overflow_error

LLAMACPP = (
    b'{"error":{"code":400,"message":"request (6002 tokens) exceeds the available context size (4096 tokens), try '
    b'increasing it","type":"exceed_context_size_error","n_prompt_tokens":6002,"n_ctx":4096}}'
)
"""Recorded."""


def body(message: str) -> bytes:
    """SGLang's and TensorRT-LLM's shape."""
    return json.dumps({"object": "error", "message": message, "type": "BadRequestError", "code": 400}).encode()


@pytest.mark.parametrize(
    ("told", "asked", "limit"),
    [
        (LLAMACPP, 6002, 4096),
        (body("The input (291793 tokens) is longer than the model's context length (262144 tokens)."), 291793, 262144),
        (
            body(
                "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
                "70000 tokens: 6000 tokens from the input messages and 64000 tokens for the completion."
            ),
            70000,
            32768,
        ),
        (
            body("The sum of prompt length (72417.0), query length (0) should not exceed max_num_tokens (69632)"),
            72417,
            69632,
        ),
        (
            body(
                "The sum of prompt length (4000) and query length (0) max_tokens (2048) should not exceed max_seq_len (4096)"
            ),
            6048,
            4096,
        ),
        (
            body(
                "`default_max_tokens` (-152) must be greater than 0, `default_max_tokens` (-152) = max_seq_len (8192) - "
                "`splited_prompt_len` (8000) - `query_token_len` (344)"
            ),
            8344,
            8192,
        ),
    ],
)
def test_every_engines_words_are_known(told: bytes, asked: int, limit: int) -> None:
    """The figures are the engine's."""
    error = overflow_error(told)
    assert error is not None
    assert (error.code, error.status) == ("context_length_exceeded", 400)
    assert error.message.startswith(
        f"This model's maximum context length is {limit} tokens. However, you requested {asked} tokens."
    )


def test_vllms_sentence_is_kept() -> None:
    """It is OpenAI's already; only the code is missing."""
    words = "This model's maximum context length is 512 tokens. However, your request has 900 input tokens."
    error = overflow_error(json.dumps({"error": {"message": words, "code": 400}}).encode())
    assert error is not None
    assert error.message == words


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"not json",
        b"[1]",
        b"null",
        b'{"error":7}',
        b'{"error":{"message":null}}',
        b'{"error":{"message":"max_tokens=99999 cannot be greater than max_model_len=4096."}}',
    ],
)
def test_other_refusals_are_the_engines_own(told: bytes) -> None:
    """Nothing is made of them."""
    assert overflow_error(told) is None


@pytest.mark.parametrize("stream", [False, True])
async def test_it_has_a_true_status_and_each_protocols_shape(house: Any, stream: bool) -> None:
    """400 with OpenAI's code; Anthropic's type on messages; the row says why."""

    async def refuse(_seen: Any, wire: Any) -> None:
        await wire.answer(LLAMACPP, status=400)

    house.engine.script = refuse
    chat = await house.chat(stream=stream)
    told = chat.json()["error"]
    assert (chat.status_code, told["code"], told["type"]) == (400, "context_length_exceeded", "invalid_request_error")
    messages = await house.client.post("/v1/messages", json={"model": "alpha", "stream": stream})
    told = messages.json()
    assert (messages.status_code, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")
    await house.until(lambda _: len(house.recorded) >= 2)
    assert {row.error for row in house.recorded} == {"context_length_exceeded"}


async def test_any_other_400_passes_byte_for_byte(house: Any) -> None:
    """With the engine's headers and length."""
    told = b'{"error":{"message":"max_tokens=99999 cannot be greater","code":400,"type":"BadRequestError"}}'

    async def refuse(_seen: Any, wire: Any) -> None:
        await wire.answer(told, status=400, x_request_id="r1")

    house.engine.script = refuse
    reply = await house.chat()
    assert (reply.status_code, reply.content, reply.headers["x-request-id"]) == (400, told, "r1")
    assert reply.headers["content-length"] == str(len(told))
    assert (await house.ended()).error == "BadRequestError"
