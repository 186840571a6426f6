"""An OpenAI server in some sixty lines: chat, embeddings, a list of models, health and two figures."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, NAME = int(sys.argv[1]), sys.argv[2]
FIGURES = {"own_running": 0, "own_tokens_total": 0}
WORDS = ["one ", "two ", "three ", "four ", "five"]
USAGE = {"prompt_tokens": 5, "completion_tokens": len(WORDS), "total_tokens": 5 + len(WORDS)}


class Handler(BaseHTTPRequestHandler):
    def send(self, value: object, status: int = 200, kind: str = "application/json") -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        answers = {"/up": {"status": "ready"}, "/list": {"data": [{"id": NAME}]}}
        if self.path == "/metrics":
            self.send("".join(f"{name} {value}\n" for name, value in FIGURES.items()), kind="text/plain")
        else:
            self.send(answers.get(self.path, {"error": "no such path"}), 200 if self.path in answers else 404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["model"] != NAME:
            self.send({"error": {"message": f"there is no model {asked['model']}"}}, 404)
        elif self.path == "/vectors":
            self.send({"object": "list", "model": NAME, "data": [{"index": 0, "embedding": [0.5, 0.25]}]})
        elif self.path == "/v1/chat/completions":
            FIGURES["own_running"] += 1
            self.stream() if asked.get("stream") else self.chat()
            FIGURES["own_running"] -= 1

    def chat(self) -> None:
        FIGURES["own_tokens_total"] += len(WORDS)
        said = {"role": "assistant", "content": "".join(WORDS)}
        self.send({"model": NAME, "choices": [{"index": 0, "message": said}], "usage": USAGE})

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in WORDS * 20:
            FIGURES["own_tokens_total"] += 1
            self.event({"model": NAME, "choices": [{"index": 0, "delta": {"content": word}}]})
            time.sleep(0.05)  # the pace of its tokens
        self.event({"model": NAME, "choices": [], "usage": USAGE})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value: object) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None: ...


print(f"own server: weights 1/1, listens on {PORT}", flush=True)
ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()
