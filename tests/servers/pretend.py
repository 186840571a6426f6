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
PORT = int(
    next((GIVEN[flag] for flag in ("--port", "--listen-port") if flag in GIVEN), None)
    or os.environ.get("UVICORN_PORT")
    or os.environ["OLLAMA_HOST"].rpartition(":")[2]
)
ASKED = {"health": 0}
CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "one"}}],
    "usage": {"completion_tokens": 1},
}
VECTOR = {"object": "list", "data": [{"index": 0, "embedding": [0.1, 0.2]}]}
PICTURE = {"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]}
RANKS = [{"index": 0, "score": 0.9}, {"index": 1, "score": 0.1}]
MODEL = {
    "ollama": "qwen3:8b",
    "nim": "meta/llama",
    "sd-cpp": "sd-cpp-local",
    "speaches": "Systran/faster-whisper-small",
}
MODEL |= {"kokoro": "kokoro", "parakeet": "parakeet-tdt-0.6b-v3", "tabbyapi": "folder", "infinity": "owner/vectors"}
NAME = GIVEN.get("--model-name") or MODEL.get(KIND, "")
HEALTH = {
    "ollama": "/", "nim": "/v1/health/ready", "parakeet": "/healthz", "sd-cpp": "/v1/models",
    "sglang-diffusion": "/models",
}.get(KIND, "/health")  # fmt: skip
LIST = None if KIND in ("tei", "sglang-diffusion") else "/v1/models"


def health() -> tuple[int, Any]:
    """Status and body of the health path; Atlas is first asked while it loads."""
    ASKED["health"] += 1
    if KIND == "atlas":
        loads = ASKED["health"] < 3
        return (503, {"status": "loading"}) if loads else (200, {"status": "ready", "model": NAME})
    return 200, {"tabbyapi": {"status": "healthy"}, "ollama": "Ollama is running"}.get(KIND, {"status": "ok"})


def answer(path: str, asked: dict[str, Any], form: bytes) -> tuple[int, Any]:
    if NAME and asked and asked.get("model") not in (NAME, None):
        return 404, {"error": {"message": f"model {asked.get('model')!r} not found, try pulling it first"}}
    match KIND, path:
        case (("atlas" | "lucebox" | "ollama" | "tabbyapi" | "nim"), "/v1/chat/completions"):
            return 200, {"model": NAME, **CHAT}
        case (("tei" | "infinity"), "/v1/embeddings"):
            return 200, VECTOR
        case "tei", "/rerank":
            return (200, RANKS) if "texts" in asked else (422, {"error": "missing field `texts`"})
        case (("speaches" | "parakeet"), "/v1/audio/transcriptions"):
            whole = b"RIFF" in form and NAME.encode() in form
            return (200, {"text": ""}) if whole else (422, {"detail": "file or model is missing"})
        case "kokoro", "/v1/audio/speech":
            known = asked.get("voice") == "af_bella"
            return (200, b"RIFF....WAVE") if known else (400, {"detail": {"error": "voice not found"}})
        case (("sd-cpp" | "sglang-diffusion"), "/v1/images/generations"):
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
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_json = "json" in (self.headers["Content-Type"] or "")
        self.send(*answer(self.path, json.loads(body) if is_json else {}, b"" if is_json else body))

    def log_message(self, *_: object) -> None: ...


print(f"{KIND} listens on {PORT}", flush=True)
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
