"""Files that people write, and those that sparkdash keeps: read whole and bounded, and never waited for."""

import ast
import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash import keyring
from sparkdash.catalog.checkpoint.gguf import read_gguf_header
from sparkdash.catalog.checkpoint.safetensors import read_safetensors_header
from sparkdash.connect.client_setup import plan_change
from sparkdash.connect.recipe import ConfigFile, FileFormat
from sparkdash.errors import SparkdashError
from sparkdash.nodes.node_file import read_nodes
from sparkdash.paths import open_regular, read_small_file, read_small_text
from sparkdash.settings import load_settings, parse_toml

ROOT = Path(__file__).parents[2] / "sparkdash"
OF_THE_KERNEL = {
    "host/box.py", "host/evidence.py", "host/inotify.py", "host/memory/account.py", "host/memory/contiguity.py", "host/memory/wedge_signs.py",
    "host/processes/leftovers.py", "host/processes/proc.py", "sim/process.py",
    "doctor/nodes/remote_readings.py", "gateway/admission/access.py", "nodes/ssh/facts_script.py",
}  # fmt: skip
OF_THE_PACKAGE = {
    "bench/plan/texts.py", "bench/report/formats.py", "bench/report/layout.py", "engines/flag_table.py",
    "gateway/apis/pages.py", "nodes/programs.py", "web/server.py",
}  # fmt: skip
JUST_WRITTEN = {"host/memory/helper.py", "host/podman/image_build.py", "nodes/discover.py", "tui/orders.py"}


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path) -> None:
    """A named pipe blocks whoever opens it, a device may never end, and /proc/kmsg takes from the kernel's log."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (link := tmp_path / "link").symlink_to("/proc/self/maps")
    special = ((pipe, "a named pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder"), (link, "of the kernel"))
    for path, what in special:
        with pytest.raises(OSError, match=f"it is {what}, and not a file"):
            read_small_file(path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_a_pipe_that_takes_a_files_place_meanwhile_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe came between the look at the file and the opening."""
    os.mkfifo(pipe := tmp_path / "pipe")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", lambda _path: os.stat(__file__))  # noqa: PTH116 - Path's is the one replaced
        with pytest.raises(OSError, match="it is a named pipe, and not a file"):
            open_regular(pipe)


def test_a_file_is_read_as_far_as_it_is_small(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("é" * 10)
    assert read_small_text(file) == "é" * 10
    with pytest.raises(OSError, match=r"it is larger than 1e-05 MB"):
        read_small_file(file, 10)


@pytest.mark.parametrize("read", [
    keyring.read_keys, load_settings, read_nodes, read_gguf_header, lambda path: list(read_safetensors_header(path)),
    lambda path: plan_change(ConfigFile(str(path), FileFormat.JSON, {}), path),
], ids=["keys", "settings", "nodes", "gguf", "safetensors", "client"])  # fmt: skip
def test_a_pipe_in_place_of_a_file_is_an_error_that_names_it(read: Callable[[Path], Any], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SparkdashError, match=r"pipe.*it is a named pipe, and not a file"):
        read(pipe)


def test_modules_read_files_by_the_one_function() -> None:
    """Files of the kernel, of sparkdash itself, and those written a moment ago are read without."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".read_text", ".read_bytes")):
                found.add(str(path.relative_to(ROOT)))
    assert found <= OF_THE_KERNEL | OF_THE_PACKAGE | JUST_WRITTEN


@pytest.mark.parametrize("text", ["a = " + "[" * 9000, "a = " + "[" * 40 + "]" * 40, "a." * 40 + "a = 1"])
def test_toml_beyond_all_sense_is_a_wrong_value(text: str, tmp_path: Path) -> None:
    """A deep config.toml once ended the daemon with a RecursionError."""
    with pytest.raises(ValueError, match=r"nested|Expected|Unclosed|Invalid"):
        parse_toml(text)
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(SparkdashError, match=r"config\.toml cannot be read"):
        load_settings(tmp_path / "config.toml")


def _gguf(entries: int, rest: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, entries) + rest


@pytest.mark.parametrize(
    "head",
    [
        _gguf(1_000_000, b""),  # a million keys without a letter
        _gguf(1, struct.pack("<QIIQ", 0, 9, 8, 2**33)),  # an array of 2^33 empty strings
        _gguf(1, struct.pack("<Q", 2**36)),  # a key of 64 GiB
        _gguf(1, struct.pack("<QIQ", 0, 8, 2**36)),  # a text of 64 GiB
    ],
)
def test_a_sparse_gguf_header_is_malformed_at_once(head: bytes, tmp_path: Path) -> None:
    """A hole of 100 GiB costs its maker nothing."""
    file = tmp_path / "m.gguf"
    file.write_bytes(head)
    os.truncate(file, 100 * 2**30)
    began = time.monotonic()
    with pytest.raises(SparkdashError, match="malformed GGUF header"):
        read_gguf_header(file)
    assert time.monotonic() - began < 5


def test_a_deep_safetensors_header_is_unreadable(tmp_path: Path) -> None:
    text = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (tmp_path / "m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(SparkdashError, match="does not hold valid JSON"):
        list(read_safetensors_header(tmp_path / "m.safetensors"))


def test_a_clients_deep_or_multiplying_file_is_left_as_it_is(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000 + "]" * 100_000)
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ))  # fmt: skip
    for file, form in ((deep, FileFormat.JSON), (bomb, FileFormat.YAML)):
        with pytest.raises(SparkdashError, match="cannot be read"):
            plan_change(ConfigFile(str(file), form, {"sparkdash": json.loads("{}")}), file)
