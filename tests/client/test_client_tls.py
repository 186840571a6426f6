"""A daemon behind https, with a key: from the command line's side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparkdash import listen
from sparkdash.client.client import AsyncClient
from sparkdash.client.trial import attempt
from sparkdash.errors import DaemonError

TLS = Path(__file__).parents[1] / "data" / "tls"


class Echo:
    """Answers every chat with one word, and keeps what it was shown."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.keys.append(dict(scope["headers"]).get(b"authorization", b"").decode() or None)
        chunk = {"choices": [{"index": 0, "delta": {"content": scope["scheme"]}}]}
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, str]]:
    """Served on https; its URL."""
    tls, app = listen.Tls(TLS / "cert.pem", TLS / "key.pem"), Echo()
    server, sock = listen.Server(app, tls), listen.bind_tcp("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    yield app, listen.root_url(sock, tls)
    server.stop()
    await serving


async def test_a_route_over_https_is_proved(echo: tuple[Echo, str], monkeypatch: pytest.MonkeyPatch) -> None:
    app, url = echo
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
    trial = await asyncio.to_thread(attempt, url, "sk-1", "chat", "alpha")
    assert (trial.text, app.keys) == ("https", ["Bearer sk-1"])


async def test_a_certificate_that_is_not_trusted_is_said(
    echo: tuple[Echo, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SPARKDASH_KEY", "sk-2")
    with pytest.raises(DaemonError, match="is not trusted") as caught:
        async with AsyncClient(echo[1]) as client:
            await client.state()
    assert "SSL_CERT_FILE" in (caught.value.hint or "")
    assert echo[0].keys == []
