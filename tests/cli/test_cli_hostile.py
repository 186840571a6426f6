"""Every command with hostile text in whatever comes from outside: it is shown, and never sent to the terminal."""

import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from fake_daemon import BIRTH, GIB, FakeDaemon, engine, sample, summary, swap
from pydantic import BaseModel

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.run import Arm, Mode
from sparkdash.cli import output
from sparkdash.cli.doctor import finding_lines as doctors_lines
from sparkdash.cli.main import app
from sparkdash.domain.container import ForeignContainer, PullProgress
from sparkdash.domain.engine import EngineState, Failure, Incident, Liveness, LivenessState, Parked, Repairs, RepairTime
from sparkdash.domain.event import Fact, Level, Measuring, Notice, SwapChanged
from sparkdash.domain.history import PastRequests
from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.domain.metric import Memory
from sparkdash.domain.node import Finding, Status
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan, SwapOutcome
from sparkdash.log import LOG
from sparkdash.units import one_line, printable

Run = Callable[..., Any]

EVIL = "\x1b]0;title\x07\x1b]8;;http://evil\x1b\\\x1b[2J\x9b31m\x08\x7f\u202e\u2066\r\U000e0041"
"""A title, a link, an erased screen, C1's colour, a rubbed out letter, reading directions turned, a line begun again,
a tag."""
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
SEEN = r"\u001b"
ERROR = {
    "message": f"It failed: {EVIL}", "code": "evil", "hint": f"Do {EVIL}", "phase": "load", "exit_code": 1,
    "log_tail": [f"last words {EVIL}"], "evidence": f"/tmp/{EVIL}",
}  # fmt: skip

FROM_THE_DAEMON = (
    "status", "status --json", "history --by incident --since 1970-01-02", "history --by request", "memory", "requests --all",
    "requests --replay 1 --on new --yes", "status --release all", "logs new", "why new", "use new", "use new --no-wait",
    "stop", "stop --all", "cancel", "pull new --image-only", "profiles", "doctor daemon", "connect open-webui",
    "ab new newer --yes", "bench run new --yes", "stop --daemon --no-wait",
)  # fmt: skip
UNTOLD = ("doctor daemon", "connect open-webui", "status --release all", "stop --daemon --no-wait")
"""Print none of those words, unless the daemon refuses."""
FROM_FILES = (
    "profiles show good", "profiles check", "profiles export good", "profiles import {folder}/start.sh",
    "setup --dry-run --only import --model {evil}", "profiles new {folder}/model", "use good --dry-run", "build good --dry-run",
    "bench show", "bench show last", "bench export last", "bench suites --captured mine", "bench resume --yes",
    "bench suites", "bench watch coder{evil}", "keys", "nodes add other --ssh user@127.0.0.1 --yes", "nodes bench",
    "doctor --node spark2", "nodes", "nodes remove other", "nodes copy good", "keys revoke nobody", "service status",
)  # fmt: skip
NOTHING_FROM_OUTSIDE = {"serve", "demo", "launch", "uninstall"}
"""Commands that print only our words or the owner's; the daemon's log has a test of its own below."""


def poisoned(value: Any) -> Any:
    """The same with EVIL at the end of every text, keys of mappings included; enums and figures stay."""
    if isinstance(value, Measuring):  # its own type refuses control characters
        return value.replace(run=f"{value.run}\u202e", arm=f"{value.arm}\u2066")
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: poisoned(each) for name, each in dict(value).items() if name != "kind"})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{each.name: poisoned(getattr(value, each.name)) for each in dataclasses.fields(value)}
        )
    if isinstance(value, dict):
        return {poisoned(key): poisoned(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(poisoned, value))
    return f"{value}{EVIL}" if type(value) is str and not value.startswith("http") else value


def evil_world(world: Snapshot) -> dict[str, Any]:
    failure = Failure(code="died", message="It died.", hint="Look.", log_tail=("last words",), evidence="/x")
    request = Request(
        id="1", client="curl", profile="new", route="chat", state=RequestState.STREAMING, started_at=BIRTH, error="e"
    )
    values = {
        "daemon": world.daemon,
        "engines": {
            "old": engine("old", version="1").replace(liveness=Liveness(state=LivenessState.STUCK, why="nothing", since=BIRTH)),
            "bad": engine("bad", EngineState.FAILED, failure=failure),
        },
        "incidents": (
            Incident(id="1", profile="old", fingerprint="f", began=BIRTH, named_at=BIRTH, why="nothing", note="gone", evidence="/x"),
        ),
        "repairs": Repairs(by_profile={"old": RepairTime(n=1, mean_s=1.0)}),
        "unadopted": ("lost",),
        "parked": {"bad": Parked(since=BIRTH, failures=2, failure=failure)},
        "profiles": (summary("new", cannot_run=None), summary("worse", cannot_run="too large", nearest="new")),
        "problems": ("x.yaml:3: wrong",),
        "requests": {"1": request},
        "recent": (request,),
        "notices": (Notice(level=Level.WARNING, code="held", text="A holder has the box.", at=BIRTH),),
        "measuring": Measuring(run="r", doing="measuring", arm="a", launch=1, launches=1, cell="c", done=0, cells=1, share=0.5, at=BIRTH),
        "swap": swap("new"),
        "sample": {"at": BIRTH, "memory": Memory(
            total=1, available=1, free=1, engines={"old": 1},
            strangers=(ForeignContainer(name="other", image="i", bytes=1, gpu=True, ports=()),),
        )},
    }  # fmt: skip
    found = {name: poisoned(value) for name, value in values.items() if name != "sample"}
    return found | {"sample": poisoned(sample(memory=values["sample"]["memory"]))}  # type: ignore[index]


@pytest.fixture
def evil(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon all of whose words are hostile, and whose swaps fail with hostile reasons."""
    daemon.set(**evil_world(daemon.bus.snapshot))
    daemon.past["requests"] = PastRequests(requests=daemon.bus.snapshot.recent)
    daemon.plans["new"] = poisoned(
        Plan(
            profile="new", evict=("old",), reasons={"old": "idle"}, beside=("small",), verdict="It fits.", held="Wait."
        )
    ).model_copy(update={"profile": "new"})
    daemon.whole = {name: Profile(name=name, engine=EngineKind.VLLM, image=f"img{EVIL}") for name in ("new", "newer")}
    daemon.set(profiles=(*daemon.bus.snapshot.profiles, summary("new"), summary("newer")))
    held = Holding(
        kind=Holder.CONTAINER, name="other", bytes=GIB, what="i", user="u", processes=1, remedy="docker stop"
    )
    daemon.memory = poisoned(
        MemoryAccount(at=BIRTH, total=GIB, available=0, gpu=GpuMemory.UNIFIED, holdings=(held,), notes=("Slow.",))
    )
    ended = daemon.bus.snapshot.recent[0]
    daemon.replayed = daemon.replayed.replace(plan=daemon.plans["new"], original=ended, answer=ended)
    daemon.log_lines = [f"engine says {EVIL}"]
    daemon.pulls = [PullProgress(image=f"img{EVIL}", detail=f"layer {EVIL}")]
    daemon.pull_error = ERROR
    daemon.errors["/api/lease"] = (500, ERROR)

    def fails(name: str) -> list[Fact]:
        began = swap(name)
        failure = Failure(code="died", message=f"It died {EVIL}", hint=EVIL, log_tail=(f"last words {EVIL}",))
        ended = began.model_copy(update={"ended_at": BIRTH + 90, "outcome": SwapOutcome.FAILED, "failure": failure})
        return [SwapChanged(swap=began), SwapChanged(swap=ended)]

    daemon.on_use = fails
    return daemon


@pytest.fixture
def files(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Profiles, a script, a model, keys, captured requests and a run of the bench, all with hostile words in them."""
    told = json.dumps(f"about {EVIL}", ensure_ascii=True)
    (own_folders / "config" / "config.toml").write_text("shipped_profiles = false\n")
    profiles = own_folders / "config" / "profiles"
    profiles.mkdir()
    good = (
        f"profile: good\nabout: {told}\nengine: vllm\nimage: i\nargs: {{x: {told}}}\nmodels: {{target: {{hf: a/b}}}}\n"
    )
    (profiles / "good.yaml").write_text(good)
    (profiles / "bad.yaml").write_text(f"profile: {told}\nengine: {told}\n{told}: 1\n")
    (own_folders / "start.sh").write_text(f"podman run --name '{EVIL}' img:1 vllm serve a/b --odd '{EVIL}'\n")
    (own_folders / "model").mkdir()
    (own_folders / "model" / "config.json").write_text(json.dumps({"model_type": EVIL, "architectures": [EVIL]}))
    (own_folders / "config" / "keys.json").write_text(f'{{"{EVIL}": 1}}')
    paths.state_dir().mkdir(exist_ok=True)
    (paths.state_dir() / "captured.jsonl").write_text(json.dumps({"path": EVIL, "body": EVIL}) + "\n" + EVIL)
    arms = [Arm(name=f"{name}{EVIL}", profile=f"coder{EVIL}") for name in "ab"]
    run_folder.create_run_folder(run_plan.new_run(suites.load_suite("smoke"), arms, Mode.SCREEN))
    monkeypatch.setenv("COLUMNS", "200")
    return own_folders


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of all commands, those of groups included."""
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*words, name))
    if not hasattr(command, "commands"):
        yield " ".join(words)


def test_no_command_is_forgotten() -> None:
    lines = [f"{line} " for line in (*FROM_THE_DAEMON, *FROM_FILES)]
    told = {
        name for name in commands(typer.main.get_command(app)) if any(line.startswith(f"{name} ") for line in lines)
    }
    assert set(commands(typer.main.get_command(app))) - told == NOTHING_FROM_OUTSIDE


@pytest.mark.parametrize("words", FROM_THE_DAEMON)
def test_what_a_daemon_says_is_shown_and_not_sent(sparkdash: Run, evil: FakeDaemon, words: str) -> None:
    done = sparkdash(*words.split())
    assert not STEERS.search(done.out + done.err)
    assert SEEN in done.out + done.err or words in UNTOLD


@pytest.mark.parametrize("words", FROM_THE_DAEMON)
def test_what_a_daemon_refuses_with_is_shown_and_not_sent(sparkdash: Run, daemon: FakeDaemon, words: str) -> None:
    class Everywhere(dict[str, Any]):
        def __contains__(self, _path: object) -> bool:
            return True

        def __getitem__(self, _path: str) -> Any:
            return 503, ERROR

    daemon.errors = Everywhere()
    done = sparkdash(*words.split())
    assert not STEERS.search(done.out + done.err)
    assert done.code != 0 or words == "doctor daemon"
    assert SEEN in done.out + done.err


@pytest.mark.parametrize("words", FROM_FILES)
def test_what_stands_in_files_is_shown_and_not_sent(sparkdash: Run, files: Path, nobody: None, words: str) -> None:
    done = sparkdash(*(word.format(folder=files, evil=EVIL) for word in words.split()))
    assert not STEERS.search(done.out + done.err)


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_sent_our_own_sequences_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    page, line = Terminal(), Terminal()
    output.make_console(page, 60).print(f"a{EVIL}b", style="bold", markup=False)
    output.LiveLine(line).draw(f"a{EVIL}b", "plain")
    shown = re.sub(r"^\x1b\[1m|\x1b\[0m$", "", page.getvalue(), flags=re.MULTILINE)
    assert page.getvalue() != shown
    assert not STEERS.search(shown + line.getvalue().removeprefix("\r\x1b[K"))
    assert SEEN in shown
    assert SEEN in line.getvalue()


def test_the_doctors_colours_are_its_own() -> None:
    told = "\n".join(
        doctors_lines(
            [Finding(name="podman", status=Status.FAIL, evidence=f"It said {EVIL}", fix=f"run {EVIL}")], columns=80
        )
    )
    assert not STEERS.search(told)
    assert SEEN in told


def test_the_daemons_log_is_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    LOG.warning(f"it said {EVIL}", why=f"{EVIL}\nforged", count=3)
    (line,) = capsys.readouterr().err.splitlines()
    assert not STEERS.search(line)
    assert line.count(SEEN) > 1


def test_a_json_document_stays_the_same_document() -> None:
    assert json.loads(printable(json.dumps(EVIL, ensure_ascii=False))) == EVIL
    assert printable(printable(EVIL)) == printable(EVIL)


@pytest.mark.parametrize("text", ["plain", "Qwen3-Coder (naïve) 漢字 — 👩‍💻 ±5 °C", "two\nlines\tand a tab"])
def test_honest_text_is_left_alone(text: str) -> None:
    assert printable(text) == text


def test_what_must_stay_on_its_line_does() -> None:
    assert one_line("a\nb\tc") == r"a\u000ab\u0009c"
    assert len(output.format_table(("head",), [("a\nb",)], "<")) == 2
