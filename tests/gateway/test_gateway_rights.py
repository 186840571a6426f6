"""Every route by who asks: docs/access.md has the table, and the running gateway must agree with each of its cells."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from routes import every_route
from serving import deserted

from sparkdash import keyring, listen
from sparkdash.domain.event import EngineChanged
from sparkdash.errors import EngineError
from sparkdash.gateway.protocol import route
from sparkdash.keyring import Keyring, digest

DOCUMENT = Path(__file__).parents[2] / "docs" / "access.md"
OWN, OTHER = "alpha", "beta/fast"
KEYS = {
    "inference": ["inference"],
    "control": ["control"],
    "both": ["inference", "control"],
    "some": ["inference", "control"],
}
COLUMNS = (("none", "revoked"), ("inference",), ("control",), ("both",), ("some",), ("socket",))
"""Callers in each column of the table."""
BODIES: dict[str, dict[str, Any]] = {
    "/api/lease": {"holder": "somebody"},
    **{path: {} for path in ("/api/cancel", "/api/reload", "/api/shutdown", "/api/bench/end")},
}


def table() -> dict[tuple[str, str], list[str]]:
    """Table of docs/access.md: what each kind of caller gets of each route."""
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
    assert set(TABLE) == every_route()


@dataclass
class Callers:
    """A gateway with keys, whom each kind of caller asks."""

    house: Any
    by_socket: httpx.AsyncClient

    async def ask(self, who: str, method: str, path: str, model: str = OWN) -> tuple[int, str]:
        client = self.by_socket if who == "socket" else self.house.client
        headers = {} if who in ("none", "socket") else {"x-api-key": who}
        names = {"NAME": model, "PROFILE": model, "ID": "x", "RUN": "r", "PATH": "embeddings", "FILE": "main.js"}
        at = re.sub("[A-Z]+", lambda found: names[found[0]], path)
        spoken = {"model": model, "messages": [], "prompt": "x", "input": "x"}
        given = {"profile": model} if path.startswith("/api/") and path not in route.OLLAMA else spoken
        body = {"a": model} if path == "/api/toggle" else {} if "ID" in path or "RUN" in path else given
        content = {"json": BODIES.get(path, body)} if method == "POST" else {}
        async with client.stream(method, at, headers=headers, **content) as reply:
            first = await anext(reply.aiter_text(), "") if reply.status_code == 200 and path in FEEDS else ""
            text = first if path in FEEDS else (await reply.aread()).decode()
        self.house.app._deps.exclusive.taken = None
        return reply.status_code, text


FEEDS = ("/api/events",)


def put_keys(house: Any, path: Path) -> None:
    made = [
        {"name": name, "sha256": digest(name), "scopes": scopes, "models": [OWN] if name == "some" else []}
        for name, scopes in {**KEYS, "revoked": KEYS["both"]}.items()
    ]
    path.write_text(json.dumps({"keys": made}))
    keyring.revoke_key(path, "revoked")
    house.rebuild(keys=Keyring(path))


@pytest.fixture
async def callers(house: Any, tmp_path: Path) -> AsyncIterator[Callers]:
    put_keys(house, tmp_path / "keys.json")
    server = listen.Server(house.app.serve)
    serving = asyncio.create_task(server.serve(sockets=[listen.bind_unix(tmp_path / "s")]))
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        yield Callers(house, client)
    await deserted(server)
    server.stop()
    await serving


async def test_each_caller_gets_what_the_table_says(callers: Callers) -> None:
    """401 without a known key, 403 with one that is for something else, and with one for some models only those."""
    for (method, path), cells in sorted(TABLE.items()):
        for who, cell in [(who, cell) for column, cell in zip(COLUMNS, cells, strict=True) for who in column]:
            status, text = await callers.ask(who, method, path)
            got = str(status) if status in (401, 403) else "yes"
            assert got == ("yes" if cell == "own" else cell), (method, path, who, status, text)
            if cell == "own" and (OWN in text or "model" in path or re.search("[A-Z]", path)):
                assert "beta" not in text, (method, path)
        if cells[4] == "own" and (method == "POST" or re.search("NAME|PROFILE", path)):
            status, text = await callers.ask("some", method, path, OTHER)
            assert status in (403, 404), (method, path, text)
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
    house.rebuild(keys=Keyring(tmp_path / "keys.json"), metrics=page)
    answer = await house.client.get(path, headers={"authorization": "Bearer prometheus"})
    assert answer.status_code == status
    foreign = await house.client.get("/metrics", headers={"x-api-key": "prometheus", "origin": "http://localhost:1"})
    assert foreign.status_code == 403


@pytest.mark.parametrize("path", ["/v1/models", "/api/tags", "/api/ps"])
async def test_lists_name_no_model_that_the_key_may_not_use(callers: Callers, tools: Any, path: str) -> None:
    callers.house.bus.publish(EngineChanged(engine=tools.ready(OTHER)))
    assert OTHER in (await callers.ask("inference", "GET", path))[1]
    told = (await callers.ask("some", "GET", path))[1]
    assert (OWN in told, OTHER in told) == (True, False)


FOLDER = "/home/somebody/.local/state/sparkdash/incidents/1"


async def test_an_error_names_no_folder_of_evidence_to_a_key_for_some_models(callers: Callers) -> None:
    callers.house.supervisor.error = EngineError("alpha is stuck.", code="engine_stuck", evidence=FOLDER)
    for who, shown in (("both", True), ("some", False)):
        told = (await callers.ask(who, "POST", "/v1/chat/completions"))[1]
        assert ("alpha is stuck." in told, FOLDER in told) == (True, shown)


async def test_a_name_that_is_near_another_models_is_no_way_to_learn_of_it(callers: Callers) -> None:
    """The hint names what the key may use, where it would name what is near, or all there are."""
    for word in ("bet", "zzz"):
        for method, path in (("GET", "/v1/models/NAME"), ("POST", "/api/show"), ("POST", "/v1/chat/completions")):
            status, told = await callers.ask("some", method, path, word)
            assert (status, "beta" in told) == (404, False), told


@pytest.mark.parametrize(
    "path", ["/api//lease", "/api/lease/", "//api/lease", "/api/%6cease", "/api/./lease", "/api/nothing"]
)
async def test_no_spelling_of_a_path_is_a_way_around(callers: Callers, path: str) -> None:
    """The path that a request is let in for is the one that is looked up."""
    reply = await callers.house.raw("POST", path, json={"holder": "x"}, headers={"x-api-key": "some"})
    assert reply.status_code in (403, 404)
    assert callers.house.app._deps.exclusive.held is None
