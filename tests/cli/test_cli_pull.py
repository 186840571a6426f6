"""`sparkdash pull`: the image and the weights, with a daemon and without, and `profiles list`, which tells what is here."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon
from fake_hub import FakeHub, Repo

from sparkdash.cli.output import fit_table
from sparkdash.domain.container import PullProgress
from sparkdash.domain.profile import EngineKind, ModelRef, Profile

Run = Callable[..., Any]

TOKEN = "hf_neverToBeSeen"
WEIGHTS = b"w" * 3_000_000
REPO = {"config.json": b"{}", "model.safetensors": WEIGHTS}
IMAGE = "reg/img:1"
GOOD = "profile: {name}\nengine: vllm\nimage: i\nmodels: {{target: {{hf: org/m}}}}\n"
HERE = PullProgress(image=IMAGE, detail="pulled", fraction=1.0, done=True)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub({"org/m": Repo(dict(REPO))}) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield made


@pytest.fixture
def profile_folder(own_folders: Path, hub: FakeHub) -> Path:
    config = f'shipped_profiles = false\nhf_home = "{own_folders}/hf"\n'
    (own_folders / "config" / "config.toml").write_text(config)
    folder = own_folders / "config" / "profiles"
    folder.mkdir()
    (folder / "m.yaml").write_text(
        f"profile: m\nengine: vllm\nimage: {IMAGE}\nmodels: {{target: {{hf: org/m}}, unused: {{hf: org/unused}}}}\n"
        "variants:\n  broken: {cannot_run: no head, nearest: m}\n"
        f"  drafted: {{models: {{drafter: {{path: {own_folders}/draft}}}}, args: {{speculative-config: {{"
        "model: '{drafter}', num_speculative_tokens: 1}}}\n"
    )
    (folder / "twin.yaml").write_text("profile: twin\nengine: sim\n")
    return folder


@pytest.mark.parametrize("url", ["http://😀.x", "http://[::1", "http://h:99999", "foo", "http://me:hunter2@h:x"])
@pytest.mark.parametrize("argv", [("pull", "m", "--weights-only"), ("profiles", "new", "org/absent")])
def test_a_hub_that_cannot_be_is_named(
    sparkdash: Run, profile_folder: Path, monkeypatch: pytest.MonkeyPatch, url: str, argv: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", url)
    done = sparkdash(*argv)
    assert done.code == 5
    assert "which is not a URL of a hub" in " ".join(done.err.split())
    assert "hunter2" not in done.err


@pytest.fixture
def podman(own_folders: Path, stand_in: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a podman on PATH that keeps its calls, and then does what the script says."""
    monkeypatch.setattr("sparkdash.host.podman.podman.LIST_S", 60)  # a person's patience is not what is tested
    return lambda script: stand_in("podman", f'echo "$@" >> {own_folders}/podman-calls\n{script}')


HAS_IT = f"""echo '[2147483648,["docker.io/{IMAGE}"],[]]'; exit 0"""
HAS_NOT = 'case "$1" in image) echo "Error: no such image" >&2; exit 125;; pull) echo layer 1;; esac'


def test_a_pull_shows_its_steps(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.whole["a"] = Profile(name="a", engine=EngineKind.VLLM, image=IMAGE)
    daemon.pulls = [PullProgress(image=IMAGE, detail="layer 1", fraction=0.4), HERE]
    done = sparkdash("pull", "a")
    assert (done.out, done.err) == (f"{IMAGE} is here.\n", "layer 1\npulled\n")
    steps = [json.loads(line) for line in sparkdash("pull", "a", "--json").out.splitlines()]
    assert [(step["fraction"], step["done"]) for step in steps] == [(0.4, False), (1.0, True)]
    assert [body for _, path, body in daemon.calls if path == "/api/release"] == [{"profile": "a"}] * 2


def test_a_pull_that_fails_ends_with_5(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.whole["a"] = Profile(name="a", engine=EngineKind.VLLM, image=IMAGE)
    daemon.pull_error = {"message": "manifest unknown", "code": "image_missing", "hint": "Check the name."}
    done = sparkdash("pull", "a")
    assert (done.code, done.err) == (5, "Error: manifest unknown\nHint: Check the name.\n")
    assert "/api/release" not in [path for _, path, _ in daemon.calls]


def test_weights_come_and_the_daemon_is_told(
    sparkdash: Run, profile_folder: Path, daemon: FakeDaemon, podman: Callable[[str], None]
) -> None:
    podman(HAS_IT)
    world = daemon.bus.snapshot
    daemon.set(daemon=world.daemon.model_copy(update={"host": socket.gethostname()}))
    daemon.whole["m"] = Profile(name="m", engine=EngineKind.VLLM, image=IMAGE, models={"target": ModelRef(hf="org/m")})
    done = sparkdash("pull", "m")
    assert done.out == f"{IMAGE} is here.\norg/m is here, 2.9 MiB.\n"
    assert "weights 100 % of 2.9 MiB" in done.err
    assert {path for _, path, _ in daemon.calls} == {"/api/profiles/m", "/api/state", "/api/release"}


def test_weights_of_another_box_are_not_fetched_here(sparkdash: Run, profile_folder: Path, daemon: FakeDaemon) -> None:
    daemon.whole["m"] = Profile(name="m", engine=EngineKind.VLLM, image=IMAGE, models={"target": ModelRef(hf="org/m")})
    daemon.pulls = [HERE]
    done = sparkdash("pull", "m")
    assert (done.code, "The daemon runs on spark-1, so the weights of m must be fetched there." in done.err) == (
        5,
        True,
    )
    assert sparkdash("pull", "m", "--image-only").out == f"{IMAGE} is here.\n"


def test_without_a_daemon_both_come(
    sparkdash: Run, profile_folder: Path, nobody: None, hub: FakeHub, podman: Callable[[str], None], own_folders: Path
) -> None:
    podman(HAS_NOT)
    done = sparkdash("pull", "m", "--json")
    steps = [json.loads(line) for line in done.out.splitlines()]
    assert steps[0] == {"image": IMAGE, "detail": "layer 1", "fraction": None, "done": False}
    assert steps[-1]["weights"] == ["org/m"]
    assert (steps[-1]["came_bytes"], steps[-1]["done"]) == (len(WEIGHTS) + 2, True)
    assert TOKEN not in done.out + done.err
    assert f"pull {IMAGE}" in (own_folders / "podman-calls").read_text()
    hub.asked.clear()
    assert sparkdash("pull", "m", "--weights-only").out == "org/m is here, 2.9 MiB.\n"
    assert hub.got("GET", "/cdn/") == []


@pytest.mark.parametrize(
    ("argv", "env"), [(("--offline",), {}), ((), {"HF_HUB_OFFLINE": "1"})], ids=["flag", "variable"]
)
def test_offline_tells_what_is_missing(
    sparkdash: Run, profile_folder: Path, nobody: None, hub: FakeHub, podman: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], env: dict[str, str],
) -> None:  # fmt: skip
    podman(HAS_NOT)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    done = sparkdash("pull", "m", *argv)
    assert done.code == 5
    assert done.out == (
        "needs    which      here\nimage    reg/img:1  missing\nweights  org/m      missing: not in the cache\n"
    )
    told = sparkdash("pull", "m", "--json", "--weights-only", *argv)
    assert told.json()["weights"] == [
        {"ref": "org/m", "here": False, "size": 0, "lacks": "not in the cache", "broken": False}
    ]
    assert hub.asked == []
    podman(HAS_IT)
    assert (done := sparkdash("pull", "m", "--image-only", *argv)).code == 0
    assert "2.0 GiB" in done.out


def test_a_path_that_is_not_there_is_told_last(
    sparkdash: Run, profile_folder: Path, nobody: None, own_folders: Path
) -> None:
    done = sparkdash("pull", "m/drafted", "--weights-only")
    assert (done.code, done.out) == (5, "org/m is here, 2.9 MiB.\n")
    assert f"{own_folders}/draft is incomplete and cannot be fetched: no such file" in done.err
    (own_folders / "draft").mkdir()
    (own_folders / "draft" / "model.safetensors").write_bytes(b"d" * 4096)
    assert sparkdash("pull", "m/drafted", "--weights-only").out.endswith("/draft is here, 4 KiB.\n")


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
@pytest.mark.parametrize("words", ["pull m --weights-only", "pull m --offline --weights-only", "profiles"])
def test_another_cache_than_the_librarys_is_named(
    sparkdash: Run, profile_folder: Path, nobody: None, own_folders: Path, monkeypatch: pytest.MonkeyPatch,
    variable: str, words: str,
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, "/big/hub")
    told = " ".join(sparkdash(*words.split()).err.split())
    assert f"{variable} is /big/hub, but sparkdash uses `hf_home` of config.toml: {own_folders}/hf." in told
    monkeypatch.setenv(variable, f"{own_folders}/hf" + ("/hub" if variable == "HF_HUB_CACHE" else ""))
    assert variable not in sparkdash(*words.split()).err


def test_weights_that_are_no_weights_are_not_told_to_start(
    sparkdash: Run, profile_folder: Path, nobody: None, own_folders: Path
) -> None:
    """A folder cloned without Git LFS."""
    (own_folders / "draft").mkdir()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n"
    (own_folders / "draft" / "model.safetensors").write_text(pointer)
    done = sparkdash("pull", "m/drafted", "--offline", "--weights-only")
    assert (done.code, "a Git LFS pointer, not the weights" in " ".join(done.out.split())) == (5, True)
    told = sparkdash("profiles")
    assert "not whole" in next(line for line in told.out.splitlines() if "drafted" in line)
    assert "a Git LFS pointer" in " ".join(told.err.split())


def test_a_repository_without_weights_is_told(sparkdash: Run, profile_folder: Path, nobody: None, hub: FakeHub) -> None:
    hub.repos["org/m"].files = {"config.json": b"{}"}
    done = sparkdash("pull", "m", "--weights-only")
    assert (done.code, "org/m was fetched but is incomplete: no weights." in done.err) == (5, True)


@pytest.mark.parametrize(("name", "told"), [
    ("twin", "There is nothing to fetch for twin: it is simulated."),
    ("m/broken", "m/broken cannot run: no head.\nHint: Pull m instead."),
    ("nosuch", "No profile or alias is called 'nosuch'."),
], ids=str)  # fmt: skip
def test_what_is_not_fetched(sparkdash: Run, profile_folder: Path, nobody: None, name: str, told: str) -> None:
    done = sparkdash("pull", name)
    assert (done.code, told in done.err) == (3, True)


def test_an_image_of_ones_own_is_not_asked_of_a_registry(
    sparkdash: Run, profile_folder: Path, nobody: None, podman: Callable[[str], None], own_folders: Path
) -> None:
    podman(HAS_NOT)
    own = "profile: own\nengine: vllm\nimage: localhost/own:1\nmodels: {target: {hf: org/m}}\n"
    (profile_folder / "m.yaml").write_text(own)
    done = sparkdash("pull", "own")
    assert (done.code, "say how with `build:` in the profile" in done.err) == (5, True)
    (profile_folder / "m.yaml").write_text(
        own + "build: {context: x, minutes: 30}\nnearest: own/public\nvariants: {public: {image: i}}\n"
    )
    done = sparkdash("pull", "own")
    assert done.code == 5
    assert "It must be built: `sparkdash build own`, about 30m00s." in done.err
    assert "own/public serves the same model from a published image: `sparkdash use own/public`." in done.err
    (profile_folder / "m.yaml").write_text(own + "build: {unavailable: its source is not public}\n")
    assert "It cannot be built: its source is not public." in sparkdash("pull", "own").err
    assert "pull" not in (own_folders / "podman-calls").read_text()


def test_ctrl_c_keeps_what_came(profile_folder: Path, nobody: None, hub: FakeHub) -> None:
    hub.silent_after = 1_000_000
    hub.repos["org/m"].files["extra.safetensors"] = b"x" * 2000
    script = str(Path(sys.executable).parent / "sparkdash")
    ours, theirs = pty.openpty()
    argv = [script, "pull", "m", "--weights-only"]
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True) as process:
        os.close(theirs)
        seen = _read_until(ours, b"weights    0 %")
        process.send_signal(signal.SIGINT)
        seen += _read_until(ours, b"resumes it.")
        assert process.wait(timeout=60) == 130
    os.close(ours)
    assert "░░░" in seen.decode(errors="replace")
    assert TOKEN.encode() not in seen
    hub.go.set()
    hub.silent_after = None
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "org/m is here, 2.9 MiB.\n"


def _read_until(terminal: int, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        seen += os.read(terminal, 4096)
    return seen


def test_the_list_tells_what_is_here(
    sparkdash: Run, profile_folder: Path, nobody: None, podman: Callable[[str], None], own_folders: Path
) -> None:
    podman(HAS_IT)
    sparkdash("pull", "m", "--weights-only")
    assert sparkdash("profiles").out == (
        "profile    engine  needs  tok/s  drafts    image  weights  state\n"
        "m          vllm        -      -  -       2.0 GiB  2.9 MiB  can start\n"
        "m/broken   vllm        -      -  -       2.0 GiB  2.9 MiB  cannot run\n"
        "m/drafted  vllm        -      -  -       2.0 GiB  missing  no weights\n"
        "twin       sim         -      -  -             -        -  can start\n"
    )
    assert len((own_folders / "podman-calls").read_text().splitlines()) == 1
    here = sparkdash("profiles", "--json").json()["here"]
    assert here["m"] == {
        "image": {"name": IMAGE, "here": True, "size": 2147483648},
        "weights": {"ref": "org/m", "here": True, "size": len(WEIGHTS) + 2, "lacks": None, "broken": False},
    }
    assert here["m/drafted"]["weights"]["lacks"] == f"{own_folders}/draft: no such file or folder"


def test_the_list_does_without_a_runtime_and_fits_80_columns(
    sparkdash: Run, profile_folder: Path, nobody: None, podman: Callable[[str], None]
) -> None:
    podman("exit 125")
    (profile_folder / "m.yaml").write_text(GOOD.format(name="a-name-of-forty-characters-in-all-is-long"))
    done = sparkdash("profiles")
    assert max(map(len, done.out.splitlines())) <= 80
    assert done.out.splitlines()[1].split()[-5:] == ["-", "to", "pull", "podman", "silent"]
    assert "drafts" not in done.out
    assert "Left out to fit 80 columns: drafts" in done.err


def test_one_very_long_name_costs_the_others_no_column() -> None:
    name = "a-name-that-says-every-flag-of-it-nvfp4-kv-fp8-mtp-2-eager-v3-final"
    rows = [(name, "vllm", "33 GiB", "off"), ("m", "sglang", "-", "ready")]
    lines, left_out = fit_table(("profile", "engine", "needs", "state"), rows, "<<><", ("engine",), 80)
    assert left_out == []
    assert lines == [
        "profile  engine   needs  state",
        name,
        "         vllm    33 GiB  off",
        "m        sglang       -  ready",
    ]
