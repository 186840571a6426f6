"""`sparkdash profiles import`."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
LINE = "podman run --gpus all --name mine img:1 vllm serve a/b\n"
DATA = Path(__file__).parents[1] / "data" / "imports"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "start.sh"
    path.write_text(LINE)
    return path


def typed_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_script_is_printed_as_a_profile(sparkdash: Run, script: Path) -> None:
    done = sparkdash("profiles", "import", str(script), "--name", "other")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("# Imported from start.sh")
    assert "profile: other\nengine: vllm\nimage: img:1\n" in done.out


def test_stdin_is_read(sparkdash: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    typed_in(monkeypatch, LINE.encode())
    done = sparkdash("profiles", "import", "-", "--json")
    assert done.json()["profiles"][0]["models"] == {"target": {"hf": "a/b"}}
    assert done.json()["problems"] == []


def test_a_profile_that_must_be_corrected_is_one_json_document(sparkdash: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    typed_in(monkeypatch, b"podman run -v /a:relative img vllm serve a/b")
    done = sparkdash("profiles", "import", "-", "--json")
    assert (done.code, done.err) == (2, "")
    assert len(done.json()["problems"]) == 1


def test_a_file_is_not_overwritten_unasked_and_a_folder_is_made(sparkdash: Run, script: Path, tmp_path: Path) -> None:
    written = tmp_path / "config" / "profiles" / "mine.yaml"
    argv = ("profiles", "import", str(script), "-o", f"{written.parent}/")
    assert sparkdash(*argv).code == 0
    written.write_text("mine\n")
    refused = sparkdash(*argv)
    assert (refused.code, "Files exist already" in refused.err) == (2, True)
    assert written.read_text() == "mine\n"
    assert sparkdash(*argv, "--force").code == 0
    assert "profile: mine" in written.read_text()


def test_several_profiles_need_a_folder(sparkdash: Run, tmp_path: Path) -> None:
    many = tmp_path / "many.sh"
    many.write_text(LINE * 2)
    done = sparkdash("profiles", "import", str(many), "-o", str(tmp_path / "one.yaml"))
    assert done.code == 2
    assert "2 profiles (mine, mine-2)" in done.err
    assert not (tmp_path / "one.yaml").exists()


def test_what_is_left_to_fix_is_told(sparkdash: Run) -> None:
    done = sparkdash("profiles", "import", str(DATA / "llama_swap.yaml"))
    assert done.code == 2
    assert "profile: coder" in done.out
    assert "image: is missing" in done.err


def test_input_that_cannot_be_read(sparkdash: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\x00")
    typed_in(monkeypatch, b" \n")
    asked = {
        "nowhere.sh": "No such file",
        str(tmp_path / "binary"): "not UTF-8",
        "-": "empty",
        str(tmp_path): "it is a folder, and not a file",
    }
    for source, why in asked.items():
        done = sparkdash("profiles", "import", source)
        assert (done.code, done.out) == (2, "")
        assert why in done.err


def test_import_names_flags_that_the_engine_does_not_have(sparkdash: Run, tmp_path: Path) -> None:
    line = tmp_path / "run.sh"
    line.write_text("podman run --device nvidia.com/gpu=all vllm/vllm-openai:v0.27.1 org/m --max-modle-len 4096\n")
    done = sparkdash("profiles", "import", str(line), "--name", "m")
    assert done.code == 0
    assert (
        "error: m: args.max-modle-len: vLLM 0.27 has no such flag. Did you mean max-model-len? [unknown-flag]"
    ) in done.err
    (told,) = sparkdash("profiles", "import", str(line), "--name", "m", "--json").json()["findings"]
    assert (told["code"], told["key"], told["file"]) == ("unknown-flag", "args.max-modle-len", None)
