"""Keys, limits, foreign pages and the audit log, over real HTTP."""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from socket import AF_INET, AF_INET6, socket
from typing import Any

import httpx
import pytest

from sparkdash import keyring
from sparkdash.domain.event import Level, Notice
from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission import access
from sparkdash.gateway.admission.access import AccessControl
from sparkdash.keyring import Key, Keyring, Scope, digest
from sparkdash.settings import Settings

SECRET = "sk-sparkdash-test"


def key(name: str = "one", secret: str = SECRET, **more: Any) -> Key:
    return Key.model_validate({"name": name, "sha256": digest(secret), **more})


class Locked:
    """A house with keys, and what it wrote down."""

    def __init__(self, house: Any, path: Path) -> None:
        self.house = house
        self.path = path
        self.used: dict[str, int] = {}
        self.audit: list[dict[str, Any]] = []
        house.rebuild(keys=Keyring(path), used_today=lambda name: self.used.get(name, 0), audit=self.audit.append)

    def add(self, **more: Any) -> None:
        keyring.add_key(self.path, key(**more))

    async def get(self, path: str, secret: str | None = SECRET, **headers: str) -> httpx.Response:
        sent = {"authorization": f"Bearer {secret}"} if secret else {}
        return await self.house.client.get(path, headers={**sent, **headers})

    async def chat(self, model: str = "alpha", secret: str = SECRET, path: str = "/v1/chat/completions") -> Any:
        return await self.house.client.post(path, json={"model": model}, headers={"x-api-key": secret})


@pytest.fixture
async def locked(house: Any, tmp_path: Path) -> AsyncIterator[Locked]:
    return Locked(house, tmp_path / "keys.json")


@pytest.mark.parametrize("headers", [
    {"authorization": f"Bearer {SECRET}"}, {"authorization": f"bearer  {SECRET}"}, {"x-api-key": SECRET},
    {"api-key": SECRET}, {"authorization": "Bearer dummy", "x-api-key": SECRET},
])  # fmt: skip
async def test_a_key_is_taken_wherever_clients_put_it(locked: Locked, headers: dict[str, str]) -> None:
    locked.add()
    reply = await locked.house.client.post("/v1/chat/completions", json={"model": "alpha"}, headers=headers)
    assert reply.status_code == 200
    assert (await locked.house.ended()).key == "one"
    assert SECRET not in str(locked.house.engine.seen[0].headers)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {SECRET}"}])
async def test_without_a_known_key_nothing_is_told(locked: Locked, headers: dict[str, str]) -> None:
    """401 in the dialect of the route, without what was sent; only whether the gateway lives is everybody's."""
    locked.add()
    for path in ("/v1/models", "/v1/chat/completions", "/tokenize", "/api/state", "/api/openapi.json"):
        reply = await locked.house.client.get(path, headers=headers)
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer"), path
        assert "wrong" not in reply.text.replace("What went wrong", "")
        assert SECRET not in reply.text
    reply = await locked.house.client.post("/v1/messages", json={"model": "alpha"}, headers=headers)
    assert reply.json()["error"]["type"] == "authentication_error"
    reply = await locked.house.client.get("/api/tags", headers=headers)
    assert (reply.status_code, type(reply.json()["error"])) == (401, str)
    assert (await locked.house.client.get("/health", headers=headers)).status_code == 200
    assert locked.house.supervisor.leases == []


async def test_a_revoked_key_is_refused_at_once_and_a_damaged_file_changes_nothing(locked: Locked) -> None:
    locked.add()
    locked.add(name="two", secret="second")
    assert (await locked.get("/v1/models")).status_code == 200
    keyring.revoke_key(locked.path, "one")
    assert (await locked.get("/v1/models")).status_code == 401
    locked.path.write_text("{ broken")
    assert (await locked.get("/v1/models", "second")).status_code == 200
    assert (await locked.get("/v1/models")).status_code == 401


async def test_a_key_that_has_expired_is_refused_and_named(locked: Locked) -> None:
    """401 from its moment on, on every side; another key goes on working."""
    locked.add(expires_at=1.0)
    locked.add(name="two", secret="second", expires_at=4e9)
    reply = await locked.get("/v1/models")
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "key_expired")
    assert "'one'" in reply.json()["error"]["message"]
    assert (await locked.get("/v1/models", "second")).status_code == 200


async def test_a_key_for_some_models(locked: Locked) -> None:
    """By profile or alias; a word that only looks like an allowed one does not help; the list shows no others."""
    locked.add(models=["coder*"])
    assert (await locked.chat("alpha")).status_code == 200
    assert (await locked.chat("coder")).status_code == 200
    assert (await locked.chat("auto")).status_code == 200
    assert locked.house.supervisor.leases == ["alpha", "coder", "alpha"]
    for model in ("beta/fast", "coder-x/beta/fast", "coder/huge"):
        refused = await locked.chat(model)
        assert refused.status_code in (403, 404), model
    assert (await locked.chat("beta/fast")).json()["error"]["code"] == "model_not_allowed"
    listed = [item["id"] for item in (await locked.get("/v1/models")).json()["data"]]
    assert listed == ["alpha", "coder", "auto"]
    assert (await locked.get("/v1/models/beta/fast")).status_code == 403
    assert (await locked.get("/v1/models/coder")).status_code == 200
    locked.add(name="other", secret="o", models=["beta"])  # what runs is none of its models
    assert (await locked.chat("auto", "o")).json()["error"]["code"] == "model_not_allowed"
    assert [item["id"] for item in (await locked.get("/v1/models", "o")).json()["data"]] == ["beta/fast", "auto"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"])
async def test_who_else_holds_memory_is_told_to_whom_the_whole_box_is_open(locked: Locked, path: str) -> None:
    """Names of other programs are none of a key's business that is for some models."""
    locked.house.supervisor.error = AdmissionError(
        "alpha does not fit.", code="does_not_fit", status=503, holders="Others hold memory: open-webui 6.0 GiB."
    )
    locked.add(name="all", secret="a", scopes=["control", "inference"])
    locked.add(name="some", secret="s", scopes=["control", "inference"], models=["alpha"])
    body = {"model": "alpha", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stream": False}
    told = {}
    for secret in ("a", "s"):
        reply = await locked.house.client.post(path, json=body, headers={"x-api-key": secret})
        told[secret] = reply.text
    assert "alpha does not fit." in told["s"]
    assert "open-webui" not in told["s"]
    assert "Others hold memory: open-webui 6.0 GiB." in told["a"]


async def test_limits_are_a_429_that_says_when(locked: Locked) -> None:
    locked.add(requests_per_minute=2, tokens_per_day=100)
    assert [(await locked.chat()).status_code for _ in range(3)] == [200, 200, 429]
    late = await locked.chat()
    assert 1 <= int(late.headers["retry-after"]) <= 60
    assert late.json()["error"]["type"] == "rate_limit_error"
    assert (await locked.get("/v1/models")).status_code == 200
    locked.used["one"] = 100
    reply = await locked.chat(path="/v1/messages")
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "key_tokens_used_up")
    assert int(reply.headers["retry-after"]) <= 86400


def test_the_minute_moves_with_the_clock(tmp_path: Path) -> None:
    """Requests fall out of the window one by one; Retry-After tells when the first does."""
    now = [0.0]
    control = AccessControl(None, beyond=False, used_today=lambda _: 0, clock=lambda: now[0], monotonic=lambda: now[0])
    one = key(requests_per_minute=2)
    for at in (0.0, 40.0, 60.0):
        now[0] = at
        control.admit(one, Scope.INFERENCE, counts=True)
    now[0] = 61.0
    with pytest.raises(AdmissionError) as caught:
        control.admit(one, Scope.INFERENCE, counts=True)
    assert caught.value.retry_after == 39.0
    now[0] = 100.0
    control.admit(one, Scope.INFERENCE, counts=True)


async def test_a_keys_class_holds_where_the_client_names_none(locked: Locked) -> None:
    """Programs that cannot send a header of ours can have a key; one that sends it is believed."""
    locked.add(name="batch", secret="b", batch=True)
    locked.add(name="editor", secret="e", autocomplete=True)
    body, interactive = {"model": "alpha", "messages": [{"role": "user", "content": "x"}]}, "interactive"
    for secret in "be":
        for path, priority in (
            ("/v1/chat/completions", None),
            ("/v1/chat/completions", interactive),
            ("/api/chat", None),
        ):
            headers = {"x-api-key": secret, **({"x-sparkdash-priority": priority} if priority else {})}
            await locked.house.client.post(path, json=body, headers=headers)
    assert [ask["batch"] for ask in locked.house.supervisor.asks] == [True, False, True, *[False] * 3]
    assert [ask["autocomplete"] for ask in locked.house.supervisor.asks] == [*[False] * 3, True, False, True]


class TestBeyondLoopback:
    """A gateway that other boxes can reach."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(host="0.0.0.0", host_names=("Spark.lan",), allowed_origins=("https://chat.example",))

    async def test_without_keys_nobody_is_let_in(self, locked: Locked) -> None:
        """The last one was revoked while it served."""
        assert (await locked.get("/v1/models")).status_code == 401

    async def test_its_names(self, locked: Locked) -> None:
        """Names of the settings, and addresses; not what a page's name was made to resolve to."""
        locked.add()
        for host, status in (
            ("spark.lan:8484", 200),
            ("192.168.1.5", 200),
            ("[fe80::1]:1", 200),
            ("host.docker.internal:8484", 200),
            ("host.containers.internal:8484", 200),
            ("evil.internal", 403),
            ("evil.example", 403),
        ):
            assert (await locked.get("/v1/models", host=host)).status_code == status, host

    async def test_the_gateway_s_own_page_may_ask_the_engines_under_every_name_of_the_box(self, locked: Locked) -> None:
        locked.add(scopes=["inference", "control"])
        for own in ("spark.lan:8484", "192.168.7.2:8484"):
            for path in ("/v1/models", "/api/state"):
                assert (await locked.get(path, origin=f"http://{own}", host=own)).status_code == 200
        assert (await locked.get("/v1/models", origin="http://spark.lan:9", host="spark.lan:8484")).status_code == 403

    async def test_a_configured_page_may_ask_the_engines(self, locked: Locked) -> None:
        locked.add(scopes=["inference", "control"])
        reply = await locked.get("/v1/models", origin="https://chat.example")
        assert reply.headers["access-control-allow-origin"] == "https://chat.example"
        assert (await locked.get("/api/state", origin="https://chat.example")).status_code == 403


APPS = ["http://localhost:3000", "vscode-webview://1a2b", "app://obsidian.md", "tauri://localhost"]


@pytest.mark.parametrize("origin", [*APPS, "http://tauri.localhost"])
async def test_an_apps_own_pages_may_ask_the_engines(house: Any, origin: str) -> None:
    """With the answer to what the browser asks before; refusals can be read too."""
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
        "access-control-request-private-network": "true",
    }
    reply = await house.client.options("/v1/chat/completions", headers=asked)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == origin
    assert reply.headers["access-control-allow-methods"] == "POST"
    assert reply.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
    assert reply.headers["access-control-allow-private-network"] == "true"
    assert "content-length" not in reply.headers
    done = await house.client.post("/v1/chat/completions", json={"model": "alpha"}, headers={"origin": origin})
    assert (done.status_code, done.headers["access-control-allow-origin"]) == (200, origin)
    missing = await house.client.post("/v1/chat/completions", json={"model": "no"}, headers={"origin": origin})
    assert (missing.status_code, missing.headers["vary"]) == (404, "origin")


@pytest.mark.parametrize("origin", APPS)
async def test_no_page_reaches_the_control_api(house: Any, origin: str) -> None:
    """Not even one of this box: what stops engines is for programs."""
    assert (await house.client.get("/api/state", headers={"origin": origin})).status_code == 403
    assert (await house.client.post("/api/stop", json={}, headers={"origin": origin})).status_code == 403
    asked = {"origin": origin, "access-control-request-method": "POST"}
    assert (await house.client.options("/api/stop", headers=asked)).status_code == 403
    own = str(house.client.base_url).rstrip("/")
    assert (await house.client.get("/api/state", headers={"origin": own})).status_code == 200


@pytest.mark.parametrize("path", ["/api/state", "/api/profiles", "/metrics"])
async def test_a_picture_or_link_of_a_web_page_reads_no_control(house: Any, path: str) -> None:
    """Browsers send no Origin with those, and say from where they are; what is answered is nothing that a page can use."""
    for site in ("cross-site", "same-site"):
        reply = await house.client.get(path, headers={"sec-fetch-site": site})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "origin_refused")
    for own in ("same-origin", "none"):
        reply = await house.client.get(path, headers={"sec-fetch-site": own})
        assert reply.json().get("error", {}).get("code") != "origin_refused"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"


async def test_the_audit_log_tells_who_changed_what(locked: Locked) -> None:
    locked.add(scopes=["control"])
    client = locked.house.client
    client.headers["x-api-key"] = SECRET
    await client.get("/api/state")
    await client.post("/api/use", json={"profile": "alpha"})
    await client.post("/api/use", json={"profile": "nope"})
    lease = (await client.post("/api/lease", json={"holder": "bench"})).json()["token"]
    await client.post("/api/lease", json={"holder": "bench", "token": lease})
    await client.request("DELETE", "/api/lease", headers={"x-sparkdash-lease": lease})
    assert [(line["who"], line["did"], line["said"], line["status"]) for line in locked.audit] == [
        ("key one", "POST /api/use", {"profile": "alpha"}, 202),
        ("key one", "POST /api/use", {"profile": "nope"}, 404),
        ("key one", "POST /api/lease", {"holder": "bench"}, 200),
        ("key one", "DELETE /api/lease", {}, 200),
    ]
    assert {line["from"] for line in locked.audit} == {"127.0.0.1"}
    assert lease not in json.dumps(locked.audit)
    assert SECRET not in json.dumps(locked.audit)


async def test_the_audit_log_keeps_no_webhook_and_no_token(locked: Locked) -> None:
    """An address has its host alone, a secret's name no value."""
    body = {"key": "hooks", "value": 'url = "https://hooks.example/services/verysecret"', "HF_TOKEN": "letmeinletmein"}
    locked.add(scopes=["control"])
    await locked.house.client.post("/api/settings", json=body, headers={"x-api-key": SECRET})
    (line,) = locked.audit
    assert line["said"]["value"] == 'url = "https://hooks.example/***"'
    assert "letmein" not in json.dumps(line)


async def test_a_change_is_written_down_before_its_caller_hears_of_it(house: Any) -> None:
    kept: list[object] = []

    def keep(line: object) -> None:
        time.sleep(0.2)
        kept.append(line)

    house.rebuild(audit=keep)
    await house.client.post("/api/use", json={"profile": "alpha"})
    assert len(kept) == 1


@pytest.mark.parametrize("ends", ["revoked", "expired"])
async def test_a_feed_ends_with_its_key(locked: Locked, ends: str) -> None:
    """At the next event, of which nothing is told; a key that holds goes on."""
    bus, now = locked.house.bus, [1000.0]
    locked.house.rebuild(clock=lambda: now[0])
    locked.add(scopes=["inference", "control"], expires_at=2000.0)
    headers = {"x-api-key": SECRET}
    async with locked.house.client.stream("GET", "/api/events", headers=headers) as reply:
        pieces = reply.aiter_raw()
        while b"alpha" not in await anext(pieces):
            pass
        bus.publish(Notice(level=Level.INFO, code="c", text="first"))
        assert b"first" in await anext(pieces)
        if ends == "revoked":
            keyring.revoke_key(locked.path, "one")
        else:
            now[0] = 2000.0
        bus.publish(Notice(level=Level.INFO, code="c", text="second"))
        assert b"second" not in b"".join([piece async for piece in pieces])


async def test_a_followed_log_ends_with_its_key(locked: Locked) -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()

    async def follow(*_: Any, **__: Any) -> AsyncIterator[str]:
        while True:
            yield await lines.get()

    locked.house.supervisor.logs = follow
    locked.add(scopes=["control"])
    headers = {"x-api-key": SECRET}
    async with locked.house.client.stream("GET", "/api/logs/alpha?follow=1", headers=headers) as reply:
        pieces = reply.aiter_raw()
        lines.put_nowait("first")
        assert await anext(pieces) == b"first\n"
        keyring.revoke_key(locked.path, "one")
        lines.put_nowait("second")
        assert [piece async for piece in pieces] == []


ASK_AS_ANOTHER = """
import encodings.idna, os, sys, urllib.error, urllib.request
os.setuid(65534)
for method, path in (("POST", "/api/stop"), ("POST", "/api/shutdown"), ("GET", "/api/state"), ("GET", "/v1/models")):
    asked = urllib.request.Request(sys.argv[1] + path, b"{}" if method == "POST" else None, method=method)
    asked.add_header("Content-Type", "application/json")
    try:
        print(urllib.request.urlopen(asked).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
async def test_another_user_of_the_box_may_use_models_and_not_control_it(house: Any) -> None:
    """Over TCP, while no key exists: nobody else stops engines or ends the daemon."""
    asking = await asyncio.create_subprocess_exec(sys.executable, "-c", ASK_AS_ANOTHER, house.base, stdout=PIPE)
    told, _ = await asking.communicate()
    assert (told.split(), house.supervisor.calls, house.done) == ([b"403", b"403", b"403", b"200"], [], [])


async def test_control_over_tcp_is_for_the_daemons_own_user(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's program, and one whose user cannot be told, are refused with what to do; both may use models."""
    for uid in (os.geteuid() + 12345, None):
        monkeypatch.setattr(access, "peer_uid", lambda *_, uid=uid: uid)
        for method, path in (("POST", "/api/stop"), ("POST", "/api/shutdown"), ("GET", "/api/state")):
            reply = await house.client.request(method, path, json={} if method == "POST" else None)
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "not_the_owner")
            assert "sparkdash keys add" in reply.json()["error"]["hint"]
        assert (await house.client.get("/v1/models")).status_code == 200
    assert (house.supervisor.calls, house.done) == ([], [])
    monkeypatch.setattr(access, "peer_uid", lambda *_: os.geteuid())
    assert (await house.client.post("/api/stop", json={})).status_code == 200


@pytest.mark.parametrize(
    ("family", "host", "asked"),
    [(AF_INET, "127.0.0.1", "127.0.0.1"), (AF_INET6, "::1", "::1"), (AF_INET6, "127.0.0.1", "::ffff:127.0.0.1")],
)
def test_the_user_of_a_connection_is_the_kernels_word(family: int, host: str, asked: str) -> None:
    """For both kinds of address. A client that has closed belongs to nobody: the kernel shows it as root's."""
    with socket(AF_INET6 if ":" in host else AF_INET) as server, socket(family) as client:
        server.bind((host, 0))
        server.listen()
        client.connect((asked, server.getsockname()[1]))
        with server.accept()[0] as accepted:
            ends = accepted.getpeername()[:2], accepted.getsockname()[:2]
            assert access.peer_uid(*ends) == os.geteuid()
            client.close()
            assert access.peer_uid(*ends) is None
