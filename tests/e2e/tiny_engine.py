"""A stand-in for `vllm serve` that starts in a tenth of a second: real HTTP, the same flags, no model.

For tests of swapping with real containers, where what matters is the container and not the tokens. It answers a
chat with `max_tokens` words, streamed every 5 ms, and tells on /metrics how many requests run.
"""

import argparse
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RUNNING: set[int] = set()
HELD: list[bytearray] = []
"""Memory that is really taken, page by page."""


class Handler(BaseHTTPRequestHandler):
    """The few routes that a supervisor and a chat client need."""

    protocol_version = "HTTP/1.1"
    names: tuple[str, ...] = ()

    def log_message(self, *args: Any) -> None:
        """Quiet."""

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Health, version, models, metrics."""
        if self.path == "/metrics":
            text = f'vllm:num_requests_running{{engine="0",model_name="{self.names[0]}"}} {len(RUNNING)}\n'
            self.answer(200, text.encode(), "text/plain")
        else:
            models = [{"id": name, "object": "model"} for name in self.names]
            self.answer(200, json.dumps({"object": "list", "data": models, "version": "0.0-tiny"}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] not in self.names:
            self.answer(404, json.dumps({"error": {"message": "no such model", "code": 404}}).encode())
            return
        count = body.get("max_tokens") or 8
        self.words = sum(len(message["content"].split()) for message in body["messages"])
        RUNNING.add(id(self))
        try:
            if body.get("stream"):
                self.stream(body["model"], count)
            else:
                message = {"role": "assistant", "content": self.names[0]}
                usage = {"prompt_tokens": self.words, "completion_tokens": count, "total_tokens": self.words + count}
                choice = {"index": 0, "message": message, "finish_reason": "length"}
                self.answer(200, json.dumps({"id": "x", "object": "chat.completion", "created": 0,
                    "model": body["model"], "choices": [choice], "usage": usage}).encode())  # fmt: skip
        finally:
            RUNNING.discard(id(self))

    def stream(self, model: str, count: int) -> None:
        """Server-sent events, a word each; a client that left ends it at the next write."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")  # so that a death in the middle is not taken for the end
        self.send_header("Connection", "close")
        self.end_headers()
        for index in range(count):
            choice = {"index": 0, "delta": {"content": f"{self.names[0]} "}, "finish_reason": None}
            self.event({"id": "x", "object": "chat.completion.chunk", "created": 0, "model": model,
                        "choices": [choice if index else choice | {"delta": choice["delta"] | {"role": "assistant"}}]})  # fmt: skip
            time.sleep(0.005)  # the pace of the stream, not a synchronisation
        usage = {"prompt_tokens": self.words, "completion_tokens": count, "total_tokens": self.words + count}
        self.event({"id": "x", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [],
                    "usage": usage})  # fmt: skip
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")
        self.close_connection = True

    def event(self, body: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(body).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        """One chunk of HTTP/1.1; an empty one is the end."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()


def hold(mib: int) -> None:
    """Take this much memory for good; written to, or the kernel would only promise it."""
    HELD.append(bytearray(b"x") * (mib << 20))


def main() -> None:
    """Read vLLM's flags and serve; `--die` and `--hang` are the zoo's."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--served-model-name", nargs="+", default=["tiny"])
    flags.add_argument("--die", action="store_true")
    flags.add_argument("--hang", action="store_true")
    flags.add_argument("--hold-mib", type=int, default=0)
    given, _ = flags.parse_known_args()
    if given.die:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    if given.hang:
        time.sleep(3600)
    hold(given.hold_mib)
    Handler.names = tuple(given.served_model_name)
    server = ThreadingHTTPServer((given.host, given.port), Handler)
    print("INFO: Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
