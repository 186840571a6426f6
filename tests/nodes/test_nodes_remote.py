"""Scripts for other nodes: what they read of a kernel, a driver and a box's processes."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_nvml import GPU_IS_LOST, FakeNvml

from sparkdash.doctor.nodes.examine import READINGS
from sparkdash.host.kernel_figures import Interfaces, RdmaPorts
from sparkdash.nodes.agent.engine_processes import EngineProcesses
from sparkdash.nodes.agent.figures import FIGURES
from sparkdash.nodes.agent.guard_files import KILLS_LIMIT, GuardFolder
from sparkdash.nodes.agent.node_guard import GUARD
from sparkdash.nodes.agent.remote_figures import GpuReader
from sparkdash.nodes.boxes import FACTS
from sparkdash.nodes.cluster.podman_over_ssh import LEFTOVERS
from sparkdash.nodes.programs import program_text, stream_argv
from sparkdash.nodes.shipping import drop_pages
from sparkdash.nodes.shipping.shipper import WEIGHTS

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
    assert found is not None
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
