"""`sparkdash web --host`: beyond loopback a key opens the dashboard, as long as it is good."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from sparkdash.keyring import Key, Scope, digest
from sparkdash.web import server as web_server
from sparkdash.web.server import WebServer
from sparkdash.web.visitors import KeyedVisitorCheck, Visit

SCREEN = 'import sys; print("__GANGLION__", flush=True); sys.stdin.read()'
NOW = 1000.0
Client = TestClient[Any, Any]


def key(name: str, *scopes: Scope, **rest: Any) -> Key:
    return Key(name=name, sha256=digest(name), scopes=scopes, **rest)


KEYS = [
    key("good", Scope.CONTROL),
    key("both", Scope.CONTROL, Scope.INFERENCE, expires_at=NOW + 1),
    key("models", Scope.INFERENCE, Scope.METRICS),
    key("some", Scope.CONTROL, models=("qwen*",)),
    key("expired", Scope.CONTROL, expires_at=NOW),
]


@pytest.fixture
async def client(ended_screens: None) -> AsyncIterator[Client]:
    """A browser without a cookie before a server that is open to other boxes."""
    keys = list(KEYS)
    visitors = KeyedVisitorCheck(lambda: keys, lambda: NOW, ["spark.lan"], "http")
    serving = WebServer(visitors, (sys.executable, "-c", SCREEN))
    async with TestClient(TestServer(await serving.make_app())) as made:
        made.keys = keys  # type: ignore[attr-defined]
        yield made


def origin(client: Client) -> str:
    return str(client.make_url("/").origin())


async def types(client: Client, secret: str) -> aiohttp.ClientResponse:
    """Send the form with a key; return the page after it."""
    return await client.post("/key", data={"key": secret}, headers={"Origin": origin(client)})


@pytest.mark.parametrize("path", ["/", "/key", "/?token=x", "/static/js/textual.js", "/dashboard.css", "/download/x"])
async def test_without_a_key_there_is_a_page_that_asks_for_one_and_nothing_else(client: Client, path: str) -> None:
    answer = await client.get(path)
    text = await answer.text()
    assert answer.status == 401
    assert ('type="password"' in text) == (path.partition("?")[0] in ("/", "/key"))
    assert "textual" not in text
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect("/ws", origin=origin(client))
    assert refused.value.status == 401


@pytest.mark.parametrize("secret", ["good", " both "])
async def test_a_key_that_may_control_the_whole_box_opens_it(client: Client, secret: str) -> None:
    answer = await types(client, secret)
    (first,) = answer.history
    assert (answer.status, first.status, first.headers["location"]) == (200, 303, "/")
    assert "textual-terminal" in await answer.text()
    assert secret.strip() not in first.headers["set-cookie"]
    assert "HttpOnly" in first.headers["set-cookie"]
    async with client.ws_connect("/ws", origin=origin(client)) as tab:
        assert not tab.closed


@pytest.mark.parametrize("secret", ["models", "some", "expired", "unknown", ""])
async def test_any_other_key_is_refused_with_the_reason(client: Client, secret: str) -> None:
    answer = await types(client, secret)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    assert "No key with the scope control for the whole box" in await answer.text()
    assert (await client.get("/")).status == 401


async def test_a_tab_ends_when_its_key_is_revoked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "KEY_LOOK_S", 0.01)
    await types(client, "good")
    async with client.ws_connect("/ws", origin=origin(client)) as tab, asyncio.timeout(60):
        del client.keys[0]  # type: ignore[attr-defined]
        async for _ in tab:
            pass
        assert tab.closed
    assert (await client.get("/")).status == 401


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}])
async def test_no_other_page_can_send_the_form_or_use_the_cookie(client: Client, headers: dict[str, str]) -> None:
    refused = await client.post("/key", data={"key": "good"}, headers={"Origin": origin(client)} | headers)
    assert (refused.status, "set-cookie" in refused.headers) == (403, False)
    await types(client, "good")
    assert (await client.get("/", headers=headers)).status == 403


@pytest.mark.parametrize(
    ("host", "visit"),
    [
        ("spark.lan:8485", Visit.NO_KEY), ("SPARK.LAN", Visit.NO_KEY), ("192.168.1.7:8485", Visit.NO_KEY),
        ("[fd00::1]:1", Visit.NO_KEY), ("localhost:1", Visit.NO_KEY), ("evil.example", Visit.WRONG_HOST),
        ("spark.lan.evil", Visit.WRONG_HOST), ("", Visit.WRONG_HOST),
    ],
)  # fmt: skip
def test_the_boxes_own_names_and_addresses_will_do(host: str, visit: Visit) -> None:
    check = KeyedVisitorCheck(lambda: KEYS, lambda: NOW, ["spark.lan"], "http")
    assert check.check(host, None, token=check.token, cookie=check.cookie, upgrades=False) is visit


def test_a_page_over_https_comes_from_https() -> None:
    check = KeyedVisitorCheck(lambda: KEYS, lambda: NOW, [], "https")
    cookie = check.let_in("good")
    for scheme, visit in (("https", Visit.WELCOME), ("http", Visit.WRONG_ORIGIN)):
        assert check.check("10.0.0.1", f"{scheme}://10.0.0.1", token=None, cookie=cookie, upgrades=True) is visit
