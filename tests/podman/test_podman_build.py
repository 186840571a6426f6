"""`sparkdash build` with a real podman, a real docker and a real git: built, labelled, refused, ended, resumed."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

pytestmark = pytest.mark.podman

WAITS = """\
FROM {base}
RUN echo one > /one
ARG WAIT=0
RUN echo two > /two; sleep $WAIT
"""


@dataclass
class Home:
    """A user's folders, with profiles whose images are built. Images of this home begin with its prefix."""

    folder: Path
    base: str
    prefix: str
    program: str

    def ask(self, *words: str) -> str:
        return subprocess.run([self.program, *words], capture_output=True, text=True, timeout=60, check=False).stdout

    def labels(self, image: str) -> dict[str, str]:
        return (
            json.loads(self.ask("image", "inspect", "--format", "{{json .Config.Labels}}", image).strip() or "{}") or {}
        )

    @property
    def environment(self) -> dict[str, str]:
        mine = {f"SPARKDASH_{name}_DIR": str(self.folder / name.lower()) for name in ("CONFIG", "STATE", "RUNTIME")}
        return {**os.environ, **mine, "SPARKDASH_PORT": "9", "COLUMNS": "200"}

    def image(self, name: str = "a") -> str:
        return f"{self.prefix}-{name}:1"

    def profile(self, name: str = "a", **build: Any) -> None:
        """Write a profile whose image is built so."""
        body = {"profile": name, "engine": "vllm", "image": self.image(name), "models": {"target": {"path": "/m"}}}
        body["args"] = {"gpu-memory-utilization": 0.5, "max-num-seqs": 8, "safetensors-load-strategy": "eager"}
        self.profiles.mkdir(parents=True, exist_ok=True)
        (self.profiles / f"{name}.yaml").write_text(yaml.safe_dump(body | {"build": build}))

    @property
    def profiles(self) -> Path:
        return self.folder / "config" / "profiles"

    def containerfile(self, text: str, folder: str = "img") -> None:
        path = self.profiles / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "Containerfile").write_text(text.format(base=self.base))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sparkdash", *words],
            env=self.environment, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sparkdash", *words],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture
def home(program: str, build_busybox: Callable[[str], str], tmp_path: Path) -> Iterator[Home]:
    """A home without shipped profiles; its images are removed at the end."""
    prefix = f"localhost/sparkdash-test-build-{uuid.uuid4().hex[:8]}"
    made = Home(tmp_path / "home", build_busybox(program), prefix, program)
    made.profiles.mkdir(parents=True)
    (made.folder / "config" / "config.toml").write_text(f'shipped_profiles = false\nruntime = "{program}"\n')
    yield made
    for image in made.ask("images", "--format", "{{.Repository}}:{{.Tag}}").split():
        if image.startswith(made.prefix):
            made.ask("rmi", "--force", image)


def _wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Read the progress until a line has these words; the test's own time limit ends it."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")


def _left(mark: str) -> list[str]:
    """Processes that have the mark in their command line."""
    return [
        " ".join(one.info["cmdline"]) for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or ())
    ]


def test_an_image_is_built_and_carries_where_it_is_from(home: Home) -> None:
    home.containerfile(WAITS)
    home.profile(context="img", minutes=1, disk_gib=1)
    done = home.run("build", "a", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    first, *_, last = map(json.loads, done.stdout.splitlines())
    (planned,) = first["builds"]
    assert (last["image"], last["done"], last["provenance"]["profile"]) == (home.image(), True, "a")
    labels = home.labels(home.image())
    assert labels["sparkdash.build.digest"] == planned["digest"]
    assert "sparkdash.build.version" in labels
    assert "RUN echo two" in Path(last["log"]).read_text()
    again = home.run("build", "a")  # what is up to date needs no yes
    assert (again.returncode, "is here and up to date" in again.stdout) == (0, True)


def test_nothing_is_built_unless_somebody_says_so(home: Home) -> None:
    home.containerfile(WAITS)
    home.profile(context="img")
    done = home.run("build", "a")
    assert (done.returncode, "--yes" in done.stderr) == (3, True)
    assert f"{home.program} build of Containerfile" in done.stdout
    dry = home.run("build", "a", "--dry-run", "--json")
    assert json.loads(dry.stdout)["builds"][0]["command"].startswith(f"{home.program} build --force-rm")
    assert home.labels(home.image()) == {}


@pytest.mark.full
def test_a_failing_step_is_shown_and_the_older_image_keeps_its_name(home: Home) -> None:
    home.containerfile(WAITS)
    home.profile(context="img")
    assert home.run("build", "a", "--yes").returncode == 0
    before = home.labels(home.image())
    home.containerfile("FROM {base}\nRUN echo this compiler is missing; exit 7\n")
    done = home.run("build", "a", "--yes")
    assert done.returncode == 4
    assert "failed at step 2" in done.stderr
    assert "this compiler is missing" in done.stderr
    assert "The whole log is" in done.stderr
    assert home.labels(home.image()) == before


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_build_leaves_nothing_running_and_goes_on_where_it_was(home: Home, how: signal.Signals) -> None:
    """Also when it is killed: the step of a killed podman would go on for ever."""
    mark = str(600_000_000 + uuid.uuid4().int % 100_000_000)
    home.containerfile(WAITS)
    home.profile(context="img", args={"WAIT": mark})
    process = home.begin("build", "a", "--yes")
    _wait_for(process, "sleep $WAIT")
    step = _child_of(process, mark)
    process.send_signal(how)
    process.communicate(timeout=30)
    psutil.wait_procs([step], timeout=30)
    assert _left(mark) == []
    home.profile(context="img", args={"WAIT": "0"})
    done = home.run("build", "a", "--yes")
    assert done.returncode == 0, done.stderr
    assert "RUN echo one > /one  (from before)" in done.stderr


def _child_of(process: subprocess.Popen[str], mark: str) -> psutil.Process:
    """Find the process of the step; it begins a moment after podman names it."""
    while process.poll() is None:
        for one in psutil.process_iter(["cmdline"]):
            if one.info["cmdline"] == ["sleep", mark]:
                return one
    raise AssertionError("it ended")


@pytest.mark.full
@pytest.mark.parametrize(("needs", "code", "told"), [
    ({"disk_gib": 90000}, 5, "needs 90000 GiB of disk"), ({"memory_gib": 90000}, 3, "sparkdash stop --all"),
])  # fmt: skip
def test_too_little_disk_or_memory_is_told_before_anything_begins(
    home: Home, needs: dict[str, int], code: int, told: str
) -> None:
    """A compiler beside a loaded model takes the box down."""
    home.containerfile(WAITS)
    home.profile(context="img", **needs)
    done = home.run("build", "a", "--yes")
    assert (done.returncode, told in done.stderr.replace(",", "").replace(".0", "")) == (code, True)
    assert home.labels(home.image()) == {}


@pytest.fixture
def repository(tmp_path: Path, home: Home) -> Iterator[Callable[[str], tuple[str, str]]]:
    """A git server; committing a Containerfile into its folder `docker` gives the address and the commit."""
    folder = tmp_path / "served" / "repository.git"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "docker").mkdir(parents=True)

    def git(*words: str) -> str:
        name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        return subprocess.check_output(["git", "-C", str(folder), *name, *words], text=True, timeout=30)

    def commit(text: str) -> tuple[str, str]:
        (folder / "docker" / "Dockerfile").write_text(text.format(base=home.base))
        git("add", ".")
        git("commit", "--quiet", "-m", "x")
        return f"git://127.0.0.1:{port}/repository", git("rev-parse", "HEAD").strip()

    git("init", "--quiet")
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    words = ["git", "daemon", "--export-all", "--listen=127.0.0.1", f"--port={port}", f"--base-path={folder.parent}"]
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL) as daemon:
        yield commit
        os.killpg(daemon.pid, signal.SIGKILL)


def test_a_repository_is_fetched_at_its_commit_and_labelled_with_it(
    home: Home, repository: Callable[[str], tuple[str, str]]
) -> None:
    repo, commit = repository("FROM {base}\nRUN echo here > /told\n")
    repository("FROM {base}\nRUN exit 1\n")  # what came after the commit is not built
    home.profile(repo=repo, commit=commit, context="docker", containerfile="Dockerfile")
    done = home.run("build", "a", "--yes")
    assert done.returncode == 0, done.stderr
    labels = home.labels(home.image())
    assert labels["org.opencontainers.image.revision"] == commit
    assert labels["org.opencontainers.image.source"] == repo
    assert "echo here" in home.ask("history", "--no-trunc", "--format", "{{.CreatedBy}}", home.image())


@pytest.mark.full
def test_a_source_that_cannot_be_fetched_is_told(home: Home, repository: Callable[[str], tuple[str, str]]) -> None:
    repo, _ = repository("FROM {base}\n")
    home.profile(repo=repo, commit="0" * 40, context="docker")
    done = home.run("build", "a", "--yes")
    assert (done.returncode, "not our ref" in done.stderr) == (4, True), done.stderr


@pytest.mark.full
def test_lists_say_what_can_be_built_what_is_built_and_what_is_older(home: Home) -> None:
    home.containerfile(WAITS)
    home.profile(context="img", minutes=2)
    home.profile("gone", unavailable="its source is not public")

    def states() -> dict[str, str]:
        listed = json.loads(home.run("profiles", "--json").stdout)
        return {name: one["state"] for name, one in listed["images"].items()}

    assert states() == {"a": "to_build", "gone": "not_to_be_had"}
    assert "It must be built: `sparkdash build a`, about 2m00s." in home.run("profiles", "show", "a").stdout
    assert "It cannot be built: its source is not public." in home.run("profiles", "show", "gone").stdout
    assert home.run("build", "gone", "--yes").returncode == 3
    assert home.run("build", "a", "--yes").returncode == 0
    assert states()["a"] == "built"
    assert "built here from img" in home.run("profiles", "show", "a").stdout
    home.containerfile(WAITS + "RUN echo three > /three\n")
    assert states()["a"] == "older"


@pytest.mark.full
def test_a_runtime_that_cannot_build_says_so(home: Home) -> None:
    """Plain processes have no images; docker replaces no FROM."""
    home.containerfile(WAITS)
    home.profile(context="img", base=home.base if home.program == "docker" else None)
    if home.program == "podman":
        (home.folder / "config" / "config.toml").write_text('shipped_profiles = false\nruntime = "process"\n')
    done = home.run("build", "a", "--yes")
    assert (done.returncode, 'Set runtime = "podman"' in done.stderr) == (3, True)
