"""A small Hugging Face hub over real HTTP: the API and the files of a few repositories, in threads of its own.

Tests script it: what it refuses, after how many bytes it falls silent, what it was asked. Big files are redirected to
another host ("localhost" for "127.0.0.1"), as the hub's go to its storage.
"""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

BIG = 1000
"""Bytes from which a file is kept as LFS, under its sha256."""


@dataclass
class Repo:
    """One repository at one commit."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    revisions: tuple[str, ...] = ("main",)


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    range: str | None
    authorization: str | None


@dataclass
class FakeHub:
    """The hub; `with FakeHub() as hub`."""

    repos: dict[str, Repo] = field(default_factory=dict)
    refusals: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    """Beginning of a path -> status and headers."""
    silent_after: int | None = None
    """Bytes of a big file after which the hub says no more until `go` is set."""
    ranges: bool = True
    """Does its storage resume?"""
    asked: list[Asked] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "FakeHub":
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.hub = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def got(self, method: str, part: str) -> list[Asked]:
        return [one for one in self.asked if one.method == method and part in one.path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: FakeHub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Silence."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.asked.append(Asked(self.command, path, self.headers.get("Range"), self.headers.get("Authorization")))
        for start, (status, headers) in hub.refusals.items():
            if path.startswith(start):
                return self._send(status, b"{}", headers)
        if path.startswith("/cdn/"):
            return self._file(next(d for r in hub.repos.values() for d in r.files.values() if _sha(d) == path[5:]))
        words = path.strip("/").split("/")
        if words[:2] == ["api", "models"]:
            return self._api("/".join(words[2:4]), words[4], words[5])
        return self._resolve("/".join(words[:2]), words[3], "/".join(words[4:]))

    def _api(self, name: str, what: str, revision: str) -> None:
        repo = self.server.hub.repos.get(name)
        if repo is None:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if revision not in (*repo.revisions, repo.commit):
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if what == "revision":
            return self._json({"id": name, "sha": repo.commit, "siblings": [{"rfilename": f} for f in repo.files]})
        return self._json([_entry(path, data) for path, data in repo.files.items()])

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.server.hub.repos.get(name)
        if repo is None or path not in repo.files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound" if repo else "RepoNotFound"})
        data = repo.files[path]
        headers = {"X-Repo-Commit": repo.commit}
        if len(data) < BIG:
            return self._send(200, data, headers | {"ETag": f'"{_oid(data)}"'})
        linked = {"X-Linked-Etag": f'"{_sha(data)}"', "X-Linked-Size": str(len(data))}
        port = self.server.server_port
        return self._send(302, b"", headers | linked | {"Location": f"http://localhost:{port}/cdn/{_sha(data)}?sig=s"})

    def _file(self, data: bytes) -> None:
        hub, start = self.server.hub, 0
        if hub.ranges and (asked := self.headers.get("Range")):
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            start, data = int(begin), data[: int(end) + 1 if end else None]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if (silent_after := hub.silent_after) is not None and start < silent_after < len(data):
            self.wfile.write(data[start:silent_after])
            self.wfile.flush()
            hub.go.wait()
            start = silent_after
        self.wfile.write(data[start:])

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(path: str, data: bytes) -> dict[str, Any]:
    lfs: dict[str, Any] = (
        {"lfs": {"oid": _sha(data), "size": len(data), "pointerSize": 100}} if len(data) >= BIG else {}
    )
    if lfs:
        lfs["xetHash"] = _sha(data[::-1])  # as on the hub, where every big file lies in its newer storage too
    return {"type": "file", "path": path, "size": len(data), "oid": _oid(data), **lfs}


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
