"""A server that answers as one of the known servers does, on the port that the known flags or variables tell it.

Its paths, statuses and bodies are those of the servers' own documents. It refuses what the real one would refuse.
"""

import itertools
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KIND, *ARGS = sys.argv[1:]
GIVEN = dict(itertools.pairwise(ARGS))
PORT = int(GIVEN.get("--port") or os.environ["OLLAMA_HOST"].rpartition(":")[2])
ASKED = {"health": 0}
CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "one"}}],
    "usage": {"completion_tokens": 1},
}
VECTOR = {"object": "list", "data": [{"index": 0, "embedding": [0.1, 0.2]}]}
PICTURE = {"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]}
RANKS = [{"index": 0, "score": 0.9}, {"index": 1, "score": 0.1}]
MODEL = {"ollama": "qwen3:8b", "nim": "meta/llama", "draws": "drawer", "kokoro": "kokoro"}
NAME = GIVEN.get("--model-name") or MODEL.get(KIND, "")
HEALTH = {"ollama": "/", "nim": "/v1/health/ready", "draws": "/v1/models"}.get(KIND, "/health")
LIST = None if KIND == "tei" else "/v1/models"


def health() -> tuple[int, Any]:
    """Status and body of the health path; Atlas is first asked while it loads."""
    ASKED["health"] += 1
    if KIND == "atlas":
        loads = ASKED["health"] < 3
        return (503, {"status": "loading"}) if loads else (200, {"status": "ready", "model": NAME})
    return 200, "Ollama is running" if KIND == "ollama" else {"status": "ok"}


def answer(path: str, asked: dict[str, Any]) -> tuple[int, Any]:
    if NAME and asked and asked.get("model") not in (NAME, None):
        return 404, {"error": {"message": f"model {asked.get('model')!r} not found, try pulling it first"}}
    match KIND, path:
        case (("atlas" | "lucebox" | "ollama" | "nim"), "/v1/chat/completions"):
            return 200, {"model": NAME, **CHAT}
        case "tei", "/v1/embeddings":
            return 200, VECTOR
        case "tei", "/rerank":
            return (200, RANKS) if "texts" in asked else (422, {"error": "missing field `texts`"})
        case "kokoro", "/v1/audio/speech":
            known = asked.get("voice") == "af_bella"
            return (200, b"RIFF....WAVE") if known else (400, {"detail": {"error": "voice not found"}})
        case "draws", "/v1/images/generations":
            return 200, PICTURE
    return 404, {"error": "no such route"}


class Handler(BaseHTTPRequestHandler):
    """The HTTP side."""

    def send(self, status: int, value: Any) -> None:
        body = (
            value
            if isinstance(value, bytes)
            else value.encode()
            if isinstance(value, str)
            else json.dumps(value).encode()
        )
        self.send_response(status)
        self.send_header("Content-Type", "audio/wav" if isinstance(value, bytes) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == LIST:
            self.send(200, {"object": "list", "data": [{"id": NAME, "object": "model"}]})
        elif self.path == HEALTH:
            self.send(*health())
        elif self.path in ("/info", "/api/version"):
            self.send(200, {"version": "1.2.3"})
        else:
            self.send(404, {"error": "no such route"})

    def do_POST(self) -> None:
        self.send(*answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def log_message(self, *_: object) -> None: ...


print(f"{KIND} listens on {PORT}", flush=True)
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
