"""States of the other pages and of the dialogs above them."""

from typing import Any

from screen_shots import State
from states_serving import LONG, WIDE, at_work, long_names, serving
from states_trouble import examined, measuring, parked

from sparkdash.api.answers import BenchPlan, PlannedArm, Setting, SettingList, SuiteLine
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.run import Arm, CellKey
from sparkdash.client.address import Address
from sparkdash.domain.event import Level
from sparkdash.domain.history import (
    MarkKind,
    PastRequests,
    Quantiles,
    TimelineMark,
    UsageReport,
    UsageTotals,
    match_answers,
)
from sparkdash.domain.images import Inventory, Item, Stock
from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.domain.request import RequestState
from sparkdash.units import GIB
from tests.bench.conftest import Rehearsal


class Commands:
    """The box's own commands: documents as the real ones print them."""

    async def dry_run(self, profile: str) -> dict[str, Any]:
        argv = ["podman", "run", "-d", "--name", f"sparkdash-{profile}", "--network", "host", "--device", "nvidia.com/gpu=all",
                "nvcr.io/nvidia/vllm:26.04-py3", "--max-model-len", "131072", "--speculative-config",
                '{"method":"eagle3","model":"/models/a-quite-long-name-of-a-draft-model-that-goes-on","num_speculative_tokens":3}']  # fmt: skip
        return {"profile": profile, "argv": argv, "nodes": []}


def on_this_box(app: Any, daemon: Any) -> None:
    app.orders.commands = Commands()
    daemon.address = Address("http://localhost", "/run/sparkdash.sock")


def past(box: Any, ident: str, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "state": RequestState.DONE, "started_at": box.now - 100, "granted_at": box.now - 40, "finished_at": box.now - 30,
        "ttft_s": 4.0, "status": 200, "finish_reason": "stop", "prompt_tokens": 1000, "cached_tokens": 900,
        "completion_tokens": 320, "decode_tok_s": 53.3, "energy_wh": 0.21,
    }  # fmt: skip
    return box.request(ident, **(values | changes))


def with_past(box: Any, daemon: Any) -> None:
    """Forty past requests, swaps and events on the time line, usage by profile, and figures that wave."""
    rows = [past(box, f"p{i}", client=("codex", "aider", "open-webui")[i % 3], profile=(box.gpt, box.coder)[i % 2],
                 started_at=box.now - 100 * i, completion_tokens=17 * i) for i in range(1, 40)]  # fmt: skip
    failed = {"state": RequestState.FAILED, "status": 503, "error": "engine_crash", "finish_reason": None}
    rows[2] = past(box, "p3", completion_tokens=None, **failed)
    daemon.past_requests = {None: PastRequests(requests=tuple(rows))}
    daemon.replayed = past(box, "r1", profile=box.coder, finish_reason="length", decode_tok_s=66.2)
    daemon.match = match_answers("abc", "abX")
    swap = {"kind": MarkKind.SWAP, "profile": box.gpt, "level": Level.INFO, "code": "done", "text": "loaded in 40s"}
    kill = {"kind": MarkKind.KILL, "profile": box.eagle, "level": Level.ERROR, "code": "guard_kill", "text": "Killed."}
    daemon.marks = (
        TimelineMark(at=box.now - 80, until=box.now - 40, **swap), TimelineMark(at=box.now - 1800, until=box.now - 1500, **swap),
        TimelineMark(at=box.now - 2500, **kill),
    )  # fmt: skip
    daemon.recorded = lambda profile, at: (
        None if 1500 < box.now - at < 1700 else 40.0 + (at // 60) % 23 + (5.0 if profile else 0.0)
    )
    totals = [
        UsageTotals(group=name, requests=8411 // i, prompt_tokens=96_100_000 // i, cached_tokens=89_373_000 // i, output_tokens=2_900_000 // i,
                    ttft_s=Quantiles(count=9, p50=0.41, p95=1.9), decode_tok_s=Quantiles(count=9, p50=61.9, p90=64.0), errors=3 * (i - 1),
                    energy_wh=861.0 / i, waited=12, wait_total_s=410.0, wait_s=Quantiles(count=12, p50=20.0, p95=64.0))
        for i, name in enumerate((box.gpt, box.coder, box.eagle, LONG[0], WIDE[0]), 1)
    ]  # fmt: skip
    daemon.usage = UsageReport(
        since=0.0, until=box.now, by="profile", rows=tuple(totals), total=totals[0], busy_wh=940.0, idle_wh=370.0
    )


def with_settings(box: Any, daemon: Any) -> None:
    daemon.listed = SettingList(file="/home/me/.config/sparkdash/config.toml", pinned=(box.gpt,), preload=(box.gpt, box.coder), settings=(
        Setting(name="reserve_gib", value="12", default="10", given=True, live=True,
                meaning="Memory that admission keeps free, for the desktop and for what other programs take without a warning."),
        Setting(name="port", value="8484", default="8484", meaning="Port of the gateway.", waits="9000"),
        Setting(name="a_setting_with_a_long_name_s", value='"a value that is longer than its column"', default='""',
                meaning="A meaning that does not fit into the rest of a row of a narrow terminal, and goes on for a while."),
        Setting(name="sets", value="pair", default="-", meaning="Sets.", editable=False),
    ))  # fmt: skip


def with_holders(box: Any, daemon: Any) -> None:
    """Holders of each kind, with and without a way to free their memory."""
    held = (
        Holding(kind=Holder.ENGINE, name=box.gpt, bytes=78 * GIB, gpu_bytes=70 * GIB, host_bytes=8 * GIB, pid=4711, user="me"),
        Holding(kind=Holder.CONTAINER, name="somebody-elses-container-with-a-long-name", bytes=19 * GIB, what="vllm", pid=99, remedy="podman stop it"),
        Holding(kind=Holder.PROGRAM, name="\x1b[2Jブレンダー", bytes=2 * GIB, pid=99, user="me", remedy="kill 99"),
        Holding(kind=Holder.KERNEL, name="kernel", bytes=GIB), Holding(kind=Holder.CACHE, name="cache", bytes=18 * GIB),
        Holding(kind=Holder.FREE, name="free", bytes=3 * GIB),
    )  # fmt: skip
    daemon.account = MemoryAccount(at=box.now, total=121 * GIB, available=21 * GIB, holdings=held, unreadable=3,
                                 notes=("The driver tells nothing of 2 processes.",), swap_used=GIB, swap_total=16 * GIB)  # fmt: skip


def on_the_box_page(box: Any, daemon: Any) -> None:
    """Holders, and findings of the doctor."""
    with_holders(box, daemon)
    examined(box, daemon)


def in_the_inventory(box: Any, daemon: Any) -> None:
    """Some of it is here, some came in part, some is not known."""
    with_settings(box, daemon)
    here, part, away = Item(here=True, size=60 * GIB), Item(here=False, size=12 * GIB), Item(here=False)
    daemon.stock = Inventory(stock={
        box.gpt: Stock(image=here, weights=here), box.coder: Stock(image=here, weights=part), box.eagle: Stock(image=away, weights=away),
    })  # fmt: skip


def with_a_plan(box: Any, daemon: Any) -> None:
    daemon.run_plan = BenchPlan(
        suite="smoke", about="A first look", mode="standard", cells=2, gaps=8, expected_s=7800.0, stops=(box.gpt,),
        arms=(PlannedArm(name=box.gpt, launch_s=220.0, decode_tok_s=57.0, source="seen here"), PlannedArm(name=box.coder)),
        order=(box.gpt, box.coder, box.coder, box.gpt),
        suites=(SuiteLine(name="smoke", about="A first look", cells=2), SuiteLine(name="seeds", about="All", cells=92)),
    )  # fmt: skip


def with_a_report(box: Any, daemon: Any) -> None:
    """Two profiles measured against each other, one of them without its last cell."""
    cells = [CellKey(suite="seeds", context=at, output=out) for at in (0, 2048) for out in (32, 150, 400)]
    rates = {box.gpt: dict.fromkeys(cells, 60.0), box.coder: dict.fromkeys(cells[:-1], 62.4)}
    arms = [Arm(name=name, profile=name) for name in rates]
    run = Rehearsal(arms=arms, rates=rates, wobble=0.001, changes={"id": "20261121-200000-seeds"})
    daemon.reports = {"20261121-200000-seeds": assemble_report(run.results())}


def log_of(box: Any, daemon: Any) -> None:
    """A log with access lines, long lines, and two that hold a word."""
    access = [f'INFO:     127.0.0.1:{40_000 + i} - "POST /v1/chat/completions HTTP/1.1" 200 OK' for i in range(40)]
    daemon.log[box.gpt] = [
        "INFO 14:05:20 loading safetensors checkpoint shards: 100% 14/14", *access[:30],
        "WARNING the KV cache is nearly full: 97.3 % of 512000 tokens are held by 3 requests, the longest of which has 131072",
        "\x1b[31mERROR\x1b[0m a line with\ttabs and \x07 controls", *access[30:],
        "INFO Avg prompt throughput: 240.1 tokens/s, Avg generation throughput: 61.2 tokens/s, Running: 2 reqs, Waiting: 0 reqs",
        "INFO 終端: 読み込み完了、すべての要求を処理しています。" * 3,
    ]  # fmt: skip


def world(box: Any) -> Any:
    return box.snapshot()


STATES = {
    "profiles": State(world, ("2",), in_the_inventory),
    "profiles-long-names": State(long_names, ("2",)),
    "switch-asks": State(world, ("2", "j", "s"), shows=("switch to",)),
    "stop-asks": State(world, ("x",)),
    "dry-run": State(world, ("2", "d"), act=on_this_box, until="podman run", shows=("podman run",)),
    "requests": State(at_work, ("3",)),
    "requests-past": State(world, ("3", "p"), with_past, until="13:4"),
    "requests-past-one-opened": State(world, ("3", "p", "enter"), with_past, until="replay on another"),
    "replay": State(world, ("3", "p", "R"), with_past, until="available then"),
    "run-start": State(world, ("A",), with_a_plan, until="about 2h10m"),
    "a-b-report": State(measuring, ("4",), with_a_report, until="lacks", shows=("% faster",)),
    "logs": State(world, ("5",), log_of),
    "logs-finding": State(world, ("5", "slash", *"kv", "enter"), log_of),
    "history": State(world, ("6",), with_past, until="box · decode"),
    "history-two-periods": State(world, ("6", "o", "p", "left"), with_past, until="before"),
    "history-swaps": State(parked, ("6", "v"), with_past),
    "notices": State(parked, ("6", "n")),
    "box": State(world, ("7",), on_the_box_page, until="78 GiB"),
    "doctor": State(world, ("D",), examined, until="check-0"),
    "settings": State(world, ("comma",), with_settings, until="reserve_gib"),
    "settings-change": State(world, ("comma", "enter"), with_settings, until="holds"),
    "help-dashboard": State(world, ("question_mark",)),
    "help-history": State(world, ("6", "question_mark")),
    "palette": State(lambda box: serving(box, box.gpt, box.coder), ("colon",), until="Switch to another profile"),
}  # fmt: skip
