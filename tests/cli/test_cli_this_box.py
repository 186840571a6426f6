"""This box as the dashboard's first screen sees it: servers, clients, and the two things that it may do by itself."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sparkdash import paths
from sparkdash.cli.this_box import ThisBox
from sparkdash.discovery import look
from sparkdash.errors import ProfileError


class ModelList(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "org/Phi-4"}]}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A home of its own with aider installed, and a server on one port of the look."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    program = tmp_path / "bin" / "aider"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelList)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(look, "PORTS", {server.server_port: "a server"})
    yield server
    server.shutdown()
    server.server_close()


async def test_a_look_names_the_servers_the_clients_and_what_was_attached_before(here: Any) -> None:
    box = ThisBox()
    found = await box.look(())
    (server,) = found.servers
    assert server.profiles == ("qwen3-8b", "phi-4")
    assert not server.attached
    assert found.clients == ("aider",)
    assert await box.attach(server) == ("qwen3-8b", "phi-4")
    assert "model_id: qwen3:8b" in (paths.config_dir() / "profiles" / "qwen3-8b.yaml").read_text()
    assert (await box.look(())).servers[0].attached


async def test_a_folder_that_cannot_be_written_is_told(here: Any) -> None:
    box = ThisBox()
    (server,) = (await box.look(())).servers
    paths.config_dir().mkdir(parents=True, exist_ok=True)
    (paths.config_dir() / "profiles").write_text("a file where the folder would be")
    with pytest.raises(ProfileError, match="cannot be written"):
        await box.attach(server)
