"""Clients that only speak Ollama. What they send and read is Ollama's Python client 0.6's."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from scripted import answering, replaying, streaming

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged, RequestChanged
from sparkdash.domain.images import Inventory, Item, Stock
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.weights import WeightBytes, WeightFacts
from sparkdash.errors import EngineError
from sparkdash.gateway.apis import ollama_wire
from sparkdash.gateway.relay import passthrough
from sparkdash.settings import Settings

HELLO = [{"role": "user", "content": "hello"}]


async def chat(house: Any, path: str = "/api/chat", **body: Any) -> list[dict[str, Any]]:
    given = {"prompt": "hello"} if path.endswith("generate") else {"messages": HELLO}
    reply = await house.client.post(path, json={"model": "alpha", **given, **body})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def asked(house: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(house.engine.seen[-1].body)
    return body


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
async def test_a_chat_streams_as_lines(house: Any, recorded_body: Any, end: bytes) -> None:
    """For every line end of an engine's events."""
    house.engine.script = replaying(recorded_body("vllm-0.32.0-base-chat-stream-usage").replace(b"\n", end))
    *lines, last = await chat(house)
    assert "".join(line["message"]["content"] for line in lines).endswith("quiet engine")
    assert any(line["message"].get("thinking") for line in lines)
    assert {line["done"] for line in lines} == {False}
    assert {line["model"] for line in (*lines, last)} == {"alpha"}
    assert (last["done"], last["eval_count"], last["message"]["content"]) == (True, 80, "")
    times = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    assert all(isinstance(last[key], int) for key in times)
    assert last["total_duration"] >= last["eval_duration"] > 0
    row = await house.ended()
    assert (row.completion_tokens, row.state.value) == (80, "done")


async def test_tool_calls_come_whole(house: Any, recorded_body: Any) -> None:
    house.engine.script = replaying(recorded_body("vllm-0.32.0-base-chat-tool-stream"))
    lines = await chat(house, tools=[{"type": "function", "function": {"name": "get_weather"}}])
    calls = [line["message"]["tool_calls"] for line in lines if "tool_calls" in line["message"]]
    assert calls == [[{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]]
    assert lines[-1]["done_reason"] == "stop"
    assert asked(house)["tools"][0]["function"]["name"] == "get_weather"


def frames(*events: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


STRANGE = (
    {"choices": {}},
    {"choices": [{"message": "x", "delta": "x"}]},
    {"choices": [{"message": {"tool_calls": {}}, "delta": {"tool_calls": ["x"]}}]},
    {"choices": [{"message": {"tool_calls": [{"function": "x"}]}, "delta": {"tool_calls": [{"function": []}]}}]},
    {"choices": [{"message": {"content": {"a": 1}}, "delta": {"content": [1]}}], "usage": "none"},
)


@pytest.mark.parametrize("strange", STRANGE)
async def test_an_answer_of_another_shape_is_told_in_ollamas_words(house: Any, strange: dict[str, Any]) -> None:
    """Or passed over; never a page of ours that says that sparkdash failed."""
    house.engine.script = answering(json.dumps(strange).encode())
    reply = await house.client.post("/api/chat", json={"model": "alpha", "messages": HELLO, "stream": False})
    assert reply.status_code in (200, 502)
    assert isinstance(reply.json().get("error", ""), str)
    house.engine.script = streaming(frames(strange))
    assert "error" in (lines := await chat(house))[-1] or lines[-1]["done"]
    assert house.supervisor.open == 0


async def test_an_answer_that_is_no_stream(house: Any, recorded_body: Any) -> None:
    recorded = recorded_body("vllm-0.32.0-base-chat")
    house.engine.script = answering(recorded)
    body = {"model": "alpha", "messages": HELLO, "stream": False}
    said = (await house.client.post("/api/chat", content=json.dumps(body))).json()
    theirs = json.loads(recorded)
    assert said["message"]["content"] == (theirs["choices"][0]["message"]["content"] or "")
    assert (said["done"], said["eval_count"]) == (True, theirs["usage"]["completion_tokens"])
    assert said["load_duration"] <= said["total_duration"]
    assert "eval_duration" not in said  # nobody measured when its text came


async def test_generate_is_a_chat_with_its_text_on_top(house: Any, recorded_body: Any) -> None:
    house.engine.script = replaying(recorded_body("llama.cpp-0c1e57098-base-chat-stream"))
    lines = await chat(house, "/api/generate", system="be short")
    assert all("message" not in line and isinstance(line["response"], str) for line in lines)
    assert "".join(line["response"] + line.get("thinking", "") for line in lines)
    assert asked(house)["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}]


async def test_raw_prompts_are_completions(house: Any, recorded_body: Any) -> None:
    house.engine.script = replaying(recorded_body("vllm-0.32.0-base-completions-stream"))
    lines = await chat(house, "/api/generate", suffix="end", options={"num_predict": 5})
    assert "".join(line["response"] for line in lines)
    assert house.engine.seen[0].target == "/v1/completions"
    assert {"prompt": "hello", "suffix": "end", "max_tokens": 5}.items() <= asked(house).items()


def test_a_request_in_openais_words() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        {"role": "user", "content": "see", "images": ["iVBORw0K", "/9j/4AAQ"]},
        {"role": "assistant", "content": "", "tool_calls": [call, {"function": {"name": "g", "arguments": {}}}]},
        {"role": "tool", "content": "of g", "tool_name": "g"},
        {"role": "tool", "content": "of f"},
    ]
    options = {"temperature": 0, "num_predict": -1, "stop": ["x"], "num_ctx": 4096, "seed": 7, "top_p": 0.5}
    body = {"model": "m", "messages": messages, "options": options, "format": {"type": "object"}, "think": "high"}
    made = ollama_wire.parse_ollama_request(body | {"keep_alive": "5m"}, generate=False).body
    assert [part.get("image_url", {}).get("url") for part in made["messages"][0]["content"]] == [
        None,
        "data:image/png;base64,iVBORw0K",
        "data:image/jpeg;base64,/9j/4AAQ",
    ]
    f, g = made["messages"][1]["tool_calls"]
    assert json.loads(f["function"]["arguments"]) == {"a": 1}
    assert [message["tool_call_id"] for message in made["messages"][2:]] == [g["id"], f["id"]]
    rest = {key: value for key, value in made.items() if key != "messages"}
    assert rest == {
        "temperature": 0,
        "stop": ["x"],
        "seed": 7,
        "top_p": 0.5,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "reasoning_effort": "high",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    off = ollama_wire.parse_ollama_request({"model": "m", "messages": HELLO, "think": False}, generate=False).body
    assert off["chat_template_kwargs"] == {"enable_thinking": False}


async def test_errors_are_a_string(house: Any, recorded_body: Any) -> None:
    house.engine.script = answering(recorded_body("vllm-0.32.0-base-err-model"), 404)
    body = {"model": "alpha", "messages": HELLO}
    engines = await house.client.post("/api/chat", json=body)
    ours = await house.client.post("/api/chat", json=body | {"model": "nope"})
    odd = await house.client.post("/api/generate", content=b"{")
    assert [reply.status_code for reply in (engines, ours, odd)] == [404, 404, 400]
    assert all(isinstance(reply.json()["error"], str) for reply in (engines, ours, odd))
    assert "nope" in ours.json()["error"]
    assert (await house.client.get("/api/chat")).status_code == 405
    assert (await house.client.post("/api/tags", json={})).status_code == 405


class TestWaiting:
    """A gateway that holds nothing back."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(hold_headers_s=0)

    async def test_a_waiting_client_gets_lines(
        self, house: Any, recorded_body: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Empty text while the model loads; then the answer, and how long the load took."""
        monkeypatch.setattr(passthrough, "KEEP_ALIVE_S", 0.01)
        house.engine.script = replaying(recorded_body("vllm-0.32.0-base-chat-stream-usage"))
        house.supervisor.gate.clear()
        body = {"model": "alpha", "messages": HELLO}
        async with house.client.stream("POST", "/api/chat", json=body) as reply:
            lines = reply.aiter_lines()
            first = [json.loads(await anext(lines)) for _ in range(3)]
            house.supervisor.gate.set()
            rest = [json.loads(line) async for line in lines]
        assert {(line["message"]["content"], line["done"]) for line in first} == {("", False)}
        assert rest[-1]["done"]
        assert rest[-1]["load_duration"] > 10**7

    async def test_a_load_that_fails_late_is_a_line(self, house: Any) -> None:
        house.supervisor.gate.clear()
        house.supervisor.error = EngineError("It did not come up.", code="out_of_memory")
        async with house.client.stream("POST", "/api/chat", json={"model": "alpha", "messages": HELLO}) as reply:
            lines = reply.aiter_lines()
            await anext(lines)
            house.supervisor.gate.set()
            rest = [json.loads(line) async for line in lines]
        assert "It did not come up." in rest[-1]["error"]
        assert not any(line.get("done") for line in rest)


async def test_a_request_without_a_prompt_loads(house: Any) -> None:
    for path in ("/api/chat", "/api/generate"):
        said = (await house.client.post(path, json={"model": "beta/fast:latest"})).json()
        assert (said["done"], said["done_reason"]) == (True, "load")
    assert house.supervisor.leases == ["beta/fast:latest"] * 2
    assert house.engine.seen == []


async def test_keep_alive_0_unloads_what_nobody_uses(house: Any) -> None:
    """Ollama's own words for it; an engine that has requests stays, and the client is told."""
    asked = {"model": "alpha:latest", "keep_alive": 0}
    said = (await house.client.post("/api/generate", json=asked)).json()
    assert (said["done"], said["done_reason"], house.supervisor.calls) == (True, "unload", [("stop", "alpha")])
    house.supervisor.gate.clear()
    waits = asyncio.create_task(house.client.post("/v1/chat/completions", json={"model": "alpha", "messages": []}))
    await house.in_state(RequestState.WAITING)
    refused = await house.client.post("/api/chat", json=asked)
    assert (refused.status_code, "1 request" in refused.json()["error"]) == (409, True)
    house.supervisor.gate.set()
    await waits
    assert house.supervisor.calls == [("stop", "alpha")]


async def test_keep_alive_0_of_a_chat_unloads_after_its_answer(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not what another request uses; the client has its answer all the same."""
    stopped, stop = asyncio.Event(), house.supervisor.stop

    async def seen(*args: Any, **more: Any) -> None:
        await stop(*args, **more)
        stopped.set()

    monkeypatch.setattr(house.supervisor, "stop", seen)
    chat, running = "/v1/chat/completions", RequestState.STREAMING
    other = Request(id="o", client="c", profile="alpha", route=chat, state=running, started_at=1.0)
    house.bus.publish(RequestChanged(other))
    for name in ("alpha", "beta/fast"):
        asked = {"model": name, "messages": HELLO, "stream": False, "keep_alive": "0s"}
        answer = await house.client.post("/api/chat", json=asked, headers={"connection": "close"})  # gone after it
        assert (answer.status_code, answer.json()["done"]) == (200, True)
    await stopped.wait()
    assert house.supervisor.calls == [("stop", "beta/fast")]


async def test_log_probabilities_stand_beside_the_text(house: Any) -> None:
    """As in Ollama's own lines, for a chat and for a prompt."""
    said = [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}]
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    house.engine.script = answering(json.dumps({"choices": [choice | {"logprobs": {"content": said}}]}).encode())
    for path, more in (
        ("/api/chat", {"messages": [{"role": "user", "content": "x"}]}),
        ("/api/generate", {"prompt": "x"}),
    ):
        asked = {"model": "alpha", "stream": False, "logprobs": True, "top_logprobs": 2, **more}
        assert (await house.client.post(path, json=asked)).json()["logprobs"] == said
        sent = json.loads(house.engine.seen[-1].body)
        assert (sent["logprobs"], sent["top_logprobs"]) == (True, 2)


async def test_what_there_is(house: Any, tools: Any) -> None:
    tags = (await house.client.get("/api/tags")).json()["models"]
    assert [(item["name"], item["model"]) for item in tags] == [(n, n) for n in ("alpha", "coder", "beta/fast")]
    assert all(len(item["digest"]) >= 12 and item["modified_at"].endswith("Z") for item in tags)
    assert all(isinstance(item["size"], int) for item in tags)  # without it Zed reads none of the list
    house.bus.publish(EngineChanged(engine=tools.ready("beta/fast", EngineState.LOADING)))
    up = (await house.client.get("/api/ps")).json()["models"]
    assert [(item["name"], item["context_length"], item["expires_at"]) for item in up] == [
        ("alpha", 32768, "2300-01-01T00:00:00Z")
    ]
    version = (await house.client.get("/api/version")).json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 13, 4)
    for name in ("coder", "coder:latest", "auto"):
        shown = (await house.client.post("/api/show", json={"model": name})).json()
        info = shown["model_info"]
        assert info[f"{info['general.architecture']}.context_length"] == 32768
        assert info["general.basename"] == name  # VS Code shows this one, and lists each of a profile's names
    assert shown["capabilities"] == ["completion"]  # vLLM without a tool parser refuses tools
    told = house.catalog.profiles["alpha"].model_copy(update={"can": ("tools", "reasoning")})
    house.catalog.profiles["alpha"] = told
    shown = (await house.client.post("/api/show", json={"model": "alpha"})).json()
    assert shown["capabilities"] == ["completion", "tools", "thinking"]
    assert (await house.client.post("/api/show", json={"name": "nope"})).status_code == 404
    assert (await house.client.post("/api/show", json={})).status_code == 400
    assert house.supervisor.leases == []


async def test_what_the_weights_say_is_told(house: Any) -> None:
    """Where they are on this box; JetBrains' client takes no model with an architecture and without its width."""
    house.supervisor.targets["alpha"] = WeightFacts(
        origin="here", format="safetensors", architecture="qwen3_moe", bytes=WeightBytes(dense=1000, experts=9000),
        parameters=30_532_122_624, hidden=2048, dtype="bfloat16", quantization="nvfp4",
    )  # fmt: skip
    alpha, coder, beta = (await house.client.get("/api/tags")).json()["models"]
    assert (alpha["size"], coder["size"], beta["size"]) == (10000, 10000, 0)
    details = {"format": "safetensors", "parameter_size": "30.5B", "quantization_level": "NVFP4"}
    assert alpha["details"].items() >= details.items()
    assert beta["details"]["parameter_size"] == ""
    shown = (await house.client.post("/api/show", json={"model": "alpha"})).json()
    info = shown["model_info"]
    assert (info["general.parameter_count"], info["sparkdash.embedding_length"]) == (30_532_122_624, 2048)
    assert shown["details"] == alpha["details"]
    unknown = (await house.client.post("/api/show", json={"model": "beta/fast"})).json()["model_info"]
    assert unknown.keys() == {"general.architecture", "general.basename"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_is_here_is_pulled_at_once(house: Any, stream: bool) -> None:
    """Clients pull before they chat: what is here is here, what is not is told with the owner's command, and nothing is fetched."""
    import ollama

    client = ollama.AsyncClient(host=house.base)

    async def pulled(name: str) -> list[str | None]:
        said = await client.pull(name, stream=stream)
        return [part.status async for part in said] if stream else [said.status]

    assert await pulled("coder:latest") == ["success"]
    with pytest.raises(ollama.ResponseError, match="nope") as unknown:
        await pulled("nope")
    await client._client.aclose()
    assert unknown.value.status_code == 404
    assert house.supervisor.calls == []


async def test_a_model_whose_weights_are_missing_is_not_said_to_be_pulled(house: Any) -> None:
    async def inventory(_profiles: Any) -> Inventory:
        return Inventory(stock={"alpha": Stock(image=Item(here=True), weights=Item(here=False))})

    house.rebuild(inventory=inventory)
    reply = await house.client.post("/api/pull", json={"model": "alpha"})
    said = "The weights are not on this box. Run `sparkdash pull alpha` there."
    assert (reply.status_code, reply.json()) == (404, {"error": said})


async def test_models_are_not_made_or_deleted_by_clients(house: Any) -> None:
    for method, word in (("DELETE", "delete"), ("POST", "create"), ("POST", "copy"), ("POST", "push")):
        reply = await house.client.request(method, f"/api/{word}", json={"model": "alpha"})
        assert (reply.status_code, type(reply.json()["error"])) == (400, str)


async def test_ollamas_own_client_gets_embeddings(house: Any, tools: Any) -> None:
    """One text and several, in the shape of today and in that of before; the engine's own vectors and counts."""
    import ollama

    async with tools.simulated_engine(house), httpx.AsyncClient(timeout=60) as plain:
        asked = {"model": "alpha", "input": ["one", "two"], "encoding_format": "float"}
        theirs = (await plain.post(f"{house.supervisor.url}/v1/embeddings", json=asked)).json()
        client = ollama.AsyncClient(host=house.base)
        several = await client.embed("alpha:latest", ["one", "two"])
        one = await client.embed("alpha", "two", dimensions=8)
        before = await client.embeddings("alpha", "one")
        with pytest.raises(ollama.ResponseError, match="input must be a text") as refused:
            await client._request_raw("POST", "/api/embed", json={"model": "alpha", "input": [5]})
        await client._client.aclose()
    assert [list(vector) for vector in several.embeddings] == [item["embedding"] for item in theirs["data"]]
    assert (several.prompt_eval_count, len(one.embeddings[0])) == (theirs["usage"]["prompt_tokens"], 8)
    assert several.total_duration > 0
    assert list(before.embedding) == list(several.embeddings[0])
    assert refused.value.status_code == 400


async def test_an_engine_without_embeddings_is_told_in_its_words(house: Any) -> None:
    """As an error of Ollama's shape, also where the answer makes no sense."""
    house.engine.script = answering(b'{"error":{"message":"no embeddings here"}}', 404)
    reply = await house.client.post("/api/embed", json={"model": "alpha", "input": "x"})
    assert (reply.status_code, list(reply.json())) == (404, ["error"])
    assert "alpha does not serve /v1/embeddings: its engine says 'no embeddings here'" in reply.json()["error"]
    house.engine.script = answering(b'{"data":[{}]}')
    reply = await house.client.post("/api/embed", json={"model": "alpha", "input": "x"})
    assert reply.status_code == 502
