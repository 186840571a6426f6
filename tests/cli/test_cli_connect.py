"""`sparkdash connect`, and what the dashboard's first screen does with it on this box."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fake_daemon import GIB, FakeDaemon, sample, summary

from sparkdash import paths
from sparkdash.cli.this_box import ThisBox
from sparkdash.connect.clients import RECIPES
from sparkdash.discovery import look
from sparkdash.domain.metric import Memory
from sparkdash.errors import ProfileError
from sparkdash.keyring import Scope, digest, keys_file, read_keys

Run = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPARKDASH_KEY", raising=False)
    return tmp_path / "home"


def test_the_list(sparkdash: Run) -> None:
    assert [line.split()[0] for line in sparkdash("connect", "--list").out.splitlines()[1:]] == list(RECIPES)
    assert [each["name"] for each in sparkdash("connect", "--list", "--json").json()] == list(RECIPES)
    assert sparkdash("connect").code == 2
    assert "opencode" in sparkdash("connect", "opncode").err


def test_without_a_daemon_its_settings_and_profiles_say(sparkdash: Run, nobody: None, home: Path) -> None:
    told = sparkdash("connect", "codex", "--model", "gpt-oss-120b", "--json")
    assert told.code == 0
    assert told.json()["model"] == "gpt-oss-120b"
    assert sparkdash("connect", "codex", "--json").json()["model"] == "gpt-oss-20b", "a setup begins with it"
    assert 'wire_api = "responses"' in told.json()["files"][0]["text"]
    assert "No daemon answers" in told.err
    assert not home.exists()
    unknown = sparkdash("connect", "codex", "--model", "gpt-oss-12b")
    assert unknown.code == 3
    assert "gpt-oss-120b" in unknown.err


@pytest.mark.parametrize("how", [(), ("--test",)])
def test_a_password_in_its_address_goes_into_no_file(sparkdash: Run, nobody: None, how: tuple[str, ...]) -> None:
    done = sparkdash("connect", "zed", "--url", "http://me:hunter2@spark.lan:8484", *how)
    assert done.code == 7
    assert "http://***@spark.lan:8484 contains a password" in " ".join(done.err.split())
    assert "hunter2" not in done.out + done.err


def test_write_shows_keeps_and_asks(sparkdash: Run, nobody: None, home: Path) -> None:
    place = home / ".config" / "opencode" / "opencode.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"theme": "mine"}')
    argv = ("connect", "opencode", "--model", "gpt-oss-120b", "--write")
    asked = sparkdash(*argv)
    assert asked.code == 1
    assert "--yes" in asked.err
    assert '+  "model": "sparkdash/gpt-oss-120b"' in asked.err
    assert place.read_text() == '{"theme": "mine"}'
    done = sparkdash(*argv, "--yes")
    assert done.code == 0
    assert json.loads(place.read_text())["theme"] == "mine"
    (backup,) = place.parent.glob("*.before-sparkdash-*")
    assert backup.read_text() == '{"theme": "mine"}'
    assert "Nothing to write" in sparkdash(*argv).out


def test_a_key_is_written_and_never_shown(
    sparkdash: Run, nobody: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKDASH_KEY", "sk-sparkdash-SECRET")
    done = sparkdash("connect", "claude-code", "--model", "gpt-oss-120b", "--write", "--yes")
    assert done.code == 0
    assert "SECRET" not in done.out + done.err
    assert "sk-sparkdash-SECRET" in (home / ".claude" / "sparkdash.json").read_text()


def test_a_client_gets_a_key_of_its_own_where_the_gateway_wants_one(
    sparkdash: Run, nobody: None, home: Path, tmp_path: Path
) -> None:
    argv = ("connect", "crush", "--model", "gpt-oss-120b")
    assert "key" not in sparkdash(*argv).err
    sparkdash("keys", "add", "laptop")
    assert "SPARKDASH_KEY=$(sparkdash keys add crush) sparkdash connect crush" in sparkdash(*argv).err
    assert "crush" not in sparkdash("keys").out
    assert sparkdash(*argv, "--write").code == 1  # nobody has agreed
    assert "crush" not in sparkdash("keys").out
    done = sparkdash("connect", "hermes", "--model", "gpt-oss-120b", "--write", "--yes")
    assert done.code == 0
    (secret,) = re.findall(r"Made the key hermes for it, shown only this once: (sk-\S+)", done.err)
    (key,) = [each for each in read_keys(keys_file()) if each.name == "hermes"]
    assert (key.sha256, key.scopes) == (digest(secret), (Scope.INFERENCE,))
    assert "${SPARKDASH_KEY}" in (home / ".hermes" / "config.yaml").read_text()


def test_what_others_cannot_write_is_said(sparkdash: Run, nobody: None, home: Path, tmp_path: Path) -> None:
    assert "prints what to enter" in sparkdash("connect", "jetbrains", "--write").err
    assert "--file" in sparkdash("connect", "librechat", "--write").err
    file = tmp_path / "librechat.yaml"
    file.write_text("version: 1.2.1  # mine\n")
    assert sparkdash("connect", "librechat", "--write", "--yes", "--file", str(file)).code == 0
    assert file.read_text().startswith("version: 1.2.1  # mine\nendpoints:\n")


class ModelList(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "org/Phi-4"}]}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: Run) -> Any:
    """A home of its own with aider installed, and a server on one port of the look."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    stand_in("aider", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelList)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(look, "PORTS", {server.server_port: "a server"})
    yield server
    server.shutdown()
    server.server_close()


async def test_a_look_names_the_servers_the_clients_and_what_was_attached_before(here: Any) -> None:
    box = ThisBox()
    found = await box.look(())
    (server,) = found.servers
    assert server.profiles == ("qwen3-8b", "phi-4")
    assert not server.attached
    assert found.clients == ("aider",)
    assert await box.attach(server) == ("qwen3-8b", "phi-4")
    assert "model_id: qwen3:8b" in (paths.config_dir() / "profiles" / "qwen3-8b.yaml").read_text()
    assert (await box.look(())).servers[0].attached


async def test_a_folder_that_cannot_be_written_is_told(here: Any) -> None:
    box = ThisBox()
    (server,) = (await box.look(())).servers
    paths.config_dir().mkdir(parents=True, exist_ok=True)
    (paths.config_dir() / "profiles").write_text("a file where the folder would be")
    with pytest.raises(ProfileError, match="cannot be written"):
        await box.attach(server)


@pytest.mark.parametrize(("client", "text"), [
    ("opencode", '{"provider": {"mine": {}}, /* mine */ "theme": "x"}\n'), ("zed", '\ufeff{"theme": "mine"}\n'),
])  # fmt: skip
def test_a_file_that_is_left_as_it_is_is_the_one_that_was_given(
    sparkdash: Run, nobody: None, home: Path, tmp_path: Path, client: str, text: str
) -> None:
    file = tmp_path / "my.jsonc"
    file.write_text(text)
    done = sparkdash("connect", client, "--model", "gpt-oss-120b", "--file", str(file), "--write", "--yes")
    assert done.code == 3
    assert f"{file} is left as it is" in " ".join(done.err.split())
    assert file.read_text() == text


def test_a_second_model_for_autocomplete_must_fit_beside_the_first(
    sparkdash: Run, daemon: FakeDaemon, home: Path
) -> None:
    memory = Memory(total=128 * GIB, available=100 * GIB, free=100 * GIB, reserve=10 * GIB)
    profiles = (summary("big"), summary("small", needs_bytes=20 * GIB), summary("other"))
    daemon.set(profiles=profiles, sample=sample(memory=memory))
    how = ("connect", "continue", "--model", "big", "--autocomplete")
    told = sparkdash(*how, "small", "--json")
    assert told.code == 0
    assert "X-Sparkdash-Priority: autocomplete" in told.json()["files"][0]["text"]
    refused = sparkdash(*how, "other", "--write", "--yes")
    assert (refused.code, "they do not fit into 128.0 GiB" in " ".join(refused.err.split())) == (3, True)
    assert not home.exists()
    assert sparkdash("connect", "codex", "--model", "big", "--autocomplete", "small").code == 2


@pytest.mark.parametrize(("named", "program", "told"), [
    (("codex",), "codex", 'arg: model_providers.sparkdash.base_url="{root}/v1"'),
    (("claude-code", "gpt-oss-120b"), "claude", "ANTHROPIC_BASE_URL={root}"),
])  # fmt: skip
def test_launch_starts_a_client_for_this_gateway_and_writes_nothing(
    daemon: FakeDaemon, home: Path, stand_in: Run, named: tuple[str, ...], program: str, told: str
) -> None:
    daemon.set(profiles=(summary("gpt-oss-120b"),))
    stand_in(program, 'for each in "$@"; do echo "arg: $each"; done\nenv\nexit 5')
    argv = [sys.executable, "-m", "sparkdash", "launch", *named, "--", "exec", "two words"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    assert told.format(root=daemon.url) in done.stdout
    assert "arg: exec\narg: two words" in done.stdout
    assert "uses gpt-oss-120b at" in done.stderr
    assert not home.exists()


def test_launch_points_a_client_at_a_copy_of_its_settings_that_has_the_gateway(
    daemon: FakeDaemon, home: Path, stand_in: Run
) -> None:
    daemon.set(profiles=(summary("gpt-oss-120b"),))
    mine = home / ".continue" / "config.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("name: Mine\n")
    stand_in("cn", '[ "$1" = --config ] && cat "$2"\nstat -c %a "$2"')
    argv = [sys.executable, "-m", "sparkdash", "launch", "continue"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "name: Mine\n" in done.stdout
    assert f"apiBase: {daemon.url}/v1" in done.stdout
    assert done.stdout.endswith("600\n")
    assert mine.read_text() == "name: Mine\n"


def test_launch_says_what_it_cannot_start(
    sparkdash: Run, nobody: None, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "connect zed" in sparkdash("launch", "zed").err
    assert "no `codex` on PATH" in sparkdash("launch", "codex").err
    assert "starting one" not in sparkdash("launch", "codex").err
