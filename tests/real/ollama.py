"""A real Ollama behind sparkdash, step by step: what each step saw, and how long it took.

    .venv/bin/python tests/real/ollama.py                        # tiny models with random weights, made here
    .venv/bin/python tests/real/ollama.py qwen3:0.6b             # a model that you pulled
    .venv/bin/python tests/real/ollama.py --image IMAGE          # Ollama in a container of podman

It needs Ollama's program, or with --image an image of it; nothing is downloaded. A daemon of its own runs in a temporary
folder and starts Ollama at a free port: an Ollama that runs already is left alone. Not part of the test suite. Ends with
the number of steps that failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))
os.environ.setdefault("CONTAINERS_CONF", str(HERE.parent / "podman" / "containers.conf"))

from daemons import Daemon  # noqa: E402 - tests/ is no package
from ollama_program import TINY, TINY_VECTORS, Ollama  # noqa: E402

from sparkdash.catalog import yaml12  # noqa: E402
from sparkdash.host.processes.leftovers import processes_called  # noqa: E402

CHAT, OTHER, VECTORS, UNPULLED = "oll-chat", "oll-other", "oll-vectors", "oll-unpulled"
SAID = [{"role": "user", "content": "Count from one to five."}]
LOAD_S = 600


class Steps:
    """Steps on one daemon; each returns what it saw, and fails by an assertion."""

    def __init__(self, daemon: Daemon, ollama: Ollama, model: str, vectors: str | None) -> None:
        self._daemon, self._ollama, self._model, self._vectors = daemon, ollama, model, vectors

    def all(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield titles and steps in order: each begins where the one before ended."""
        yield "load, proof and first answer", self.first_answer
        if self._ollama.image is None:
            yield "what it holds is learned", self.learned
        yield "streams are counted", self.stream
        yield "OpenAI's and Anthropic's routes", self.routes
        yield "Ollama's own routes at the gateway", self.own_routes
        yield "a route that it lacks", self.lacks
        if self._vectors:
            yield "embeddings, by a profile of their own", self.embeddings
        yield "a swap to another profile and back", self.swaps
        yield "a model that Ollama let go of", self.unloaded
        yield "a model that it does not have", self.unpulled
        yield "SIGKILL of the daemon, adoption", self.adopted
        yield "a stop leaves nothing", self.stopped
        if self._ollama.image is None:
            yield "an Ollama that runs is found and attached", self.attached

    def _ok(self, path: str, body: Any, timeout: float = LOAD_S) -> Any:
        status, answer = self._daemon.call("POST", path, body, timeout)
        assert status == 200, f"{path}: {status} {answer}"
        return answer

    def _chat(self, profile: str, **more: Any) -> Any:
        return self._ok("/v1/chat/completions", {"model": profile, "messages": SAID, "max_tokens": 16, **more})

    def _engine(self, profile: str = CHAT) -> Any:
        return self._daemon.state()["engines"].get(profile, {})

    def _ask_ollama(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self._engine()['port']}{path}", data, timeout=60) as answer:
            return json.loads(answer.read())

    def _loaded(self) -> list[Any]:
        return list(self._ask_ollama("/api/ps")["models"])

    def first_answer(self) -> str:
        """Ask a chat of a profile that nothing runs of."""
        usage = self._chat(CHAT)["usage"]
        assert usage["completion_tokens"] > 0
        (held,) = self._loaded()
        return f"Ollama {self._engine()['version']}, context {held.get('context_length')}, {usage}"

    def learned(self) -> str:
        """Compare what the next start will count on with what the kernel tells of Ollama and its runner."""
        self._daemon.until(lambda _: self._daemon.get(f"/api/plan/{CHAT}")["need"]["basis"] == "learned")
        (steady, *_) = self._daemon.get(f"/api/plan/{CHAT}")["need"]["terms"]
        host = f"OLLAMA_HOST=127.0.0.1:{self._engine()['port']}".encode()
        held, names = 0, []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if host in (folder / "environ").read_bytes().split(b"\0"):
                    held += 1024 * int(re.findall(r"RssAnon:\s+(\d+)", (folder / "status").read_text())[0])
                    names.append((folder / "comm").read_text().strip())
        assert len(names) > 1, names
        assert abs(steady["bytes"] - held) < 0.1 * held, (steady["bytes"], held)
        return f"{steady['bytes'] / 1e6:.0f} MB; the kernel tells {held / 1e6:.0f} MB of {', '.join(sorted(names))}"

    def stream(self) -> str:
        """Read a stream to its end; the books must have its tokens.

        Few, as Ollama ends an answer in which a token comes 30 times in a row, without usage or [DONE].
        """
        asked = {"model": CHAT, "messages": SAID, "max_tokens": 24, "stream": True}
        request = urllib.request.Request(
            f"{self._daemon.url}/v1/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=LOAD_S) as answer:
            events = [line for line in answer if line.startswith(b"data:")]
        assert events[-1].strip() == b"data: [DONE]"
        row = self._daemon.get(f"/api/history/requests?profile={CHAT}")["requests"][0]
        assert row["completion_tokens"], row
        return f"{row['completion_tokens']} tokens in {len(events)} events, {row['decode_tok_s'] or 0:.0f} tok/s"

    def routes(self) -> str:
        """Ask every further route that the description of Ollama has."""
        self._ok("/v1/completions", {"model": CHAT, "prompt": "One", "max_tokens": 8})
        self._ok("/v1/responses", {"model": CHAT, "input": "One", "max_output_tokens": 8})
        message = self._ok("/v1/messages", {"model": CHAT, "messages": SAID, "max_tokens": 8})
        assert message["type"] == "message", message
        return "completions, responses, messages"

    def own_routes(self) -> str:
        said = self._ok("/api/chat", {"model": CHAT, "messages": SAID, "stream": False, "options": {"num_predict": 8}})
        assert said["done"], said
        names = [row["name"] for row in self._daemon.get("/api/tags")["models"]]
        running = [row["name"] for row in self._daemon.get("/api/ps")["models"]]
        assert running == [CHAT], running
        return f"/api/chat counted {said['eval_count']} tokens; /api/tags lists {len(names)}, /api/ps {running}"

    def lacks(self) -> str:
        status, answer = self._daemon.call("POST", "/v1/rerank", {"model": CHAT, "query": "x", "documents": ["y"]})
        assert (status, answer["error"]["code"]) == (404, "route_not_served"), answer
        return str(answer["error"]["message"])

    def embeddings(self) -> str:
        """Ask both forms of an embedding; the model that chats has to leave for it."""
        answer = self._ok("/v1/embeddings", {"model": VECTORS, "input": ["one", "two"]})
        own = self._ok("/api/embed", {"model": VECTORS, "input": "one"})
        assert len(answer["data"]) == 2
        return f"{len(answer['data'][0]['embedding'])} and {len(own['embeddings'][0])} numbers"

    def swaps(self) -> str:
        """Ask two profiles in turn; after each only one Ollama may be left."""
        for profile in (OTHER, CHAT):
            self._chat(profile)
            self._daemon.until(lambda state: state["swap"] is None)
            engines = self._daemon.state()["engines"]
            ready = [name for name, engine in engines.items() if engine["state"] == "ready"]
            assert ready == [profile], ready
        swap = self._daemon.state()["swaps"][0]
        return f"the way back took {swap['ended_at'] - swap['started_at']:.1f} s"

    def unloaded(self) -> str:
        """Have Ollama unload the model behind sparkdash's back, as another client may."""
        self._ask_ollama("/api/generate", {"model": self._model, "keep_alive": 0, "stream": False})
        deadline = time.monotonic() + 30
        while self._loaded():
            assert time.monotonic() < deadline, "Ollama did not let go of its model"
            time.sleep(0.1)
        self._chat(CHAT)
        assert len(self._loaded()) == 1
        return f"the next request loaded it again; the engine stayed {self._engine()['state']}"

    def unpulled(self) -> str:
        """Ask a profile whose model was never pulled; what ran before must come back."""
        status, answer = self._daemon.call(
            "POST", "/v1/chat/completions", {"model": UNPULLED, "messages": SAID}, LOAD_S
        )
        assert (status, answer["error"]["code"]) == (400, "bad_answer"), answer
        self._daemon.until(lambda state: state["engines"].get(CHAT, {}).get("state") == "ready")
        return str(answer["error"]["message"])

    def adopted(self) -> str:
        """Kill the daemon; the next one must take the same Ollama over, its model still loaded."""
        before = self._engine()["port"]
        self._daemon.kill()
        self._daemon.start()
        self._daemon.until(lambda state: state["engines"].get(CHAT, {}).get("state") == "ready")
        engine = self._engine()
        assert (engine["adopted"], engine["port"]) == (True, before), engine
        self._chat(CHAT)
        return f"the same Ollama at port {before}"

    def stopped(self) -> str:
        """Stop; neither Ollama nor the llama-server that it started may be left."""
        port = self._engine()["port"]
        self._daemon.post("/api/stop", {"profile": CHAT}, timeout=120)
        mine = processes_called(lambda words: str(self._ollama.models) in " ".join(words))
        assert not mine, f"processes are left: {sorted(mine)}"
        with socket.socket() as tried:
            assert tried.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is open"
        return "no process of it, and its port is closed"

    def attached(self) -> str:
        """Find an Ollama that sparkdash did not start, as `sparkdash setup` does."""
        with self._ollama.running() as port:
            words = ("setup", "--yes", "--only", "attach", "--only", "first-token", "--port", str(port))
            done = self._daemon.sparkdash(*words, timeout=LOAD_S)
            assert done.returncode == 0, done.stderr
            return " ".join(done.stdout.split()[-14:])


def main() -> int:
    """Run the steps, one line each; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a model that chats and was pulled, as `ollama list` names it")
    parser.add_argument("--vectors", metavar="MODEL", help="a pulled model of embeddings, such as nomic-embed-text")
    parser.add_argument("--program", default=shutil.which("ollama"), help="Ollama's program (default: the one in PATH)")
    parser.add_argument("--models", type=Path, help="Ollama's folder of models (default: ~/.ollama/models)")
    parser.add_argument("--image", help="image of Ollama, which runs in podman instead of the program")
    given = parser.parse_args()
    if given.program is None and (given.image is None or given.model is None):
        print("There is no `ollama` in PATH. Name it with --program; or give --image and a MODEL that was pulled.")
        return 1
    with tempfile.TemporaryDirectory(prefix="sparkdash-ollama-") as folder:
        root = Path(folder)
        models = (
            root / "models" if given.model is None else (given.models or Path.home() / ".ollama/models").expanduser()
        )
        ollama = Ollama(given.program or "ollama", given.image, models, root)
        if given.model is None:
            ollama.make_models()
        chats = given.model or TINY
        vectors = given.vectors or (TINY_VECTORS if given.model is None else None)
        daemon = Daemon(
            root, runtime="podman" if given.image else "process", side_by_side=False, min_dwell_s=0, stop_grace_s=30
        )
        daemon.env["HOME"] = folder  # Ollama makes a key in its home
        daemon.write(CHAT, _document(ollama, CHAT, chats))
        daemon.write(OTHER, _document(ollama, OTHER, chats))
        daemon.write(UNPULLED, _document(ollama, UNPULLED, "nobody-has-this:1b"))
        if vectors:
            daemon.write(VECTORS, _document(ollama, VECTORS, vectors, routes=["embeddings"]))
        daemon.start()
        try:
            return _run(Steps(daemon, ollama, chats, vectors))
        finally:
            daemon.end()


def _document(ollama: Ollama, name: str, model: str, **server: Any) -> str:
    place: dict[str, Any] = {"command": [ollama.program, "serve"], "env": {"OLLAMA_MODELS": str(ollama.models)}}
    if ollama.image is not None:
        mount = {"source": str(ollama.models), "target": str(ollama.models), "read_only": False}
        place = {"image": ollama.image, "env": place["env"], "mounts": [mount]}
    profile = {
        "profile": name,
        "engine": "generic",
        "model_id": model,
        "context": 2048,
        "gpu": shutil.which("nvidia-smi") is not None,
        "memory": {"weights_gib": 2, "kv_gib": 1, "overhead_gib": 1, "source": "a guess for a small model"},
        "server": {"kind": "ollama", **server},
    }
    return str(yaml12.dump(profile | place))


def _run(steps: Steps) -> int:
    failed = 0
    for title, step in steps.all():
        began = time.monotonic()
        try:
            seen, mark = step(), "ok"
        except (AssertionError, OSError, KeyError, ValueError) as error:
            seen, mark, failed = f"{type(error).__name__}: {error}", "FAILED", failed + 1
        print(f"{mark:<7}{time.monotonic() - began:6.1f} s  {title}: {seen}", flush=True)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
