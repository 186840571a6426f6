"""llama.cpp's router surface, raw paths, and requests that came to the wrong door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState, Failure
from sparkdash.domain.event import EngineChanged, SampleTaken, SwapChanged
from sparkdash.domain.metric import Sample
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.swap import Swap, SwapCause, SwapPhase
from sparkdash.gateway.protocol.route import find_route, is_control


@asynccontextmanager
async def model_events(house: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """What /models/sse tells, as its clients parse it."""

    async def said(reply: Any) -> AsyncIterator[dict[str, Any]]:
        async for line in reply.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))

    async with house.client.stream("GET", "/models/sse") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield said(reply)


def swap_of(profile: str, fraction: float | None) -> SwapChanged:
    return SwapChanged(
        swap=Swap(
            id="s",
            target=profile,
            evict=(),
            cause=SwapCause.USER,
            phase=SwapPhase.LOAD,
            started_at=1.0,
            phase_at=1.0,
            fraction=fraction,
        )
    )


async def test_load_progress_is_told_as_llamacpp_tells_it(house: Any, tools: Any) -> None:
    """Every model's status first, then the share of the whole way, then loaded; samples and repetitions say nothing."""
    async with model_events(house) as said:
        first = {(event := await anext(said))["model"]: event for _ in range(2)}
        assert first["alpha"] == {"model": "alpha", "event": "model_status", "data": {"status": "loaded"}}
        assert first["beta/fast"]["data"] == {"status": "unloaded"}
        house.bus.publish(swap_of("beta/fast", None))
        house.bus.publish(SampleTaken(sample=Sample(at=1.0)))
        told = [await anext(said)]
        for fraction in (0.421, 0.42):
            house.bus.publish(swap_of("beta/fast", fraction))
        told.append(await anext(said))
        house.bus.publish(EngineChanged(engine=tools.ready("beta/fast")))
        told.append(await anext(said))
    stage = {"stages": ["text_model"], "current": "text_model"}
    assert [event["event"] for event in told] == ["status_change"] * 3
    assert [event["data"] for event in told] == [
        {"status": "loading", "progress": stage},
        {"status": "loading", "progress": stage | {"value": 0.42}},
        {"status": "loaded"},
    ]


async def test_a_load_that_failed_is_told_with_its_exit_code(house: Any, tools: Any) -> None:
    """`unloaded` and a number: Zed shows it as a failure."""
    async with model_events(house) as said:
        for _ in range(2):
            await anext(said)
        failure = Failure(code="out_of_memory", message="m", exit_code=137)
        engine = tools.ready("beta/fast", EngineState.FAILED).model_copy(update={"failure": failure})
        house.bus.publish(EngineChanged(engine=engine))
        assert (await anext(said))["data"] == {"status": "unloaded", "failed": True, "exit_code": 137}


async def test_who_follows_loads_does_not_speed_telemetry_up(house: Any) -> None:
    """A dashboard is a listener; an editor that waits for its model is none."""
    async with model_events(house) as said:
        await anext(said)
        assert house.bus.listeners == 0


async def test_load_and_unload_are_asked_for_by_post(house: Any) -> None:
    """As `use` and `stop`; a web page's form is refused, since both are control."""
    loaded = await house.client.post("/models/load", json={"model": "coder"})
    unloaded = await house.client.post("/v1/models/unload", json={"model": "alpha"})
    assert (loaded.json(), unloaded.json()) == ({"success": True}, {"success": True})
    assert house.supervisor.calls == [("use", ("coder", SwapCause.USER)), ("stop", ("alpha", "at once"))]
    for path in ("/models/load", "/models/unload"):
        assert (await house.client.post(path, json={})).json()["error"]["code"] == "model_missing"
        assert (await house.client.post(path, content='{"model": "alpha"}')).status_code == 415
    assert (await house.client.post("/models/load", json={"model": "nope"})).status_code == 404
    assert (await house.client.get("/models/load")).status_code == 405


async def test_props_are_told_without_loading_anything(house: Any) -> None:
    """The router's own without a name; the configured context of a profile that is not llama.cpp's, loaded or not."""
    router = (await house.client.get("/props")).json()
    assert (router["role"], router["default_generation_settings"]["n_ctx"]) == ("router", 0)
    alpha = (await house.client.get("/props?model=coder")).json()
    assert (alpha["model_alias"], alpha["default_generation_settings"]["n_ctx"]) == ("alpha", 32768)
    unloaded = (await house.client.get("/props?model=beta/fast")).json()
    assert "n_ctx" not in unloaded["default_generation_settings"]
    assert (await house.client.get("/props?model=nope")).status_code == 404
    assert (await house.client.get("/slots?model=beta/fast")).status_code == 501
    assert (await house.client.get("/slots")).status_code == 501
    assert house.supervisor.leases == []


async def test_props_say_whether_tools_are_taken(house: Any) -> None:
    """Zed asks for the props of what is loaded, and offers a model no tools whose props do not say so."""
    alpha = house.catalog.profiles["alpha"]
    for kind, args, takes in (
        (EngineKind.VLLM, {"enable-auto-tool-choice": True}, True),
        (EngineKind.VLLM, {}, False),
        (EngineKind.SGLANG, {"tool_call_parser": "qwen"}, True),
        (EngineKind.OPENAI, {}, True),
    ):
        house.catalog.profiles["alpha"] = alpha.model_copy(update={"engine": kind, "args": args})
        caps = (await house.client.get("/props?model=alpha")).json()["chat_template_caps"]
        assert caps == {"supports_tool_calls": takes, "supports_tools": takes}


async def test_a_llamacpp_that_runs_answers_for_itself(house: Any, tools: Any) -> None:
    """Props and slots are its own, byte for byte."""
    engine = tools.ready("beta/fast").model_copy(update={"kind": EngineKind.LLAMACPP, "ready_at": 2000.0})
    house.bus.publish(EngineChanged(engine=engine))
    for path in ("/props?model=beta%2Ffast", "/slots?model=beta/fast", "/props", "/slots"):
        assert (await house.client.get(path)).content == b'{"ok":true}'
    assert [seen.target for seen in house.engine.seen] == [
        "/props?model=beta%2Ffast",
        "/slots?model=beta/fast",
        "/props",
        "/slots",
    ]
    assert house.supervisor.leases == ["beta/fast"] * 4


async def test_a_raw_request_reaches_the_named_engine_unchanged(house: Any) -> None:
    """No default, no name, no mend: the body is the client's, whatever model it names and whether it is JSON at all."""
    body = b'{"model": "whatever", "stream": true, "messages": [] }'
    reply = await house.client.post("/upstream/beta/fast/v1/chat/completions?a=1", content=body)
    odd = await house.client.post(
        "/upstream/coder/v1/thing", content=b"{", headers={"content-type": "application/json"}
    )
    assert (reply.status_code, odd.status_code) == (200, 200)
    assert [(seen.target, seen.body) for seen in house.engine.seen] == [
        ("/v1/chat/completions?a=1", body),
        ("/v1/thing", b"{"),
    ]
    assert house.supervisor.leases == ["beta/fast", "coder"]


async def test_reading_raw_loads_nothing(house: Any) -> None:
    """GET of what runs is relayed, of what does not is a 404."""
    assert (await house.client.get("/upstream/alpha/version")).status_code == 200
    refused = await house.client.get("/upstream/beta%2Ffast/version")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_loaded")
    assert house.supervisor.leases == ["alpha"]


@pytest.mark.parametrize(
    "path",
    [
        "/upstream/alpha/sleep",
        "/upstream/alpha//Sleep?level=1",
        "/upstream/alpha/%73leep",
        "/upstream/alpha/flush_cache",
        "/upstream/alpha/v1/load_lora_adapter",
        "/upstream/alpha/slots/0?action=erase",
        "/upstream/alpha/../alpha/sleep",
        "/upstream/nope/v1/models",
        "/upstream/alpha",
        "/upstream/",
        "/v1/load_lora_adapter",
    ],
)
async def test_an_engines_owners_paths_are_not_for_clients(house: Any, path: str) -> None:
    """Neither raw nor under /v1, however they are spelled."""
    reply = await house.client.post(path, json={})
    assert (reply.status_code, reply.json()["error"]["src"]) == (404, "sparkdash")
    assert house.engine.seen == []


async def test_props_of_an_engine_are_not_set(house: Any) -> None:
    """llama.cpp's POST /props changes it for everybody."""
    assert (await house.client.post("/upstream/alpha/props", json={})).status_code == 405


async def test_a_responses_request_at_the_chat_door_is_told_so(house: Any) -> None:
    """400 at once, without a swap, and with the right path in it."""
    reply = await house.client.post("/v1/chat/completions", json={"model": "beta/fast", "input": "x"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "wrong_protocol")
    assert "/v1/responses" in reply.json()["error"]["message"]
    assert house.supervisor.leases == []


async def test_a_websocket_is_told_to_use_http(house: Any) -> None:
    """426, as JSON."""
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    reply = await house.client.get("/v1/responses", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (426, "upgrade_required")


def test_control_is_what_manages_the_box() -> None:
    """Ollama's paths share the prefix of our own, and belong to those who use a model."""
    control = (
        "/api/state",
        "/api/use",
        "/api/pull-image",
        "/api/models",
        "/models/unload",
        "/v1/models/load/",
        "/api/",
    )
    use = (
        "/api/tags",
        "/api/chat/",
        "/api/generate",
        "/api/pull",
        "/v1/models/x",
        "/models/sse",
        "/v1/chat/completions",
        "/health",
    )
    assert [is_control(path) for path in (*control, *use)] == [True] * len(control) + [False] * len(use)
    assert find_route("/v1/unload_lora_adapter") is None
