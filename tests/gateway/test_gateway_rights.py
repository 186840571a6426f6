"""Every route by who asks: docs/access.md has the table, and the running gateway must agree with each of its cells."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from routes import control_routes, every_route
from serving import deserted

from sparkdash import listen
from sparkdash.access import keyring
from sparkdash.access.key import digest
from sparkdash.access.keyring import Keyring
from sparkdash.domain.container import Stranger
from sparkdash.domain.engine import Failure, Parked
from sparkdash.domain.event import (
    EVENT,
    EngineChanged,
    Fact,
    GuardChanged,
    IncidentsChanged,
    Level,
    MeasuringChanged,
    NodesChanged,
    Notice,
    ParkedChanged,
    ProfilesChanged,
    RequestChanged,
    SampleTaken,
    SwapChanged,
    ToggleChanged,
)
from sparkdash.domain.history.speed_up import SpeedUp
from sparkdash.domain.incident import Incident, IncidentEnd, IncidentList, summarize_repairs
from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.live import Energy
from sparkdash.domain.measuring import Measuring
from sparkdash.domain.memory.guard import Guard, GuardKill
from sparkdash.domain.metric import EngineSample, Memory, NodeSample, Sample
from sparkdash.domain.node import NodeState, NodeStatus
from sparkdash.domain.state import Snapshot, apply
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import EngineError
from sparkdash.gateway.admission import rights
from sparkdash.gateway.protocol import route

DOCUMENT = Path(__file__).parents[2] / "docs" / "access.md"
OWN, OTHER = "alpha", "beta/fast"
KEYS = {
    "inference": ["inference"],
    "control": ["control"],
    "both": ["inference", "control"],
    "some": ["inference", "control"],
}
COLUMNS = (("none", "revoked"), ("inference",), ("control",), ("both",), ("some",), ("socket",))
"""Who stands in each column of the table."""
BODIES: dict[str, dict[str, Any]] = {
    "/api/lease": {"holder": "somebody"},
    "/api/traffic": {"on": True},
    **{path: {} for path in ("/api/cancel", "/api/reload", "/api/shutdown", "/api/bench/end")},
}


def table() -> dict[tuple[str, str], list[str]]:
    """Of docs/access.md: what each kind of caller gets of each route."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != len(COLUMNS) + 1 or not (words := re.findall(r"`([^`]+)`", cells[0])):
            continue
        method = words[0].partition(" ")[0]
        for word in words:
            found[method, word.removeprefix(f"{method} ")] = cells[1:]
    return found


TABLE = table()


def test_every_route_has_its_line(house: Any) -> None:
    """A new route fails here until somebody has decided who may use it."""
    assert set(TABLE) == every_route(house.app)


def test_every_control_route_has_its_line_in_the_code_too(house: Any) -> None:
    """Without one it would be closed to keys for some models, which nobody would have decided."""
    named = {(method, path.replace(":path}", "}")) for method, path in rights.CONTROL}
    assert named == control_routes(house.app)


@dataclass
class Callers:
    """A gateway with keys, whom each kind of caller asks."""

    house: Any
    by_socket: httpx.AsyncClient

    async def ask(self, who: str, method: str, path: str, model: str = OWN) -> tuple[int, str]:
        """The status, and the answer's beginning."""
        client = self.by_socket if who == "socket" else self.house.client
        headers = {} if who in ("none", "socket") else {"x-api-key": who}
        names = {"NAME": model, "PROFILE": model, "ID": "x", "RUN": "r", "PATH": "embeddings"}
        at = re.sub("[A-Z]+", lambda found: names[found[0]], path)
        spoken = {"model": model, "messages": [], "prompt": "x", "input": "x"}
        given = {"profile": model} if path.startswith("/api/") and path not in route.OLLAMA else spoken
        body = {"a": model} if path == "/api/toggle" else {} if "ID" in path or "RUN" in path else given
        content = {"json": BODIES.get(path, body)} if method == "POST" else {}
        async with client.stream(method, at, headers=headers, **content) as reply:
            first = await anext(reply.aiter_text(), "") if reply.status_code == 200 and path in FEEDS else ""
            text = first if path in FEEDS else (await reply.aread()).decode()
        self.house.app._deps.exclusive._held = None
        return reply.status_code, text


FEEDS = ("/api/events",)


def put_keys(house: Any, path: Path) -> None:
    """Each kind's secret is its name."""
    made = [
        {"name": name, "sha256": digest(name), "scopes": scopes, "models": [OWN] if name == "some" else []}
        for name, scopes in {**KEYS, "revoked": KEYS["both"]}.items()
    ]
    path.write_text(json.dumps({"keys": made}))
    keyring.revoke_key(path, "revoked")
    house.app.__init__(replace(house.app._deps, keys=Keyring(path)))


@pytest.fixture
async def callers(house: Any, tmp_path: Path) -> AsyncIterator[Callers]:
    put_keys(house, tmp_path / "keys.json")
    server = listen.Server(house.app)
    serving = asyncio.create_task(server.serve(sockets=[listen.bind_unix(tmp_path / "s")]))
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        yield Callers(house, client)
    await deserted(server)
    server.stop()
    await serving


@pytest.mark.parametrize(("method", "path"), sorted(TABLE))
async def test_each_caller_gets_what_the_table_says(callers: Callers, method: str, path: str) -> None:
    """401 without a known key, 403 with one that is for something else, and with one for some models only those."""
    for column, cell in zip(COLUMNS, TABLE[method, path], strict=True):
        for who in column:
            status, text = await callers.ask(who, method, path)
            got = str(status) if status in (401, 403) else "yes"
            assert got == ("yes" if cell == "own" else cell), (who, status, text)
            if cell == "own" and (OWN in text or "model" in path or re.search("[A-Z]", path)):
                assert "beta" not in text
    if TABLE[method, path][4] == "own" and is_named(method, path):
        status, text = await callers.ask("some", method, path, OTHER)
        assert status in (403, 404), text
        assert not [call for call in callers.house.supervisor.calls if OTHER in str(call)]
        assert OTHER not in callers.house.supervisor.leases


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/api/state", 403), ("/v1/models", 403)])
async def test_a_key_for_metrics_reads_the_metrics_and_nothing_else(
    house: Any, tmp_path: Path, path: str, status: int
) -> None:
    async def page(_accept: str) -> tuple[bytes, str]:
        return b"x 1\n", "text/plain"

    made = {"name": "prometheus", "sha256": digest("prometheus"), "scopes": ["metrics"]}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [made]}))
    house.app.__init__(replace(house.app._deps, keys=Keyring(tmp_path / "keys.json"), metrics=page))
    answer = await house.client.get(path, headers={"authorization": "Bearer prometheus"})
    assert answer.status_code == status
    foreign = await house.client.get("/metrics", headers={"x-api-key": "prometheus", "origin": "http://localhost:1"})
    assert foreign.status_code == 403


def is_named(method: str, path: str) -> bool:
    """Does one who asks this say of which model?"""
    nameless = ("/api/cancel", "/api/requests/ID/cancel")
    return any(word in path for word in ("NAME", "PROFILE")) or (method == "POST" and path not in nameless)


# --- what a key for some models sees of the others -------------------------------------------------------------


def swap(number: str, target: str, *evict: str, ended: float | None = None) -> Swap:
    outcome = SwapOutcome.DONE if ended else None
    return Swap(
        id=number, target=target, evict=evict, reasons=dict.fromkeys(evict, "idle"), cause=SwapCause.USER, phase=SwapPhase.LOAD,
        waits_for=f"1 request of {', '.join(evict)}" if evict else None,
        started_at=1, phase_at=1, ended_at=ended, outcome=outcome,
    )  # fmt: skip


def request(number: str, profile: str, state: RequestState, key: str | None = None) -> Request:
    return Request(id=number, client="c", key=key, profile=profile, route="/v1", state=state, started_at=1.0)


def facts(ready: Any) -> list[Fact]:
    """One of each kind, about the model that the key may not see."""
    memory = Memory(total=9, available=8, free=7, engines={OTHER: 5}, strangers=(Stranger(name="beta-box"),))
    sample = Sample(
        at=1,
        engines={OTHER: EngineSample(at=1), OWN: EngineSample(at=1)},
        memory=memory,
        nodes={"spark2": NodeSample(at=1, memory=memory)},
        energy=Energy(sensor="GPU only, beta's too", since=1),
    )
    silent = NodeState(
        name="spark2", status=NodeStatus.UNREACHABLE, since=1, reason="beta is lost", owed=("sparkdash-beta",)
    )
    measuring = Measuring(run="r", doing="measuring", arm=OTHER, launch=1, launches=1, done=0, cells=1, share=0.1)
    return [
        EngineChanged(engine=ready(OTHER)),
        SwapChanged(swap=swap("1", OTHER)),
        SwapChanged(swap=swap("1", OTHER, ended=2.0)),
        SwapChanged(swap=swap("3", OTHER)),
        SwapChanged(swap=swap("2", OWN, OTHER)),
        RequestChanged(request("a", OTHER, RequestState.STREAMING)),
        RequestChanged(request("b", OTHER, RequestState.DONE)),
        RequestChanged(request("c", OWN, RequestState.STREAMING)),
        SampleTaken(sample=sample),
        ToggleChanged(a=OTHER, b=OWN),
        GuardChanged(guard=Guard(mode="act", kills=(GuardKill(at=1, profile=OTHER, available=1, reason="beta"),))),
        ParkedChanged(parked={OTHER: Parked(since=1, failures=3, failure=Failure(code="x", message="beta"))}),
        MeasuringChanged(measuring=measuring),
        NodesChanged(nodes={"spark2": silent}),
        Notice(level=Level.INFO, code="x", text="beta", profile=OTHER),
        Notice(level=Level.INFO, code="x", text="beta is told of", profile=None),
        Notice(level=Level.INFO, code="x", text="its own", profile=OWN),
    ]


@pytest.mark.parametrize(
    "path", ["/api/state", "/api/profiles", "/api/plan/alpha", "/api/shelf", "/v1/models", "/api/tags", "/api/ps"]
)
async def test_nothing_names_a_model_that_the_key_may_not_use(callers: Callers, tools: Any, path: str) -> None:
    """The whole world names it everywhere; the same routes name it nowhere to a key for another model."""
    for fact in facts(tools.ready):
        callers.house.bus.publish(fact)
    _, told = await callers.ask("some", "GET", path)
    assert "beta" not in told
    whole = Snapshot.model_validate_json((await callers.ask("both", "GET", "/api/state"))[1])
    assert "beta" in whole.model_dump_json()


async def test_what_is_its_own_is_still_there(callers: Callers, tools: Any) -> None:
    """Its engine, its requests, its mark and its notices."""
    for fact in facts(tools.ready):
        callers.house.bus.publish(fact)
    seen = Snapshot.model_validate_json((await callers.ask("some", "GET", "/api/state"))[1])
    assert (list(seen.engines), list(seen.requests), seen.toggle_b) == ([OWN], ["c"], OWN)
    assert [notice.text for notice in seen.notices] == ["its own"]
    assert seen.nodes["spark2"].status is NodeStatus.UNREACHABLE
    assert [(swap.target, swap.evict) for swap in seen.swaps_under_way] == [(OWN, ())]
    status, told = await callers.ask("some", "POST", "/api/use")
    assert (status, "beta" in told) == (202, False)


async def test_the_feed_of_a_key_for_some_models_has_no_gap_and_no_other_model(callers: Callers, tools: Any) -> None:
    """In the place of what it may not see stands a fact that changes nothing, so that its mirror need not begin anew."""
    bus, world, got = callers.house.bus, None, b""
    made = facts(tools.ready)
    async with callers.house.client.stream("GET", "/api/events", headers={"x-api-key": "some"}) as reply:
        async for chunk in reply.aiter_bytes():
            got += chunk
            while b"\n\n" in got:
                frame, _, got = got.partition(b"\n\n")
                assert b"beta" not in frame
                data = frame.partition(b"data: ")[2]
                if frame.startswith(b"event: snapshot"):
                    world = Snapshot.model_validate_json(data)
                    for fact in made:
                        bus.publish(fact)
                elif frame.startswith(b"event: fact"):
                    event = EVENT.validate_json(data)
                    assert world is not None
                    world = apply(world, event)
            if world is not None and world.seq == bus.snapshot.seq:
                break
    assert world is not None
    seen = Snapshot.model_validate_json((await callers.ask("some", "GET", "/api/state"))[1])
    assert world.replace(at=0) == seen.replace(at=0)


async def test_listeners_who_see_less_are_not_given_what_others_were(callers: Callers, tools: Any) -> None:
    """Events are encoded once for all who see the same, and for nobody else."""
    bus = callers.house.bus
    begin, made = bus.snapshot.seq, facts(tools.ready)
    for fact in made:
        bus.publish(fact)
    for who, named in (("both", True), ("some", False)):
        for since in (f"?since={begin}", ""):
            text, last = "", f"id: {bus.snapshot.seq}\n"
            async with callers.house.client.stream("GET", f"/api/events{since}", headers={"x-api-key": who}) as reply:
                async for chunk in reply.aiter_text():
                    text += chunk
                    if last in text and text.endswith("\n\n"):
                        break
            assert ("beta" in text) is named, (who, since)


FOLDER = "/home/somebody/.local/state/sparkdash/incidents/1"
STUCK = Failure(code="engine_stuck", message="alpha is stuck.", evidence=FOLDER)


@pytest.mark.parametrize(("plain", "shown"), [(OWN, True), (OTHER, False)])
async def test_a_speed_up_over_a_hidden_model_is_hidden(callers: Callers, plain: str, shown: bool) -> None:
    """It names that model; a key for all models sees it."""
    gained = SpeedUp(profile=OWN, plain=plain, ratio=1.36, cells=2, run="r", measured_at=0.0)
    found = callers.house.bus.snapshot.profiles
    callers.house.bus.publish(
        ProfilesChanged(profiles=tuple(one.replace(speed_up=gained) for one in found if one.name == OWN), problems=())
    )
    for who, sees in (("both", True), ("some", shown)):
        snapshot = Snapshot.model_validate_json((await callers.ask(who, "GET", "/api/state"))[1])
        assert [one.speed_up for one in snapshot.profiles] == [gained if sees else None]


async def test_folders_of_evidence_are_hidden_from_a_key_for_some_models(callers: Callers, tools: Any) -> None:
    """Evidence folders are paths of the box, which a key for some models has no reason to know."""
    house = callers.house
    incident = Incident(id="1", profile=OWN, fingerprint="f", began=1.0, named_at=2.0, why="x", evidence=FOLDER)
    house.supervisor.kept = IncidentList(incidents=(incident,), repairs=summarize_repairs((incident,)))
    begin = house.bus.snapshot.seq
    house.bus.publish(EngineChanged(engine=tools.ready(OWN).replace(failure=STUCK)))
    house.bus.publish(ParkedChanged(parked={OWN: Parked(since=1, failures=3, failure=STUCK)}))
    house.bus.publish(SwapChanged(swap=swap("1", OWN, ended=2.0).replace(failure=STUCK)))
    house.bus.publish(IncidentsChanged(incidents=(incident,), repairs=summarize_repairs((incident,))))
    last = f"id: {house.bus.snapshot.seq}\n"
    for who, shown in (("both", True), ("some", False)):
        state, incidents = [(await callers.ask(who, "GET", f"/api/{path}"))[1] for path in ("state", "incidents")]
        assert [state.count(FOLDER), incidents.count(FOLDER)] == ([4, 1] if shown else [0, 0])
        assert state.count("alpha is stuck.") == 3
        text = ""
        async with house.client.stream("GET", f"/api/events?since={begin}", headers={"x-api-key": who}) as reply:
            async for chunk in reply.aiter_text():
                text += chunk
                if last in text and text.endswith("\n\n"):
                    break
        assert text.count(FOLDER) == (4 if shown else 0)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/use"])
async def test_an_error_names_no_folder_of_evidence_to_a_key_for_some_models(callers: Callers, path: str) -> None:
    callers.house.supervisor.error = EngineError("alpha is stuck.", code="engine_stuck", evidence=FOLDER)
    for who, shown in (("both", True), ("some", False)):
        told = (await callers.ask(who, "POST", path))[1]
        assert ("alpha is stuck." in told, FOLDER in told) == (True, shown)


async def test_requests_and_swaps_of_others_cannot_be_ended(callers: Callers, tools: Any) -> None:
    """A request of another model is not there; a swap that another model has part in is refused; an own one is not."""
    ended: list[Any] = []
    house = callers.house
    for number, profile in (("a", OTHER), ("c", OWN)):
        house.bus.publish(RequestChanged(request(number, profile, RequestState.STREAMING)))
        house.app._deps.running.begun(number, ended.append)
    headers = {"x-api-key": "some"}
    statuses = [
        (await house.client.post(f"/api/requests/{number}/cancel", json={}, headers=headers)).status_code
        for number in ("a", "c")
    ]
    assert (statuses, len(ended)) == ([404, 200], 1)
    house.bus.publish(SwapChanged(swap=swap("1", OWN, OTHER)))
    refused = await house.client.post("/api/cancel", json={}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "whole_box_refused")
    house.bus.publish(SwapChanged(swap=swap("1", OWN, OTHER, ended=2.0)))
    house.bus.publish(SwapChanged(swap=swap("2", OWN)))
    house.bus.publish(SwapChanged(swap=swap("3", OTHER)))
    assert (await house.client.post("/api/cancel", json={}, headers=headers)).status_code == 403
    house.bus.publish(SwapChanged(swap=swap("3", OTHER, ended=3.0)))
    assert (await house.client.post("/api/cancel", json={}, headers=headers)).status_code == 200
    extended = [
        (await house.client.post("/api/extend-load", json={"profile": name}, headers=headers)).status_code
        for name in (OTHER, OWN)
    ]
    assert extended == [403, 200]


async def test_a_name_that_is_near_another_models_is_no_way_to_learn_of_it(callers: Callers) -> None:
    """The hint names what the key may use, where it would name what is near, or all there are."""
    for word in ("bet", "zzz"):
        for method, path in (
            ("GET", "/api/profiles/NAME"),
            ("GET", "/v1/models/NAME"),
            ("POST", "/v1/chat/completions"),
        ):
            status, told = await callers.ask("some", method, path, word)
            assert (status, "beta" in told) == (404, False), told


@pytest.mark.parametrize("path", ["/api/stop", "/api/release"])
async def test_all_models_are_more_than_some(callers: Callers, path: str) -> None:
    """`null` means every engine of the box."""
    refused = await callers.house.client.post(path, json={}, headers={"x-api-key": "some"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "whole_box_refused")
    assert callers.house.supervisor.calls == []


@pytest.mark.parametrize(
    "path", ["/api//lease", "/api/lease/", "//api/lease", "/api/%6cease", "/api/./lease", "/api/nothing"]
)
async def test_no_spelling_of_a_path_is_a_way_around(callers: Callers, path: str) -> None:
    """What a request is let in for is what is looked up."""
    sent = callers.house.client.build_request(
        "POST", callers.house.base, json={"holder": "x"}, headers={"x-api-key": "some"}
    )
    sent.url = sent.url.copy_with(raw_path=path.encode())
    assert (await callers.house.client.send(sent)).status_code in (403, 404)
    assert callers.house.app._deps.exclusive.held is None


async def test_incidents_of_other_models_are_hidden_from_a_key_for_some(callers: Any) -> None:
    """In the list, and in the mean time to repair, which would tell how often another model fails."""
    house = callers.house
    kept = tuple(
        Incident(
            id=name,
            profile=name,
            fingerprint="f",
            began=1.0,
            named_at=2.0,
            why="x",
            ended_at=11.0,
            end=IncidentEnd.RESTARTED,
        )
        for name in (OWN, "beta/fast")
    )
    house.supervisor.kept = IncidentList(incidents=kept, repairs=summarize_repairs(kept))
    for who, names in (("some", {OWN}), ("both", {OWN, "beta/fast"})):
        told = (await house.client.get("/api/incidents", headers={"x-api-key": who})).json()
        assert {one["profile"] for one in told["incidents"]} == names
        assert set(told["repairs"]["by_profile"]) == names
        assert (told["repairs"]["every"] is None) == (who == "some")
    one = (await house.client.get(f"/api/incidents?profile={OWN}", headers={"x-api-key": "both"})).json()
    assert [each["profile"] for each in one["incidents"]] == [OWN]
    assert one["repairs"]["every"]["n"] == 1
    other = await house.client.get("/api/incidents?profile=beta/fast", headers={"x-api-key": "some"})
    assert other.status_code == 403
