"""Scripts for other nodes: what they read of a kernel, a driver and processes, and the lines that they send."""

import ast
import importlib
import inspect
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import GPU_IS_LOST, FakeNvml
from refusals import refused

from sparkdash.doctor.nodes.examine import READINGS
from sparkdash.domain.metric import LinkSample
from sparkdash.domain.node import Node
from sparkdash.host.command import CommandResult
from sparkdash.host.kernel_figures import Interfaces, RdmaPorts
from sparkdash.nodes import boxes
from sparkdash.nodes.agent.engine_processes import EngineProcesses
from sparkdash.nodes.agent.figures import FIGURES
from sparkdash.nodes.agent.guard_files import KILLS_LIMIT, GuardFolder
from sparkdash.nodes.agent.node_guard import GUARD
from sparkdash.nodes.agent.remote_figures import GpuReader
from sparkdash.nodes.agent.tick import LinkRates, PortCount, read_tick
from sparkdash.nodes.boxes import FACTS
from sparkdash.nodes.cluster.podman_over_ssh import LEFTOVERS
from sparkdash.nodes.programs import program_text, stream_argv
from sparkdash.nodes.shipping import drop_pages
from sparkdash.nodes.shipping.shipper import WEIGHTS
from sparkdash.nodes.ssh import facts_script

PROGRAMS = [FIGURES, GUARD, LEFTOVERS, WEIGHTS, FACTS, READINGS, (drop_pages.__name__,)]
ID = "ab" * 32


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("modules", PROGRAMS, ids=lambda modules: modules[-1].rpartition(".")[2])
def test_a_program_is_written_in_python_3_10_and_needs_the_standard_library_alone(modules: tuple[str, ...]) -> None:
    text = program_text(*modules).decode()
    for module in modules:
        ast.parse(inspect.getsource(importlib.import_module(module)), feature_version=(3, 10))
    loaded = text.replace("_last.run(*sys.argv[1:])", "print(*sorted(sys.modules))")
    argv = [sys.executable, "-I", "-S", "-"]
    done = subprocess.run(argv, input=loaded, capture_output=True, text=True, timeout=30, check=True)
    names = set(done.stdout.split())
    assert names >= set(modules)
    assert not {"pydantic", "sparkdash.log", "sparkdash.domain"} & names


@pytest.mark.parametrize("modules", [FIGURES, GUARD], ids=["figures", "guard"])
def test_a_program_that_does_not_arrive_whole_says_so_and_does_nothing(modules: tuple[str, ...]) -> None:
    argv = [sys.executable, *stream_argv(modules, "nobody")[1:]]
    done = subprocess.run(argv, input=program_text(*modules)[:-1], capture_output=True, timeout=30)
    assert done.returncode == 1
    assert b"did not arrive" in done.stderr


def test_figures_need_no_file_of_this_project(tmp_path: Path) -> None:
    """Isolated and without site-packages, in a folder where nothing lies."""
    text = program_text(*FIGURES) + b'{"every": 60, "id": 1}\n'
    argv, here = [sys.executable, *stream_argv(FIGURES, "nobody")[1:]], tmp_path / "empty"
    here.mkdir()
    done = subprocess.run(argv, input=text, capture_output=True, timeout=30, cwd=here, env={})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b'{"clock":')
    assert list(here.iterdir()) == []


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A Spark's interfaces: a fast link, one that is off, loopback, a bridge and its port; two RDMA devices."""
    heads = "Inter-|   Receive\n face |bytes\n"
    rows = "\n".join(
        f"{name}: {received} 1 {errors} 0 0 0 0 0 {sent} 1 2 0 0 0 0 0"
        for name, received, sent, errors in (
            ("lo", 9, 9, 0), ("enp1s0f1np1", 5000, 700, 3), ("eno1", 1, 2, 0), ("podman0", 1, 1, 0), ("veth0", 1, 1, 0),
        )
    )  # fmt: skip
    net, ib = "class/net", "class/infiniband"
    up = f"{ib}/rocep1s0f1/ports/1"
    return put(
        tmp_path,
        {
            "proc/net/dev": heads + rows + "\n",
            **{f"{net}/{name}/ifindex": f"{at}\n" for at, name in enumerate(("lo", "enp1s0f1np1", "eno1", "podman0", "veth0"), 1)},
            f"{net}/enp1s0f1np1/carrier": "1\n", f"{net}/enp1s0f1np1/speed": "200000\n",
            f"{net}/eno1/carrier": "0\n", f"{net}/eno1/speed": "-1\n",
            f"{net}/podman0/bridge/x": "", f"{net}/veth0/brport/x": "",
            f"{up}/state": "4: ACTIVE\n", f"{up}/rate": "200 Gb/sec (4X HDR)\n",
            f"{up}/counters/port_rcv_data": "1000\n", f"{up}/counters/port_xmit_data": "2000\n",
            f"{up}/counters/port_rcv_errors": "4\n",
            f"{ib}/rocep1s0f0/ports/1/state": "1: DOWN\n", f"{ib}/rocep1s0f0/ports/1/rate": "40 Gb/sec\n",
        },
    )  # fmt: skip


def test_interfaces_have_counters_carrier_and_speed_without_loopback_and_bridges(box: Path) -> None:
    found = Interfaces(str(box / "proc"), str(box / "class")).read(0.0)
    assert found == [
        {"name": "enp1s0f1np1", "index": 2, "received": 5000, "sent": 700, "errors": 5, "up": True, "gbit": 200.0},
        {"name": "eno1", "index": 3, "received": 1, "sent": 2, "errors": 2, "up": False, "gbit": None},
    ]


def test_rdma_ports_that_were_never_active_are_left_out(box: Path) -> None:
    (port,) = RdmaPorts(str(box / "class")).read(0.0)
    assert port == {
        "name": "rocep1s0f1", "unit": 4, "received": 1000, "sent": 2000, "errors": 4, "up": True, "gbit": 200.0,
    }  # fmt: skip


def test_an_rdma_port_that_goes_down_is_shown_as_down(box: Path) -> None:
    ports = RdmaPorts(str(box / "class"))
    ports.read(0.0)
    (box / "class/infiniband/rocep1s0f1/ports/1/state").write_text("1: DOWN\n")
    assert [port["up"] for port in ports.read(1.0)] == [False]


def test_a_box_without_rdma_has_no_ports(tmp_path: Path) -> None:
    assert RdmaPorts(str(tmp_path)).read(0.0) == []


def test_a_lost_gpu_is_released_and_tried_again() -> None:
    library = FakeNvml()
    gpu = GpuReader(library.open)
    found = gpu.read(0.0)
    assert (found["utilization"], found["processes"]) == (0.96, {4242: 63931 << 20, 7: None, 9: 50 << 20})
    library.failing["nvmlDeviceGetTemperature"] = GPU_IS_LOST
    assert gpu.read(1.0) is None
    assert library.calls["nvmlShutdown"] == 1
    del library.failing["nvmlDeviceGetTemperature"]
    assert gpu.read(30.0) is None
    assert gpu.read(62.0) is not None


class Table:
    """A /proc whose processes the test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)

    def add(
        self, pid: int, *, start: int = 100, state: str = "S", comm: str = "python3", environ: str = "", group: str = "/",
        cmdline: str = "",
    ) -> None:  # fmt: skip
        fields = [state, "1", "1", "1", *["0"] * 13, "1", "0", str(start), *["0"] * 10]
        put(
            self.root / str(pid),
            {
                "stat": f"{pid} ({comm}) {' '.join(fields)}", "environ": environ, "cgroup": f"0::{group}\n",
                "cmdline": cmdline, "status": "RssAnon: 7 kB\nRssShmem: 1 kB\n",
            },
        )  # fmt: skip

    def scan(self, now: float = 1000.0) -> dict[str, dict[int, int]]:
        return EngineProcesses("me", str(self.root)).scan(now)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "proc")


MINE = "A=1\0SPARKDASH_ENGINE=me/sparkdash-a\0B=2\0"
GROUP = f"/machine.slice/libpod-{ID}.scope/container"


def test_processes_are_found_by_their_mark_and_other_owners_are_not(table: Table) -> None:
    table.add(5, environ=MINE)
    for pid, owner in ((6, "other"), (7, "xme"), (8, "me2")):
        table.add(pid, environ=f"SPARKDASH_ENGINE={owner}/sparkdash-a\0")
    table.add(9)
    assert table.scan() == {"sparkdash-a": {5: 100}}


def test_a_process_that_wrote_over_its_environment_is_found_by_its_container(table: Table) -> None:
    table.add(5, environ=MINE, group=GROUP)
    table.add(6, environ="VLLM::Worker_TP1", group=GROUP)
    table.add(7, group=f"/machine.slice/libpod-conmon-{ID}.scope")
    assert table.scan() == {"sparkdash-a": {5: 100, 6: 100}}


def test_a_container_without_any_mark_is_known_by_what_its_monitor_was_started_with(
    table: Table, tmp_path: Path
) -> None:
    bundle = put(tmp_path / "bundle", {"config.json": '{"process": {"env": ["SPARKDASH_ENGINE=me/sparkdash-a"]}}'})
    table.add(4, comm="conmon", cmdline=f"/usr/bin/conmon\0-c\0{ID}\0-b\0{bundle}\0-n\0sparkdash-a\0")
    table.add(5, environ="VLLM::EngineCore", group=GROUP)
    assert table.scan() == {"sparkdash-a": {5: 100}}


def test_zombies_are_no_processes_and_hung_ones_are_not_asked(table: Table) -> None:
    table.add(5, environ=MINE, state="Z")
    table.add(6, environ=MINE, state="D")
    assert table.scan() == {}


def test_a_young_process_is_looked_at_again_as_it_may_become_an_engine(table: Table) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    processes = EngineProcesses("me", str(table.root))
    table.add(5, start=1000 * ticks, comm="runc:[2:INIT]")
    assert processes.scan(1000.5) == {}
    table.add(5, start=1000 * ticks, environ=MINE)
    assert processes.scan(1002.0) == {"sparkdash-a": {5: 1000 * ticks}}


def test_a_reused_pid_is_another_process(table: Table) -> None:
    processes = EngineProcesses("me", str(table.root))
    table.add(5, environ=MINE)
    assert processes.scan(1000.0) == {"sparkdash-a": {5: 100}}
    table.add(5, start=900)
    assert processes.scan(1001.0) == {}


def test_the_folder_of_the_guard_is_refused_when_it_is_not_private(tmp_path: Path) -> None:
    folder = GuardFolder("me", str(tmp_path))
    assert Path(folder.path).stat().st_mode & 0o777 == 0o700
    Path(folder.path).chmod(0o755)
    with pytest.raises(OSError, match="not a private folder"):
        GuardFolder("me", str(tmp_path))


def test_a_link_in_the_place_of_the_guards_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"sparkdash-guard-{os.getuid()}-me").symlink_to(tmp_path)
    with pytest.raises(OSError, match="not a private folder"):
        GuardFolder("me", str(tmp_path))


def test_only_the_last_reports_are_kept_and_a_damaged_one_is_left_out(tmp_path: Path) -> None:
    folder = GuardFolder("me", str(tmp_path))
    for at in range(KILLS_LIMIT + 5):
        put(Path(folder.path), {f"kill-{at:015d}.json": f'{{"at": {at}}}'})
    put(Path(folder.path), {"kill-000000000000024.json": "{"})
    folder.report_kill({"container": "sparkdash-a"})
    kept = folder.kills()
    assert len(kept) == KILLS_LIMIT - 1
    assert kept[-1]["container"] == "sparkdash-a"
    folder.forget_kill(str(kept[-1]["id"]))
    folder.forget_kill("../lease.json")
    assert len(folder.kills()) == KILLS_LIMIT - 2


GOOD: dict[str, Any] = {
    "clock": 1.8e9, "at": 1000.5, "id": 7,
    "memory": {"total": 100, "available": 60, "free": 10, "page_cache": 30, "swap_total": 8, "swap_used": 2, "pressure": 0.1},
    "gpu": {"name": "NVIDIA GB10", "utilization": 0.5, "power_w": 45.5, "temperature_c": 60, "throttle": ["thermal"], "driver": "580"},
    "interfaces": [{"name": "eth0", "index": 2, "received": 10, "sent": 20, "errors": 1, "up": True, "gbit": 10.0}],
    "rdma": [{"name": "rocep1s0f1", "unit": 4, "received": 3, "sent": 4, "errors": 0, "up": True, "gbit": 100}],
    "engines": {"sparkdash-a": 50}, "guarded": True,
    "kills": [{"id": "kill-1", "clock": 5.0, "available": 3, "floor": 9, "processes": None, "of_a_later_version": 1}],
}  # fmt: skip


def test_a_line_is_read_whole_also_with_a_report_of_another_version() -> None:
    tick = read_tick(json.dumps(GOOD))
    assert (tick.memory.total, tick.memory.available, tick.memory.pressure) == (100, 60, 0.1)
    assert (tick.gpu.name, tick.gpu.power_w, tick.gpu.sm_clock_mhz) == ("NVIDIA GB10", 45.5, None)
    assert [(port.name, port.rdma) for port in (*tick.interfaces, *tick.rdma)] == [
        ("eth0", False),
        ("rocep1s0f1", True),
    ]
    assert (tick.id, tick.engines, tick.guarded) == (7, {"sparkdash-a": 50}, True)
    assert [(act.id, act.container) for act in tick.kills] == [("kill-1", None)]


@pytest.mark.parametrize("sent", ["", "null", "Welcome to Ubuntu 24.04", json.dumps(GOOD)[:-40], '{"clock": 1}'])
def test_what_is_no_tick_is_passed_over(sent: str) -> None:
    assert read_tick(sent) is None


def eth(received: int | None, sent: int | None = 0, errors: int | None = 0, index: int = 2) -> PortCount:
    """Counters of an interface of 10 Gb/s."""
    return PortCount(name="eth0", received=received, sent=sent, errors=errors, up=True, gbit=10.0, index=index)


def roce(received: int | None, sent: int | None = 0) -> PortCount:
    """Counters of an RDMA port of 100 Gb/s, in units of four octets."""
    return PortCount(name="rocep1s0f1", received=received, sent=sent, errors=0, up=True, gbit=100.0, unit=4)


def last(rates: LinkRates, *readings: tuple[float, PortCount]) -> LinkSample:
    """The sample after these readings."""
    for at, port in readings:
        (sample,) = rates.add(at, [port])
    return sample


OLD = (0.0, eth(1000))
QUICK = ((0.0, eth(0)), (1.0, eth(1000)), (1.01, eth(900_000)))
RATES: dict[str, tuple[float | None, Sequence[tuple[float, PortCount]]]] = {
    "bytes over the time of the node itself": (2000.0, [(100.0, eth(1000)), (102.0, eth(5000))]),
    "an RDMA count stands for four octets": (4_000_000, [(0.0, roce(0)), (1.0, roce(1_000_000))]),
    "the first reading": (None, [OLD]),
    "a reading without a counter": (None, [OLD, (1.0, eth(None))]),
    "a reading after one without a counter": (None, [(0.0, eth(None)), (1.0, eth(1000))]),
    "an idle link, which is not unknown": (0.0, [OLD, (1.0, eth(1000))]),
    "a counter that begins anew": (None, [OLD, (1.0, eth(10))]),
    "a counter that began anew": (1000.0, [OLD, (1.0, eth(10)), (2.0, eth(1010))]),
    "an interface that was made anew": (None, [OLD, (1.0, eth(9000, index=3))]),
    "a reboot": (None, [(90_000.0, eth(1000)), (30.0, eth(9000))]),
    "two readings at nearly the same time": (1000.0, QUICK),
    "a reading after two at nearly the same time": (900_000.0, [*QUICK, (2.0, eth(901_000))]),
}


@pytest.mark.parametrize("case", RATES)
def test_the_rate_of_a_link(case: str) -> None:
    rate, readings = RATES[case]
    assert last(LinkRates(), *readings).received_bytes_s == rate


def test_bytes_add_up_over_the_connection_and_a_counter_that_begins_anew_takes_none_away() -> None:
    rates = LinkRates()
    assert last(rates, (100.0, eth(1000, 500))).received_bytes is None
    assert last(rates, (102.0, eth(5000, 700))).sent_bytes_s == 100.0
    sample = last(rates, (103.0, eth(6000, 700)), (104.0, eth(10, 5)), (105.0, eth(20, 9)))
    assert (sample.received_bytes, sample.sent_bytes) == (5010, 204)
    assert last(LinkRates(), (0.0, roce(0)), (1.0, roce(1_000_000))).received_bytes == 4_000_000


def test_errors_count_since_the_connection_also_past_a_new_counter() -> None:
    rates = LinkRates()
    assert last(rates, (0.0, eth(0, errors=500))).errors == 0
    assert last(rates, (1.0, eth(0, errors=503))).errors == 3
    assert last(rates, (2.0, eth(0, errors=2))).errors == 5
    assert last(rates, (3.0, eth(0, errors=9, index=9))).errors == 5


def test_a_port_that_is_gone_and_comes_back_begins_anew() -> None:
    rates = LinkRates()
    rates.add(0.0, [eth(1000)])
    assert rates.add(1.0, []) == ()
    assert last(rates, (2.0, eth(9000))).received_bytes_s is None


FAST, ADDRESS = "enp1s0f1np1", "192.168.100.2"


def gid_of(address: str) -> str:
    """The GID of RoCEv2 that stands for an IPv4 address."""
    one, two = struct.unpack("!HH", socket.inet_aton(address))
    return f"0000:0000:0000:0000:0000:ffff:{one:04x}:{two:04x}"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A box with a fast interface that has an RDMA port, a slow one, a bridge and the loopback."""
    net, rdma = tmp_path / "net", tmp_path / "infiniband"
    port = rdma / "rocep1s0f1" / "ports" / "1"
    for name, speed in ((FAST, 200_000), ("enP7s7", 10_000), ("lo", 0), ("podman0", 10_000)):
        address, mtu = f"4c:bb:47:00:00:{len(name):02x}\n", "9000\n" if name == FAST else "1500\n"
        put(net / name, {"speed": f"{speed}\n", "mtu": mtu, "operstate": "up\n", "address": address})
    (net / "podman0" / "bridge").mkdir()
    (net / FAST / "device" / "infiniband" / "rocep1s0f1").mkdir(parents=True)
    put(port, {"rate": "100 Gb/sec (2X NDR)\n"})
    table = (("fe80::1", "IB/RoCE v1"), ("fe80::1", "RoCE v2"), (gid_of(ADDRESS), "IB/RoCE v1"))
    for index, (gid, kind) in enumerate((*table, (gid_of(ADDRESS), "RoCE v2"))):
        names = {"gids": gid, "gid_attrs/types": kind, "gid_attrs/ndevs": FAST}
        put(port, {f"{name}/{index}": f"{text}\n" for name, text in names.items()})
    monkeypatch.setattr(facts_script, "NET", net)
    monkeypatch.setattr(facts_script, "RDMA", rdma)
    addresses = {FAST: ADDRESS, "enP7s7": "10.0.0.2", "lo": "127.0.0.1", "podman0": "10.88.0.1"}

    def ipv4(interface: str, what: int) -> bytes | None:
        text = addresses.get(interface) if what == facts_script.SIOCGIFADDR else "255.255.255.0"
        return socket.inet_aton(text) if text else None

    monkeypatch.setattr(facts_script, "ipv4", ipv4)
    return tmp_path


def test_links_are_those_with_an_address_the_fastest_first(kernel: Path) -> None:
    found = facts_script.read_facts("no-such-runtime", str(kernel))["links"]
    assert [(each["interface"], each["rate_gbit_s"], each["mtu"]) for each in found] == [
        (FAST, 100.0, 9000),
        ("enP7s7", 10.0, 1500),
    ]
    assert (found[0]["address"], found[0]["prefix"], found[0]["up"]) == (ADDRESS, 24, True)
    assert [each["hardware"] for each in found] == ["4c:bb:47:00:00:0b", "4c:bb:47:00:00:06"]


def test_the_gid_index_is_that_of_rocev2_with_the_interfaces_own_address(kernel: Path) -> None:
    found = facts_script.link_of(FAST)
    assert (found["hca"], found["gid_index"]) == ("rocep1s0f1", 3)
    for name in ("gids/3", "gid_attrs/types/3", "gid_attrs/ndevs/3"):
        (kernel / "infiniband/rocep1s0f1/ports/1" / name).unlink()
    found = facts_script.link_of(FAST)
    assert (found["hca"], found["gid_index"]) == ("rocep1s0f1", None)


def test_what_the_kernel_does_not_tell_is_unknown(kernel: Path) -> None:
    for name in ("speed", "mtu", "operstate"):
        (kernel / "net" / "enP7s7" / name).unlink()
    found = facts_script.link_of("enP7s7")
    assert (found["rate_gbit_s"], found["mtu"], found["up"], found["hca"], found["gid_index"]) == (None,) * 5
    put(kernel / "net/enP7s7", {"operstate": "lowerlayerdown", "speed": "-1"})
    found = facts_script.link_of("enP7s7")
    assert (found["up"], found["rate_gbit_s"]) == (False, None)


def test_free_space_is_that_of_the_nearest_folder_there_is(tmp_path: Path) -> None:
    assert facts_script.free_bytes(tmp_path / "not" / "yet") is not None


async def test_this_box_tells_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await boxes.read_local_facts("no-such-runtime", "")
    assert (found.hostname, found.uid, found.runtime_version) == (os.uname().nodename, os.getuid(), None)
    assert abs(found.clock_offset_s or 0) < 5
    assert found.home == str(Path.home())


class Answering:
    """A connection whose script ends in one way."""

    def __init__(self, done: CommandResult) -> None:
        self.node = Node(name="spark2", ssh="spark2", host_key="ssh-ed25519 AAAA", hf_home="/srv/hf")
        self.done = done
        self.asked: list[list[str]] = []

    async def run(self, argv: list[str], **_: Any) -> CommandResult:
        self.asked.append(argv)
        return self.done


@pytest.mark.parametrize(
    ("done", "code", "words"),
    [
        (CommandResult(127, "", "sh: 1: python3: not found\n"), "node_python_missing", "spark2 has no python3"),
        (CommandResult(1, "", "Traceback\nOSError: no /sys\n"), "node_facts_failed", "OSError: no /sys"),
        (CommandResult(0, "", ""), "node_facts_failed", "The facts of spark2 cannot be read"),
        (CommandResult(0, "{}\n", ""), "node_facts_failed", "now"),
        (CommandResult(0, '{"now": 1, "hostname": 7}\n', ""), "node_facts_failed", "spark2"),
        (CommandResult(0, "[1]\n", ""), "node_facts_failed", "spark2"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_with_the_scripts_last_words(
    done: CommandResult, code: str, words: str
) -> None:
    asked: Any = Answering(done)
    with refused(code) as caught:
        await boxes.read_facts(asked, "podman")
    assert words in caught.value.message
    assert caught.value.hint
    assert asked.asked == [["python3", "-I", "-S", "-", "podman", "/srv/hf"]]


async def test_what_a_login_script_prints_before_the_answer_is_left_out() -> None:
    text = '{"now": 0, "hostname": "s2", "arch": "aarch64", "home": "/h", "uid": 1000}'
    asked: Any = Answering(CommandResult(0, f"Welcome to DGX OS\n{text}\n", ""))
    assert (await boxes.read_facts(asked, "podman")).hostname == "s2"
