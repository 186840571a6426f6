"""`sparkdash use`, `stop` and `cancel` to their ends."""

import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import BIRTH, GIB, FakeDaemon, engine, sample, summary, swap
from programs import Program

from sparkdash import paths
from sparkdash.api.control import ControlApi
from sparkdash.cli import local
from sparkdash.cli.status_page import SwapProgressLine, swap_steps
from sparkdash.client import launch
from sparkdash.domain.engine import EngineState, Failure, LoadProgress, Parked
from sparkdash.domain.event import EngineChanged, Fact, SampleTaken, SwapChanged
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.swap import Plan, SwapOutcome, SwapPhase
from sparkdash.errors import DaemonError

Run = Callable[..., Any]


def test_it_says_what_leaves_waits_and_tells_where(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(engines={"old": engine("old", in_flight=2)})
    daemon.plans["new"] = Plan(
        profile="new", evict=("old",), needs_bytes=79 * GIB, available_bytes=101 * GIB, fits=True, expected_s=220
    )
    done = sparkdash("use", "new")
    assert done.code == 0
    assert done.out == "new is ready at http://127.0.0.1:8484/v1 after 43s.\n"
    assert done.err.splitlines() == [
        "new replaces old, which serves 2 requests.",
        "It needs 79.0 GiB; 101.0 GiB will be available.",
        "It takes about 3m40s.",
        "drain",
        "load weights",
    ]


def test_a_profile_for_which_there_is_no_node_is_told_the_reason_alone(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.plans["two"] = Plan(profile="two", needs_bytes=98 * GIB, fits=False, expected_s=900)
    done = sparkdash("use", "two", "--no-wait")
    assert done.err == ""


@pytest.mark.parametrize(
    "why",
    [{"fits": False, "evict": ("other",)}, {"fits": True, "held": "The memory guard holds loads back."}],
    ids=["no room", "held"],
)
def test_what_will_not_start_is_not_said_to_run_beside_others_or_in_their_place(
    sparkdash: Run, daemon: FakeDaemon, why: Any
) -> None:
    daemon.plans["big"] = Plan(
        profile="big", beside=("old",), needs_bytes=98 * GIB, available_bytes=20 * GIB, expected_s=900, **why
    )
    done = sparkdash("use", "big", "--no-wait")
    assert "It needs 98.0 GiB" in done.err
    assert not [word for word in ("beside", "takes about", "replaces") if word in done.err]


def test_an_error_of_the_profile_s_file_is_told_before_the_load(
    sparkdash: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = paths.config_dir() / "profiles"
    folder.mkdir()
    text = "profile: new\nengine: vllm\nengine_version: '0.32'\nimage: docker.io/vllm/vllm-openai:v0.32.0\n"
    text += "models: {target: {hf: a/b}}\nargs: {gpu-memory-utilization: 80, max-num-seqs: 4}\n"
    (folder / "new.yaml").write_text(text)
    monkeypatch.setattr(local, "on_this_box", lambda world: True)
    done = sparkdash("use", "new")
    assert done.code == 0
    (warning,) = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert "new.yaml:6" in warning
    assert "gpu-memory-utilization" in warning
    for words in (("use", "new", "--dry-run"), ("profiles", "export", "new")):
        assert warning in sparkdash(*words).err.splitlines()


@pytest.mark.parametrize("words", ["use gpt-oss-120b --dry-run", "profiles export gpt-oss-120b", "use gpt-oss-120b"])
def test_a_broken_file_in_whose_place_the_shipped_profile_stands_is_named(
    sparkdash: Run, daemon: FakeDaemon, words: str
) -> None:
    file = paths.config_dir() / "profiles" / "gpt-oss-120b.yaml"
    file.parent.mkdir()
    file.write_text("profile: gpt-oss-120b\nengine: vllmm\n")
    found = local.configured_catalog()
    daemon.whole["gpt-oss-120b"] = found.find("gpt-oss-120b")
    daemon.set(problems=tuple(map(str, found.problems)))
    (warning,) = [line for line in sparkdash(*words.split()).err.splitlines() if line.startswith("warning: ")]
    assert f"{file}:2: engine" in warning
    assert "gpt-oss-120b is taken from" in warning


def test_a_value_that_is_no_number_is_told_in_the_words_of_the_settings(sparkdash: Run, daemon: FakeDaemon) -> None:
    told = {words: sparkdash(*words.split()) for words in ("serve --port banana", "serve --port 70000")}
    assert {done.code for done in told.values()} == {2}
    assert "Invalid value for '--port': must be a whole number, not 'banana'" in told["serve --port banana"].err
    assert "Invalid value for '--port': must be at most 65535, not '70000'" in told["serve --port 70000"].err


def test_json_holds_plan_engine_and_url(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(engines={"old": engine("old")})
    told = sparkdash("use", "new", "--json", "--yes").json()
    assert (told["profile"], told["ready"], told["plan"]["evict"]) == ("new", True, ["old"])
    assert (told["engine"]["state"], told["url"]) == ("ready", "http://127.0.0.1:8484/v1")


def test_one_that_runs_already_says_so_and_no_more(sparkdash: Run, daemon: FakeDaemon) -> None:
    """Need and load time are no news of a profile that runs."""
    daemon.set(engines={"a": engine("a")})
    daemon.on_use = lambda name: []
    assert sparkdash("use", "a-alias").out == "a is ready at http://127.0.0.1:8484/v1.\n"
    daemon.set(engines={"a": engine("a", ready_at=BIRTH)})
    daemon.plans["a"] = Plan(profile="a", needs_bytes=79 * GIB, available_bytes=1 * GIB, fits=True, expected_s=0.0)
    done = sparkdash("use", "a")
    assert done.out.startswith("a is running already, ready for ")
    assert done.err == ""


def test_one_that_was_edited_is_waited_for_anew(sparkdash: Run, daemon: FakeDaemon) -> None:
    """The engine that runs still answers when the wish is taken: it is not the one that is wished for."""
    daemon.set(engines={"a": engine("a", fingerprint="older")})
    daemon.plans["a"] = Plan(profile="a", evict=("a",), reasons={"a": "it is started again from its newer file"})
    leaves = EngineChanged(engine=engine("a", EngineState.STOPPING, fingerprint="older"))
    daemon.on_use = lambda name: [leaves, *daemon.comes_up(name)]
    done = sparkdash("use", "a", "--yes")
    assert "a replaces itself.\n  a: it is started again from its newer file.\n" in done.err
    assert done.out.endswith("after 43s.\n"), "it is the new one"


@pytest.mark.parametrize(
    ("argv", "told"), [(("use", ""), "PROFILE"), (("use", "auto"), "PROFILE"), (("demo",), "--headless")]
)
def test_no_profile_and_auto_and_a_demo_without_a_terminal_are_refused(
    sparkdash: Run, daemon: FakeDaemon, argv: tuple[str, ...], told: str
) -> None:
    done = sparkdash(*argv)
    assert done.code == 2
    assert told in done.err


def test_stopping_what_does_not_run_claims_nothing(sparkdash: Run, daemon: FakeDaemon) -> None:
    assert sparkdash("stop").out == "No engine is running.\n"
    daemon.set(engines={"a": engine("a")})
    assert sparkdash("stop", "new").out == "new is not running.\n"
    assert sparkdash("stop", "new", "--json").json()["stopped"] == []


def test_no_wait_returns_before_the_swap(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(engines={"old": engine("old")})
    daemon.on_use = lambda name: []
    assert "new is starting, replacing old." in sparkdash("use", "new", "--no-wait").out
    told = sparkdash("use", "new", "--no-wait", "--json").json()
    assert (told["ready"], told["plan"]["evict"]) == (False, ["old"])


def test_a_failed_start_ends_with_its_reason_and_last_lines(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.on_use = daemon.breaks
    done = sparkdash("use", "new")
    assert done.code == 4
    assert done.out == ""
    assert done.err.endswith("""\
Error: new did not come up: CUDA out of memory.
last log lines:
  loading weights
  torch.OutOfMemoryError: CUDA out of memory
evidence kept in:
  /state/incidents/1
Hint: Lower gpu-memory-utilization.
""")
    error = sparkdash("use", "new", "--json").json()["error"]
    assert (error["code"], error["phase"], error["exit_code"]) == ("out_of_memory", "load", 1)
    assert error["evidence"] == "/state/incidents/1"


def test_what_failed_before_is_not_ours(sparkdash: Run, daemon: FakeDaemon) -> None:
    """Neither a swap nor an engine; something else is told before the swap begins."""
    past = swap("new", id="past", ended_at=BIRTH, outcome=SwapOutcome.FAILED)
    daemon.set(swaps=(past,), engines={"new": engine("new", EngineState.FAILED, since=BIRTH - 100)})
    daemon.on_use = lambda name: [EngineChanged(engine=engine("other")), *daemon.comes_up(name)]
    assert sparkdash("use", "new").code == 0


BEGAN = swap("new")
CANCELLED = BEGAN.model_copy(update={"ended_at": BIRTH + 90, "outcome": SwapOutcome.CANCELLED})
DEAD = engine("new", EngineState.FAILED, since=BIRTH + 500)


@pytest.mark.parametrize(
    ("facts", "code", "told"),
    [
        ([SwapChanged(swap=BEGAN), SwapChanged(swap=CANCELLED)], 3, "Error: The swap to new was cancelled."),
        ([EngineChanged(engine=DEAD)], 4, "new did not come up."),
    ],
    ids=["cancelled", "died"],
)
def test_a_load_that_ends_otherwise_ends_the_wait(
    sparkdash: Run, daemon: FakeDaemon, facts: list[Fact], code: int, told: str
) -> None:
    daemon.on_use = lambda name: facts
    done = sparkdash("use", "new")
    assert (done.code, told in done.err) == (code, True)


def test_it_waits_behind_another_swap(sparkdash: Run, daemon: FakeDaemon) -> None:
    other = swap("other", SwapPhase.LOAD)
    daemon.set(swap=other)
    over = SwapChanged(swap=other.model_copy(update={"ended_at": BIRTH + 80, "outcome": SwapOutcome.FAILED}))
    daemon.on_use = lambda name: [over, *daemon.comes_up(name)]
    done = sparkdash("use", "new")
    assert done.code == 0
    assert "new waits for the swap to other\n" in done.err


def test_a_swap_that_nobody_does_is_given_up(sparkdash: Run, daemon: FakeDaemon) -> None:
    """A daemon that forgot must not hang a script: by its own clock nothing moved for half a minute."""
    daemon.on_use = lambda name: [SampleTaken(sample=sample()) for _ in range(40)]
    done = sparkdash("use", "new")
    assert done.code == 3
    assert "Nothing has moved for 30 s" in done.err


def test_a_daemon_that_goes_away_ends_the_wait(sparkdash: Run, daemon: FakeDaemon) -> None:
    def goes(name: str) -> list[Fact]:
        daemon.be_gone_soon()
        return [SwapChanged(swap=swap(name))]

    daemon.on_use = goes
    done = sparkdash("use", "new")
    assert (done.code, "The daemon went away." in done.err) == (7, True)


def test_the_line_of_phases_marks_the_present_one() -> None:
    now = swap("a", SwapPhase.LOAD, progress=LoadProgress(stage="weights", fraction=0.63))
    now = now.model_copy(update={"fraction": 0.38, "eta_s": 110.0, "eta_at": BIRTH + 93})
    assert swap_steps(now, BIRTH + 103) == (
        "drain stop reclaim preflight create [load weights 63 %] warm  38 % in 43s, about 1m40s left"
    )
    still = now.model_copy(update={"still_since": BIRTH + 60})
    assert swap_steps(still, BIRTH + 190) == (
        "drain stop reclaim preflight create [load weights 63 %] warm  38 % in 2m10s, stalled: no progress for 2m10s"
    )
    assert swap_steps(swap("a"), BIRTH + 61) == "[drain] stop reclaim preflight create load warm  1s, first load here"


def test_what_a_stop_waits_for_takes_the_place_of_the_other_steps(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    now = swap(None, waits_for="2 requests of a", until=BIRTH + 100)
    assert swap_steps(now, BIRTH + 80) == "drain  waits for 2 requests of a, cut in 20s  20s"
    shown, world = SwapProgressLine("a"), daemon.bus.snapshot.replace(at=BIRTH + 80)
    for seen in (now, now.replace(waits_for="1 request of a"), now.replace(phase=SwapPhase.STOP, waits_for=None)):
        shown.show(world.replace(swap=seen))
    assert capsys.readouterr().err == "drain: waits for 2 requests of a, cut in 20s\nstop\n"


@pytest.mark.parametrize(("argv", "asked"), [
    ((), "a"), (("a",), "a"), (("a-alias",), "a"), (("--all",), None),
], ids=str)  # fmt: skip
def test_stop_waits_until_the_engine_has_gone(sparkdash: Run, daemon: FakeDaemon, argv: Any, asked: Any) -> None:
    daemon.set(engines={"a": engine("a")}, profiles=(summary("a"),))
    done = sparkdash("stop", *argv)
    assert (done.code, done.out) == (0, "a has stopped.\n")
    assert ("POST", "/api/stop", {"profile": asked}) in daemon.calls


def test_stop_asks_which_when_several_run(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(engines={"a": engine("a"), "b": engine("b")})
    done = sparkdash("stop")
    assert done.code == 3
    assert "2 engines run: a, b." in done.err
    assert not [call for call in daemon.calls if call[0] == "POST"]
    assert sparkdash("stop", "--all", "--json").json() == {"stopped": ["a", "b"], "left_running": [], "waited": True}


def test_stop_does_not_say_that_it_stopped_what_it_cannot(sparkdash: Run, daemon: FakeDaemon) -> None:
    studio = engine("studio").replace(kind=EngineKind.OPENAI, url="http://127.0.0.1:1234")
    daemon.set(engines={"a": engine("a"), "studio": studio})
    goes_on = (
        "studio is no longer used. The server at http://127.0.0.1:1234 keeps running: sparkdash did not start it.\n"
    )
    assert sparkdash("stop", "studio").out == goes_on
    daemon.set(engines={"a": engine("a"), "studio": studio})
    assert sparkdash("stop", "--all").out == f"a has stopped.\n{goes_on}"
    daemon.set(engines={"a": engine("a"), "studio": studio})
    told = sparkdash("stop", "--all", "--json").json()
    assert told == {"stopped": ["a"], "left_running": ["studio"], "waited": True}


def test_no_wait_stops_without_waiting(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(engines={"a": engine("a")})
    daemon.carried_out.clear()
    assert sparkdash("stop", "--no-wait").out == "a is stopping.\n"
    assert ("POST", "/api/stop", {"profile": "a", "wait": False}) in daemon.calls


@pytest.mark.parametrize(("words", "said"), [("stop", "a has stopped.\n"), ("cancel", "Cancelled the swap to a.\n")])
def test_an_order_is_waited_for_as_long_as_it_takes(daemon: FakeDaemon, words: str, said: str) -> None:
    """The daemon answers once a long drain is over; until then the command shows where it is."""
    under_way = swap("a" if words == "cancel" else None)
    daemon.set(engines={"a": engine("a")}, swap=under_way)
    daemon.carried_out.clear()
    with Program(["-m", "sparkdash", words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "drain\n"
        daemon.publish(SwapChanged(swap=under_way.model_copy(update={"phase": SwapPhase.STOP})))
        assert process.stderr.readline() == "stop\n"
        daemon.carry_out()
        assert process.communicate(timeout=20) == (said, "")
    assert process.returncode == 0


def test_no_order_that_is_answered_when_it_is_done_has_a_time_limit() -> None:
    """A drain of 120 s and a grace of 30 s are longer than any plain call may take."""
    assert ControlApi.stop.silence_s is ControlApi.cancel.silence_s is None


def test_a_daemon_that_goes_away_ends_the_wait_for_a_stop(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(engines={"a": engine("a")})
    daemon.carried_out.clear()
    daemon.be_gone_soon_after_a_listener()
    done = sparkdash("stop")
    assert (done.code, "out of memory" in done.err) == (7, False)


def test_an_end_that_takes_long_shows_what_is_stopped(daemon: FakeDaemon) -> None:
    daemon.set(engines={"a": engine("a")}, swap=swap(None))
    daemon.ends = False
    words = ["-m", "sparkdash", "stop", "--daemon", "--all"]
    with Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "drain\n"
        daemon.be_gone()
        assert process.communicate(timeout=20) == ("The daemon has ended.\n", "")


@pytest.mark.parametrize(("argv", "engines", "kept"), [((), "keep", ["a"]), (("--all",), "stop", [])], ids=str)
def test_stopping_the_daemon_keeps_the_engines_unless_told(
    sparkdash: Run, daemon: FakeDaemon, argv: tuple[str, ...], engines: str, kept: list[str]
) -> None:
    daemon.set(engines={"a": engine("a")})
    done = sparkdash("stop", "--daemon", *argv, "--json")
    assert done.json() == {"daemon": "stopped", "engines_kept": kept}
    assert ("POST", "/api/shutdown", {"engines": engines}) in daemon.calls


def test_a_load_that_ends_with_the_daemon_is_not_called_running(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(engines={"a": engine("a"), "b": engine("b", EngineState.LOADING)}, swap=swap("b"))
    done = sparkdash("stop", "--daemon")
    assert done.out == "The daemon has ended.\nStill running: a.\nThe load of b was cancelled.\n"


def test_cancel_names_what_it_cancelled(sparkdash: Run, daemon: FakeDaemon) -> None:
    assert sparkdash("cancel").out == "No swap is under way.\n"
    daemon.set(swap=swap("b"))
    assert sparkdash("cancel").out == "Cancelled the swap to b.\n"
    assert sparkdash("cancel", "--json").json()["cancelled"]["target"] == "b"


def test_release_shows_what_is_parked_and_lets_it_go(sparkdash: Run, daemon: FakeDaemon) -> None:
    assert sparkdash("status", "--release", "all").out == "No profile is parked.\n"
    parked = Parked(since=BIRTH, failures=2, failure=Failure(code="out_of_memory", message="b ran out of memory."))
    daemon.set(parked={"b": parked}, profiles=(summary("b", serves=("bee",)), summary("c")))
    assert "b: b ran out of memory." in sparkdash("status").out
    assert sparkdash("status", "--release", "bee").out == "Released: b.\n"
    assert sparkdash("status", "--release", "c").out == "c was not parked.\n"
    assert sparkdash("status", "--release", "all", "--json").json()["released"] == ["b"]
    assert [body["profile"] for _, path, body in daemon.calls if path == "/api/release"] == [None, "b", "c", None]
    assert "parked: out_of_memory" in sparkdash("profiles").out


@pytest.mark.parametrize(
    ("words", "said"),
    [(("use", "new"), "the swap continues. `sparkdash cancel` cancels it."), (("stop",), "the engine keeps stopping.")],
    ids=["use", "stop"],
)
def test_ctrl_c_stops_the_waiting_and_not_the_swap(daemon: FakeDaemon, words: tuple[str, ...], said: str) -> None:
    daemon.on_use = lambda name: [SwapChanged(swap=swap(name))]
    if words == ("stop",):
        daemon.set(engines={"a": engine("a")}, swap=swap(None))
        daemon.carried_out.clear()
    command = ["-m", "sparkdash", *words]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "drain\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", f"No longer waiting; {said}\n")
    assert not any(path == "/api/cancel" for _, path, _ in daemon.calls)


def test_it_starts_the_daemon_that_is_missing_and_says_so_before(
    sparkdash: Run, nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> None:
        raise DaemonError("The daemon ended at once, with status 1.")

    monkeypatch.setattr(launch, "_start", start)
    done = sparkdash("use", "gpt-oss-120b")
    assert done.code == 7
    assert done.err.startswith(f"No daemon runs: starting one in the background; its log: {paths.daemon_log()}\n")


def test_a_name_for_several_is_told_with_what_it_means(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(profiles=(summary("new"),))
    daemon.plans["coder"] = Plan(profile="new", fits=True, expected_s=220)
    done = sparkdash("use", "coder")
    assert done.out.startswith("new is ready")
    assert done.err.splitlines()[0] == "coder means new now."


SECOND = '[spark2]\nssh = "two@10.0.0.2"\nhost_key = "ssh-ed25519 AAAA"\naddress = "192.168.100.11"\n'


@pytest.mark.usefixtures("own_folders")
def test_a_dry_run_prints_each_nodes_command_under_its_name(sparkdash: Run) -> None:
    done = sparkdash("use", "qwen3-235b/multi-node", "--dry-run")
    heads = [line for line in done.out.splitlines() if line.startswith("# ")]
    assert heads == ["# on this box", "# on SECOND_NODE"]
    commands = [shlex.split(part.replace("\\\n", "")) for part in done.out.split("# on ")[1:]]
    assert [command[command.index("--node-rank") + 1] for command in commands] == ["0", "1"]
    assert "NCCL_SOCKET_IFNAME=INTERFACE_OF_local" in commands[0]
    assert "Words such as ADDRESS_OF_" in done.err


def test_a_dry_run_names_the_node_that_was_added(sparkdash: Run, own_folders: Path) -> None:
    file = own_folders / "config" / "nodes.toml"
    file.write_text(SECOND)
    file.chmod(0o600)
    planned = sparkdash("use", "qwen3-235b", "--dry-run", "--json").json()
    assert [one["node"] for one in planned["nodes"]] == ["local", "spark2"]
    assert planned["nodes"][0]["argv"] == planned["argv"]
    assert "VLLM_HOST_IP=192.168.100.11" in planned["nodes"][1]["argv"]


@pytest.mark.usefixtures("own_folders")
def test_no_export_says_that_a_profile_needs_two_nodes(sparkdash: Run) -> None:
    refused = sparkdash("profiles", "export", "qwen3-235b", "--as", "quadlet")
    assert refused.code != 0
    assert "sparkdash use qwen3-235b --dry-run" in refused.err


BROKEN = "/p/new.yaml:3: args: unknown key 'agrs'. Did you mean args?"


@pytest.mark.parametrize(("problem", "told"), [(BROKEN, True), ("/p/newer.yaml:3: args: unknown key.", False)])
@pytest.mark.parametrize("command", ["use", "replay"])
def test_a_profile_whose_file_is_broken_now_says_that_its_last_good_version_starts(
    sparkdash: Run, daemon: FakeDaemon, problem: str, command: str, *, told: bool
) -> None:
    daemon.whole["new"] = Profile(name="new", engine=EngineKind.SIM, source="/p/new.yaml:1")
    daemon.set(problems=(problem,))
    daemon.replayed = daemon.replayed.replace(profile="new", plan=Plan(profile="new", fits=True, expected_s=60.0))
    done = sparkdash("use", "new") if command == "use" else sparkdash("requests", "--replay", "1", "--on", "new")
    assert done.code == (0 if command == "use" else 1)  # nothing answered the replay
    assert (BROKEN in done.err, "last version of this file that was correct" in done.err) == (told, told)
