"""`sparkdash web`: who gets in, by which door, and how many."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from sparkdash.web import server as web_server
from sparkdash.web.server import WebServer
from sparkdash.web.visitors import MOST_SESSIONS, Visit, VisitorCheck

SCREEN = """
import sys
print("__GANGLION__", flush=True)
while (told := sys.stdin.buffer.read1(65536)) and b"quit" not in told:
    pass
"""
"""A screen that draws nothing and ends when it is told to, as Textual's web driver does."""
Client = TestClient[Any, Any]


@pytest.fixture
async def client(ended_screens: None) -> AsyncIterator[Client]:
    """A browser without a cookie, whose screens have all ended when the test does."""
    serving = WebServer(VisitorCheck(), (sys.executable, "-c", SCREEN))
    async with TestClient(TestServer(await serving.make_app())) as made:
        made.guard = serving  # type: ignore[attr-defined]
        yield made


async def let_in(client: Client) -> str:
    """Open the address with the token; return the origin."""
    answer = await client.get("/", params={"token": client.guard.visitors.token})  # type: ignore[attr-defined]
    assert answer.status == 200
    return str(client.make_url("/").origin())


async def test_the_token_in_the_address_becomes_a_cookie_that_no_script_reads(client: Client) -> None:
    token = client.guard.visitors.token  # type: ignore[attr-defined]
    first = await client.get("/", params={"token": token}, allow_redirects=False)
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert token not in cookie
    page = await client.get("/")
    assert page.status == 200
    assert token not in await page.text()


@pytest.mark.parametrize(
    "path", ["/", "/?token=wrong", "/static/js/textual.js", "/dashboard.css", "/ws", "/download/x"]
)
async def test_without_token_and_cookie_there_is_nothing(client: Client, path: str) -> None:
    answer = await client.get(path, headers={"origin": str(client.make_url("/").origin())})
    assert answer.status == 403
    assert "sparkdash web" in await answer.text()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "127.0.0.1.evil.example"},
    ],
    ids=str,
)
async def test_a_page_of_another_address_gets_nowhere_even_with_the_cookie(
    client: Client, headers: dict[str, str]
) -> None:
    await let_in(client)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect("/ws", headers=headers)
    assert refused.value.status == 403
    assert (await client.get("/", headers=headers)).status == 403


async def test_four_tabs_are_served_and_a_fifth_is_told_the_limit(client: Client) -> None:
    origin = await let_in(client)
    async with AsyncExitStack() as tabs:
        for _ in range(MOST_SESSIONS):
            await tabs.enter_async_context(client.ws_connect("/ws", origin=origin))
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect("/ws", origin=origin)
        assert refused.value.status == 503
    assert Visit.FULL.value.startswith(str(MOST_SESSIONS))


async def test_a_browser_that_leaves_while_its_screen_begins_is_counted_until_that_has_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child whose beginning is cancelled is killed and waited for; a loop that closes meanwhile would leave it."""
    origin = await let_in(client)
    begins, ended = asyncio.Event(), []

    async def begin(*_: object, **__: object) -> None:
        begins.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _turn in range(20):
                await asyncio.sleep(0)
            ended.append("the screen")

    monkeypatch.setattr(asyncio, "create_subprocess_shell", begin)
    visitors = client.guard.visitors  # type: ignore[attr-defined]
    async with client.ws_connect("/ws", origin=origin):
        await begins.wait()
        assert visitors.sessions == 1
    async with asyncio.timeout(60):
        while visitors.sessions:  # noqa: ASYNC110 - a number tells of no change
            await asyncio.sleep(0)
    assert ended == ["the screen"]


async def test_the_page_loads_nothing_from_elsewhere(client: Client) -> None:
    origin = await let_in(client)
    answer = await client.get("/")
    text = await answer.text()
    named = re.findall(r'(?:src|href)="([^"]+)"', text)
    for path in (name for name in named if name.startswith("/")):
        assert (await client.get(path)).status == 200
    assert all(name.startswith(("/", "data:,")) for name in named)
    assert f'"{origin.replace("http", "ws")}/ws"' in text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=", text)
    assert "https:" not in (Path(web_server.__file__).parent / "page" / "dashboard.css").read_text()


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost:8485", "[::1]:1", "127.8.8.8"])
def test_any_name_of_loopback_and_any_port_will_do(host: str) -> None:
    check = VisitorCheck()
    assert check.check(host, None, token=None, cookie=check.cookie, upgrades=False) is Visit.WELCOME
    assert check.check(host, f"http://{host}", token=None, cookie=check.cookie, upgrades=True) is Visit.WELCOME
    assert check.check(host, None, token=None, cookie=check.cookie, upgrades=True) is Visit.WRONG_ORIGIN


@pytest.mark.parametrize("host", ["", "[", "spark.lan", "localhost.evil", "10.0.0.1", "0x7f.1"])
def test_no_other_name_will(host: str) -> None:
    check = VisitorCheck()
    assert check.check(host, None, token=check.token, cookie=check.cookie, upgrades=False) is Visit.WRONG_HOST
