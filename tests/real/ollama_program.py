"""Ollama's program: started beside sparkdash, and given tiny models with random weights.

Owns: its environment and its end. Must not know sparkdash.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import tiny_gguf

TINY, TINY_VECTORS = "tiny", "tiny-vectors"


@dataclass(frozen=True)
class Ollama:
    """Ollama's program or image, and the folder with its models."""

    program: str
    image: str | None
    models: Path
    home: Path

    def variables(self, port: int) -> dict[str, str]:
        """Environment of one that this script starts itself."""
        own = {"OLLAMA_HOST": f"127.0.0.1:{port}", "OLLAMA_MODELS": str(self.models), "OLLAMA_NO_CLOUD": "1"}
        return {**os.environ, "HOME": str(self.home), **own}

    @contextmanager
    def running(self) -> Iterator[int]:
        """Run an Ollama that sparkdash did not start; yield its port."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([self.program, "serve"], env=self.variables(port), stdout=quiet, stderr=quiet)
        try:
            _until_open(port)
            yield port
        finally:
            process.terminate()
            process.wait(timeout=30)

    def make_models(self) -> None:
        chats = tiny_gguf.gguf()
        facts = tiny_gguf.metadata
        pooled = {"llama.pooling_type": (tiny_gguf.UINT32, 1)}
        with patch.object(tiny_gguf, "metadata", lambda *given: facts(*given) | pooled):
            embeds = tiny_gguf.gguf()
        with self.running() as port:
            for name, weights in ((TINY, chats), (TINY_VECTORS, embeds)):
                (self.home / "tiny.gguf").write_bytes(weights)
                (self.home / "Modelfile").write_text("FROM ./tiny.gguf\n")
                words = [self.program, "create", name, "-f", "Modelfile"]
                subprocess.run(words, cwd=self.home, env=self.variables(port), check=True, capture_output=True)


def _until_open(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)  # a foreign program has no other sign
    raise SystemExit(f"Ollama does not listen on port {port} after a minute.")
