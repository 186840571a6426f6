"""A small registry of images over real HTTP (the distribution API's four GETs), filled from the local podman."""

import hashlib
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class ImageRegistry:
    """Registry with one image, `HOST:PORT/NAME:1`; `with ImageRegistry(folder, local_image, name) as registry`."""

    def __init__(self, folder: Path, local_image: str, name: str) -> None:
        subprocess.run(["podman", "push", "--quiet", local_image, f"dir:{folder}"], check=True, capture_output=True)
        self._folder = folder
        self._manifest = (folder / "manifest.json").read_bytes()
        self._name = name
        self.asked: list[str] = []

    def __enter__(self) -> "ImageRegistry":
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.asked.append(self.path)
                found = registry.answer(self.path)
                self.send_response(200 if found else 404)
                body, kind = found or (b'{"errors": [{"code": "NAME_UNKNOWN"}]}', "application/json")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the server's name for it

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.place = f"127.0.0.1:{self._server.server_port}"
        self.image = f"{self.place}/{self._name}:1"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        subprocess.run(["podman", "rmi", "--force", self.image], check=False, capture_output=True)

    def settings(self, path: Path) -> Path:
        """Write a registries.conf by which podman asks this registry without TLS."""
        path.write_text(f'[[registry]]\nlocation = "{self.place}"\ninsecure = true\n')
        return path

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """Body and media type of a GET; None where nothing is."""
        if path == "/v2/":
            return b"{}", "application/json"
        if path.startswith(f"/v2/{self._name}/manifests/"):
            return self._manifest, str(json.loads(self._manifest)["mediaType"])
        if path.startswith(f"/v2/{self._name}/blobs/sha256:"):
            blob = self._folder / path.rpartition(":")[2]
            return (blob.read_bytes(), "application/octet-stream") if blob.is_file() else None
        return None
