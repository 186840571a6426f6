"""Real engines: a vLLM in real podman, in an image made on the spot, and a llama-server; each with a tiny model."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import tiny_profiles  # noqa: E402 - tests/ is no package


@pytest.fixture(scope="session")
def engine() -> Path:
    """Where tests/real/setup.sh put the engine and the model."""
    return made_by("setup.sh", "vLLM", HERE / ".engine")


def made_by(script: str, engine: str, link: Path) -> Path:
    if not (link / ".done").exists():
        pytest.skip(f"no real {engine}: run tests/real/{script}")
    return link.resolve()


@pytest.fixture(scope="session")
def tiny_profile(engine: Path, hostfs: Any) -> str:
    """YAML of the profile `tiny` (plain) with the variant `ngram` (speculation by prompt lookup)."""
    return tiny_profiles.document(engine, hostfs)


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], tiny_profile: str) -> Iterator[Any]:
    daemon = new_daemon(runtime="podman", reserve_gib=1.0, stop_grace_s=20)
    daemon.write("tiny", tiny_profile)
    return daemon.start()


@pytest.fixture(scope="session")
def llama() -> Path:
    """Where tests/real/llama.sh put llama-server and its model."""
    return made_by("llama.sh", "llama-server", HERE / ".llama")


@pytest.fixture(scope="module")
def attached(llama: Path, ports: tuple[int, int]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts llama-server as somebody else would, at the first of this worker's ports: the last ones are other tests'."""
    with ExitStack() as stack:

        def start(*more: str) -> subprocess.Popen[str]:
            words = [
                llama / "bin/llama-server",
                "--model",
                llama / "tiny.gguf",
                "--host",
                "127.0.0.1",
                "--port",
                str(ports[0]),
            ]
            argv = [*words, "--threads", "1", *more]
            running = stack.enter_context(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True))
            assert any("listening on" in line for line in running.stderr)
            stack.enter_context(
                subprocess.Popen(["cat"], stdin=running.stderr, stdout=subprocess.DEVNULL)
            )  # its pipe never fills
            stack.callback(running.kill)  # first of all, as the others wait for its end
            return running

        yield start


@pytest.fixture(scope="module")
def llama_spark(new_daemon: Callable[..., Any], llama: Path) -> Iterator[Any]:
    """A daemon that starts llama-server as a plain process, one engine at a time."""
    daemon = new_daemon(runtime="process", stop_grace_s=20, side_by_side=False, min_dwell_s=0)
    daemon.write("small", tiny_profiles.llama_document(llama))
    template = daemon.root / "strict.jinja"
    template.write_text(tiny_profiles.STRICT)
    args = {"ctx-size": 16384, "parallel": 1, "threads": 1, "chat-template-file": str(template)}
    daemon.write("strict", tiny_profiles.llama_document(llama, "strict", args=args, variants={}))
    return daemon.start()
