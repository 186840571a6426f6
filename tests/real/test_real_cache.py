"""Real engines' weights in the page cache of this kernel: what they read leaves behind them, what stays mapped stays.

No root is needed, and none is used: who runs the tests owns the file.
"""

import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import big_gguf
import big_qwen
import pytest
import tiny_profiles
import yaml

from sparkdash.catalog import yaml12
from sparkdash.host.memory import page_cache

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]

MIB = 600
SHORT = 500.0
"""GiB of reserve that no box has: memory is short."""


@pytest.fixture(scope="module")
def weights() -> Iterator[Path]:
    """A model of some hundred MiB on a file system that can let go of pages."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    big_gguf.write(folder / "big.gguf", MIB)
    yield folder / "big.gguf"
    shutil.rmtree(folder)


@pytest.fixture
def cached(weights: Path) -> Iterator[Callable[[], int]]:
    """Bytes of it in memory, asked through one descriptor: opening it would be seen. Before: none."""
    with weights.open("rb") as opened:
        os.fsync(opened.fileno())
        if page_cache.forget_range(opened.fileno(), 0, weights.stat().st_size) is None:
            pytest.skip("this kernel does not count cached pages")

        def count() -> int:
            found = page_cache.cached_bytes(opened.fileno())
            assert found is not None
            return found

        assert count() == 0
        yield count


def load(new_daemon: Any, llama: Path, weights: Path, mode: str, reserve_gib: float) -> Any:
    """A daemon that has brought up llama-server with that file."""
    daemon = new_daemon(runtime="process", stop_grace_s=20, reserve_gib=reserve_gib, guard="off")
    document = tiny_profiles.llama_document(
        llama,
        "big",
        models={"target": {"path": str(weights)}},
        memory={},
        args={"ctx-size": 512, "parallel": 1, "load-mode": mode},
        variants={},
    )
    daemon.write("big", document)
    daemon.start()
    done = daemon.sparkdash("use", "big", timeout=200)
    assert done.returncode == 0, done.stderr
    return daemon


def told(daemon: Any) -> list[str]:
    return [one["text"] for one in daemon.state()["notices"] if one["code"] == "page_cache_dropped"]


def test_what_is_read_leaves_behind_the_reader(
    new_daemon: Any, llama: Path, weights: Path, cached: Callable[[], int]
) -> None:
    daemon = load(new_daemon, llama, weights, "none", SHORT)
    assert cached() < mmap.PAGESIZE * 1024
    assert any("cached weights of big were let go of while it loaded" in text for text in told(daemon))
    daemon.end()


def test_what_is_mapped_stays(new_daemon: Any, llama: Path, weights: Path, cached: Callable[[], int]) -> None:
    """The kernel keeps what a process uses, whoever asks."""
    daemon = load(new_daemon, llama, weights, "mmap", SHORT)
    assert cached() > 0.9 * weights.stat().st_size
    daemon.end()


def test_nothing_leaves_while_memory_is_plentiful(
    new_daemon: Any, llama: Path, weights: Path, cached: Callable[[], int]
) -> None:
    daemon = load(new_daemon, llama, weights, "none", 0.1)
    assert cached() > 0.9 * weights.stat().st_size
    assert told(daemon) == []
    daemon.end()


def test_each_shard_of_a_real_vllm_leaves_once_it_is_unmapped(new_daemon: Any, engine: Path, hostfs: Any) -> None:
    """In real podman, by its default loader; the last one too, and no root is needed for it."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    subprocess.run([engine / "venv/bin/python", big_qwen.__file__, engine / "tiny-qwen3", folder], check=True)
    document = yaml.safe_load(tiny_profiles.document(engine, hostfs, "shards"))
    document |= {"models": {"target": {"path": str(folder)}}, "memory": {}, "variants": {}}
    document["mounts"].append({"source": str(folder), "target": str(folder)})
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        opened = [stack.enter_context(file.open("rb")).fileno() for file in sorted(folder.glob("*.safetensors"))]
        assert len(opened) == big_qwen.SHARDS
        for file in opened:
            os.fsync(file)
            if page_cache.forget_range(file, 0, os.fstat(file).st_size) is None:
                pytest.skip("this kernel does not count cached pages")
        daemon = new_daemon(runtime="podman", stop_grace_s=20, reserve_gib=SHORT, guard="off", contiguity="off")
        daemon.write("shards", yaml12.dump(document))
        daemon.start()
        done = daemon.sparkdash("use", "shards", timeout=250)
        assert done.returncode == 0, done.stderr
        assert [page_cache.cached_bytes(file) for file in opened] == [0] * big_qwen.SHARDS
        assert any("cached weights of shards were let go of while it loaded" in text for text in told(daemon))
        daemon.end()


def test_the_next_model_is_read_ahead_while_the_one_before_it_answers(
    new_daemon: Any, llama: Path, weights: Path, cached: Callable[[], int]
) -> None:
    """Weights read while the old engine drained are not read from the disk again."""
    assert cached() == 0
    daemon = new_daemon(runtime="process", stop_grace_s=20, side_by_side=False, min_dwell_s=0, guard="off")
    daemon.write("small", tiny_profiles.llama_document(llama, args={"ctx-size": 16384, "parallel": 1}, variants={}))
    big = {"models": {"target": {"path": str(weights)}}, "args": {"ctx-size": 512}, "variants": {}}
    daemon.write("big", tiny_profiles.llama_document(llama, "big", **big))
    daemon.start()
    ask = {"model": "small", "messages": [{"role": "user", "content": "spark"}], "max_tokens": 1000, "ignore_eos": True}
    answering = Thread(target=daemon.post, args=("/v1/chat/completions", ask, 200))
    answering.start()
    daemon.until(lambda state: any(one["state"] == "prefill" for one in state["requests"].values()))
    assert daemon.sparkdash("use", "big", timeout=200).returncode == 0
    answering.join()
    state = daemon.state()
    (start,) = [swap["start"] for swap in state["swaps"] if swap["target"] == "big"]
    assert start["disk_bytes"] < weights.stat().st_size - 64 * 1024 * 1024
    assert any(one["code"] == "read_ahead" for one in state["notices"])
    daemon.end()
