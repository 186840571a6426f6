"""The control API: typed answers, honest refusals, and a description that does not change by accident."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.event import SwapChanged
from sparkdash.domain.history import FigureList, MarkList, PastRequests, RecentFigures, Series, UsageReport
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, Swap, SwapCause, SwapPhase
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.app import HANDLERS
from sparkdash.gateway.control.openapi import describe

OPENAPI = Path(__file__).parent / "openapi.json"


def test_the_description_of_the_api_is_as_agreed() -> None:
    """Clients are written against it. Run with SPARKDASH_WRITE_OPENAPI=1 to agree on a new one."""
    now = json.dumps(describe(HANDLERS) | {"info": {}}, indent=1, sort_keys=True) + "\n"
    if os.environ.get("SPARKDASH_WRITE_OPENAPI"):
        OPENAPI.write_text(now)
    assert OPENAPI.read_text() == now


async def test_the_description_is_served(house: Any) -> None:
    assert (await house.client.get("/api/openapi.json")).json() == describe(HANDLERS)


async def test_state_is_the_snapshot(house: Any) -> None:
    before = house.bus.snapshot
    told = Snapshot.model_validate_json((await house.client.get("/api/state")).content)
    assert told.at > before.at
    assert told.model_copy(update={"at": before.at}) == before


async def test_whoever_asks_for_the_state_watches(house: Any) -> None:
    """Telemetry is as quick for a script that asks again and again as it is for a screen that follows the feed."""
    assert house.bus.listeners == 0
    await house.client.get("/api/state")
    assert house.bus.listeners == 1


async def test_profiles(house: Any) -> None:
    listed = (await house.client.get("/api/profiles")).json()
    assert [p["name"] for p in listed["profiles"]] == ["alpha", "beta/fast", "huge"]
    assert listed["problems"] == ["broken.yaml:3: arg: unknown key"]
    assert (await house.client.get("/api/profiles/coder")).json()["image"] == "img:1"
    assert (await house.client.get("/api/profiles/beta/fast")).json()["request"] == {"temperature": 0.1, "top_k": 5}
    missing = await house.client.get("/api/profiles/nope")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_use_answers_with_the_plan_before_the_swap(house: Any) -> None:
    reply = await house.client.post("/api/use", json={"profile": "coder"})
    assert reply.status_code == 202
    assert Plan.model_validate_json(reply.content).evict == ("beta/fast",)
    assert house.supervisor.calls == [("use", ("coder", SwapCause.USER))]
    assert (await house.client.get("/api/plan/beta/fast")).json()["fits"] is True


async def test_a_refusal_has_the_status_of_its_error(house: Any) -> None:
    """Only clients of models are told 400 in place of a 503, which they would repeat in vain."""
    house.supervisor.error = AdmissionError("It does not fit.", code="does_not_fit", status=503)
    reply = await house.client.post("/api/use", json={"profile": "coder"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "does_not_fit")


async def test_stop_cancel_reload(house: Any) -> None:
    for path, body in (
        ("stop", {"profile": "alpha"}),
        ("stop", {"profile": None}),
        ("stop", {"profile": "alpha", "wait": False}),
        ("cancel", {}),
        ("extend-load", {"profile": "alpha"}),
        ("reload", {}),
    ):
        assert (await house.client.post(f"/api/{path}", json=body)).status_code == 200
    assert house.supervisor.calls == [
        ("stop", "alpha"),
        ("stop", None),
        ("stop", ("alpha", "at once")),
        ("cancel", None),
        ("extend_load", "alpha"),
    ]
    assert house.done == [("reload",)]


async def test_toggle_marks_and_flips(house: Any) -> None:
    async def toggle(**body: Any) -> Any:
        return (await house.client.post("/api/toggle", json=body)).json()

    assert (await toggle(flip=True))["error"]["code"] == "toggle_unset"
    assert (await toggle(a="huge"))["error"]["code"] == "cannot_run"
    assert house.bus.snapshot.toggle_a is None
    assert await toggle(a="coder") == {"a": "alpha", "b": None, "active": "alpha"}
    assert await toggle(b="beta/fast") == {"a": "alpha", "b": "beta/fast", "active": "alpha"}
    assert (house.bus.snapshot.toggle_a, house.bus.snapshot.toggle_b) == ("alpha", "beta/fast")
    assert (await toggle(flip=True))["active"] == "beta/fast"
    to_beta = {"id": "s", "target": "beta/fast", "evict": ("alpha",), "cause": SwapCause.USER, "phase": SwapPhase.LOAD}
    house.bus.publish(SwapChanged(swap=Swap(**to_beta, started_at=1, phase_at=1)))
    assert (await toggle(flip=True))["active"] == "alpha"
    assert [call[1][0] for call in house.supervisor.calls] == ["beta/fast", "alpha"]


async def test_a_pull_streams_its_progress(house: Any) -> None:
    reply = await house.client.post("/api/pull-image", json={"profile": "alpha"})
    frames = reply.text.removesuffix("\n\n").split("\n\n")
    assert [f.splitlines()[0] for f in frames] == ["event: progress"] * 2
    assert json.loads(frames[-1].split("data: ")[1])["done"] is True
    none = await house.client.post("/api/pull-image", json={"profile": "beta/fast"})
    assert none.text.startswith("event: error\n")
    assert '"code":"image_missing"' in none.text
    assert (await house.client.post("/api/pull-image", json={"profile": "nope"})).status_code == 404


async def test_logs(house: Any) -> None:
    """Lines as text, by name or alias; a runtime's failure is the last line, since the status has gone out."""
    reply = await house.client.get("/api/logs/coder?tail=1")
    assert (reply.text, reply.headers["content-type"]) == ("follow False\n", "text/plain; charset=utf-8")
    assert (await house.client.get("/api/logs/alpha?follow=1")).text == "loading alpha --password ***\nfollow True\n"
    assert (await house.client.get("/api/logs/beta/fast")).text == "sparkdash: podman does not answer\n"
    assert (await house.client.get("/api/logs/nope")).status_code == 404


@pytest.mark.parametrize(("path", "code"), [
    ("doctor", "no_doctor"), ("memory", "no_memory_account"), ("bench", "no_bench"),
    ("history/figures", "no_history"),
])  # fmt: skip
async def test_what_a_simulated_box_lacks_is_told(house: Any, path: str, code: str) -> None:
    """A route for figures that nobody measured says so; the command line examines the real box."""
    answer = await house.client.get(f"/api/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)


async def test_shutdown(house: Any) -> None:
    reply = await house.client.post("/api/shutdown", json={"engines": "stop"})
    assert (reply.status_code, house.done) == (202, [("shutdown", True)])


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded"])
async def test_a_form_of_a_web_page_changes_nothing(house: Any, content_type: str) -> None:
    """Only JSON is taken, which no page of another site can send without asking first."""
    reply = await house.client.post("/api/stop", content=b"{}", headers={"content-type": content_type})
    assert (reply.status_code, house.supervisor.calls) == (415, [])


@pytest.mark.parametrize(("path", "allowed"), [
    ("/api/state", "GET"), ("/api/use", "POST"), ("/api/lease", "DELETE, POST"), ("/api/bench/x", "GET"),
    ("/api/bench/end", "POST"), ("/api/requests/x/cancel", "POST"), ("/api/tags", "GET, HEAD"), ("/api/chat", "POST"),
    ("/api/hello", "GET, HEAD"), ("/health", "GET, HEAD"), ("/v1/models", "GET, HEAD"),
    ("/v1/chat/completions", "POST"), ("/props", "GET, HEAD"),
])  # fmt: skip
async def test_a_wrong_method_is_told_the_right_ones(house: Any, path: str, allowed: str) -> None:
    """405 with all methods of this very path, whatever the body is said to be."""
    right = {*allowed.split(", "), *({"GET"} if path == "/api/bench/end" else ())}  # a run may be called so
    for method in {"GET", "OPTIONS", "PUT", "PATCH", "POST", "DELETE"} - right:
        reply = await house.client.request(method, path, content=b"x=1", headers={"content-type": "text/plain"})
        assert (method, reply.status_code, reply.headers["allow"]) == (method, 405, allowed)


@pytest.mark.parametrize(("path", "body"), [
    ("/api/use", {"profil": "x"}), ("/api/toggle", {"flip": "maybe"}), ("/api/toggle", {"flip": 1}),
    ("/api/toggle", {"flip": "true"}), ("/api/lease", {"holder": "me", "pid": True}),
    ("/api/lease", {"holder": "me", "expected_s": "5"}), ("/api/stop", {"profile": 5}),
])  # fmt: skip
async def test_another_key_or_a_value_of_another_type_is_refused_and_not_guessed_at(
    house: Any, path: str, body: dict[str, Any]
) -> None:
    """JSON has true and false: 0 is a number."""
    reply = await house.client.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert house.supervisor.calls == []


async def test_mistakes_are_told_in_one_shape(house: Any) -> None:
    replies = [
        await house.client.post("/api/use", json={"profil": "x"}),
        await house.client.post("/api/use", content=b"{", headers={"content-type": "application/json"}),
        *[await house.client.get(path) for path in ("/api/use", "/api/nope", "/api/events?since=x")],
    ]
    assert [reply.status_code for reply in replies] == [400, 400, 405, 404, 400]
    errors = [reply.json()["error"] for reply in replies]
    assert all({"message", "type", "param", "code", "hint", "src"} <= error.keys() for error in errors)
    assert "profile: must be given" in errors[0]["message"]


EMPTY: dict[str, Callable[..., Any]] = {
    "figures": lambda _: FigureList(),
    "series": lambda asked: Series(
        figure=asked.figure, unit="tok/s", profile="", node="local", since=0, until=1, step_s=1,
        start=(0.0,), min=(None,), mean=(None,), max=(None,), count=(0,),
    ),
    "recent": lambda _: RecentFigures(begin=0, step_s=2, series=()),
    "usage": lambda asked: UsageReport(since=0, until=1, by=asked.by),
    "requests": lambda _: PastRequests(),
    "marks": lambda _: MarkList(),
}  # fmt: skip


class AskedHistory:
    """A past that remembers what it was asked, and has nothing."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def answer(asked: Any = None, period: Any = None) -> Any:
            self.asked.append((asked, period))
            return EMPTY[name](asked)

        return answer


@pytest.fixture
def past(house: Any) -> AskedHistory:
    made = AskedHistory()
    house.rebuild(history=made)
    return made


async def get(house: Any, path: str) -> tuple[int, Any]:
    reply = await house.client.get(f"/api/history/{path}")
    return reply.status_code, reply.json()


async def test_a_period_ends_now_and_is_as_long_as_the_route_says(house: Any, past: AskedHistory) -> None:
    """An hour of a chart, a day of sums and marks, the last ten minutes; all of the requests."""
    for path in ("series?figure=decode_tok_s", "usage", "marks", "recent", "requests", "figures"):
        assert (await get(house, path))[0] == 200, path
    (series, hour), (_, day), (_, of_marks), (recent, _), (requests, _), _ = past.asked
    assert [round(until - since) for since, until in (hour, day, of_marks)] == [3600, 86400, 86400]
    assert (recent.seconds, series.points) == (600, 300)
    assert (requests.since, requests.until, requests.limit, requests.sort) == (None, None, 100, "newest")


async def test_what_was_asked_arrives(house: Any, past: AskedHistory) -> None:
    await get(house, "series?figure=kv_used&profile=beta/fast&node=spark2&since=5&until=9&points=7")
    await get(house, "usage?by=day&client=codex&offset_s=3600&since=5&until=9")
    await get(house, "requests?status=503&min_ttft=2&sort=ttft&limit=3&after=1.5:9")
    (series, of_series), (usage, of_usage), (requests, _) = past.asked
    assert (series.figure, series.profile, series.node, series.points) == ("kv_used", "beta/fast", "spark2", 7)
    assert of_series == of_usage == (5, 9)
    assert (usage.by, usage.client, usage.offset_s) == ("day", "codex", 3600)
    assert (requests.status, requests.min_ttft, requests.sort, requests.after) == ("503", 2, "ttft", "1.5:9")


@pytest.mark.parametrize(
    "path",
    [
        "series?figure=decode_tok_s&since=9&until=5", "series?figure=decode_tok_s&points=100000", "series",
        "usage?by=moon", "requests?status=odd", "requests?limit=0", "marks?until=nan",
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused(house: Any, past: AskedHistory, path: str) -> None:
    status, answer = await get(house, path)
    assert (status, answer["error"]["code"], past.asked) == (400, "invalid_request", [])


@pytest.mark.parametrize("path", ["series?figure=speed", "recent?figure=speed"])
async def test_an_unknown_figure_is_told(house: Any, past: AskedHistory, path: str) -> None:
    status, answer = await get(house, path)
    assert (status, answer["error"]["code"], past.asked) == (404, "figure_not_found", [])
