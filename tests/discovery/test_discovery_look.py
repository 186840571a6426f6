"""Servers, containers and files that a look at the box finds."""

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkdash.discovery import look
from sparkdash.discovery.look import find_servers

Serve = Callable[[int, bytes], int]
RECORDED = Path(__file__).parents[1] / "data" / "ollama"


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[http.server.HTTPServer] = []

    def begin(status: int, body: bytes) -> int:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return int(server.server_address[1])

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def listing(*models: object, owner: str = "x") -> bytes:
    return json.dumps({"data": [{"id": model, "owned_by": owner} for model in models]}).encode()


async def test_a_server_is_found_by_its_list_of_models(serve: Serve) -> None:
    port, own = serve(200, listing("a", "b")), serve(200, listing("c"))
    (found,) = await find_servers((port, own), besides=own)
    assert (found.url, found.models) == (f"http://127.0.0.1:{port}", ("a", "b"))


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b"{}"), (200, b"<html>"), (200, b"[]"), (200, b'{"data": [1]}'), (200, b'{"data": null}')],
)
async def test_another_program_on_the_port_is_no_server(serve: Serve, status: int, body: bytes) -> None:
    assert await find_servers((serve(status, body),)) == ()


async def test_of_an_ollama_the_models_that_run_elsewhere_stay_out_and_those_without_text_come_last(
    serve: Serve,
) -> None:
    """Ollama's own list tells it, in the shape of api/types.go of 0.32.15. The same answer stands for both lists here."""
    rows = [
        {"name": "vectors:latest", "capabilities": ["embedding"]},
        {"name": "big:cloud", "remote_host": "https://ollama.com:443", "capabilities": ["completion"]},
        {"name": "tiny:latest", "capabilities": ["completion", "tools"]},
        {"name": "older:latest"},
    ]
    both = json.loads(listing(*(row["name"] for row in rows))) | {"models": rows}
    (found,) = await find_servers((serve(200, json.dumps(both).encode()),))
    assert found.models == ("tiny:latest", "older:latest", "vectors:latest")
    assert found.mute == {"vectors:latest"}


async def test_the_answers_of_a_real_ollama_are_read(serve: Serve) -> None:
    """Both lists are those that Ollama 0.32.15 gave."""
    both = {**json.loads((RECORDED / "models.json").read_text()), **json.loads((RECORDED / "tags.json").read_text())}
    (found,) = await find_servers((serve(200, json.dumps(both).encode()),))
    assert (found.models, found.mute) == (("tiny:latest", "tiny-vectors:latest"), frozenset())


@pytest.mark.parametrize("rows", [None, [1], [{"name": 1}], [{"name": "a", "capabilities": 5}], {"name": "a"}])
async def test_an_odd_list_of_ollama_s_form_leaves_the_models_as_they_are(serve: Serve, rows: object) -> None:
    """Other programs have a path of that name too."""
    both = json.loads(listing("a", "b")) | {"models": rows}
    (found,) = await find_servers((serve(200, json.dumps(both).encode()),))
    assert (found.models, found.mute) == (("a", "b"), frozenset())


async def test_another_sparkdash_is_not_attached(serve: Serve) -> None:
    assert await find_servers((serve(200, listing("a", owner="sparkdash")),)) == ()


async def test_a_silent_server_holds_the_look_up_for_no_longer_than_its_patience() -> None:
    """The connection is accepted, and nothing comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await find_servers((silent.getsockname()[1],)) == ()


async def test_of_thousands_of_models_the_first_are_kept(serve: Serve) -> None:
    """Some proxies list whole catalogues."""
    (found,) = await find_servers((serve(200, listing(*(f"m{number}" for number in range(3000)))),))
    assert len(found.models) == 20


def test_the_first_file_that_can_be_read_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "real").write_text("models: {}\n")
    places = tuple(str(tmp_path / name) for name in ("none", "empty", "folder", "real"))
    monkeypatch.setattr(look, "PLACES", places)
    assert [(one.kind, one.path) for one in look.find_files()] == [("llama-swap", places[-1])]
