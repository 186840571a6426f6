"""A real Ollama as an engine: loads a model that it has, answers through the gateway, is adopted, and leaves nothing.

    .venv/bin/python tests/real/ollama.py qwen3:0.6b [--program /usr/local/bin/ollama] [--models ~/.ollama/models]

It needs Ollama's program and a model that was pulled before (`ollama pull qwen3:0.6b`); it downloads nothing. A daemon of
its own runs in a temporary folder, with Ollama as a plain process at a free port: one that already runs is left alone.
Not part of the test suite. Ends with 1 unless every step went well.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "shared"))

from daemons import Daemon  # noqa: E402 - tests/ is no package

from sparkdash.catalog.yaml import yaml_writer  # noqa: E402

NAME = "ollama-try"


def main() -> int:
    """Run the steps, one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model that was pulled, as `ollama list` names it")
    parser.add_argument("--program", default=shutil.which("ollama"))
    parser.add_argument("--models", type=Path, help="Ollama's folder of models, where it is not the usual one")
    given = parser.parse_args()
    if given.program is None:
        print("There is no `ollama` on this box: install it, or name it with --program.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), runtime="process", side_by_side=False, stop_grace_s=30)
        daemon.write(NAME, _document(given.program, given.model, given.models))
        daemon.start()
        try:
            return _steps(daemon)
        finally:
            daemon.end()


def _document(program: str, model: str, models: Path | None) -> str:
    profile = {
        "profile": NAME,
        "engine": "generic",
        "command": [program, "serve"],
        "model_id": model,
        "env": {"OLLAMA_MODELS": str(models.expanduser())} if models else {},
        "memory": {"weights_gib": 2, "kv_gib": 1, "overhead_gib": 1, "source": "a guess for a small model"},
        "server": {"kind": "ollama"},
    }
    return yaml_writer.dump(profile)


def _steps(daemon: Daemon) -> int:
    said = {"model": NAME, "messages": [{"role": "user", "content": "Count from one to five."}], "max_tokens": 16}
    began = time.monotonic()
    status, answer = daemon.call("POST", "/v1/chat/completions", said, timeout=600)
    print(f"load, proof and first answer: {time.monotonic() - began:.1f} s, status {status}")
    if status != 200:
        print(answer["error"]["message"])
        return 1
    print(f"usage: {answer.get('usage')}; version {daemon.state()['engines'][NAME]['version']}")
    status, answer = daemon.call("POST", "/v1/rerank", {"model": NAME, "query": "x", "documents": ["y"]})
    print(f"a route that it lacks: status {status}, {answer['error']['code']}")
    daemon.kill()
    daemon.start()
    engine = daemon.until(lambda state: state["engines"].get(NAME, {}).get("state") == "ready")["engines"][NAME]
    print(f"after SIGKILL of the daemon: adopted {engine['adopted']}")
    daemon.post("/api/stop", {"profile": NAME}, timeout=120)
    left = daemon.state()["engines"].get(NAME, {}).get("state")
    print(f"stopped: {left or 'absent'}")
    return 0 if engine["adopted"] and left in (None, "absent") else 1


if __name__ == "__main__":
    raise SystemExit(main())
