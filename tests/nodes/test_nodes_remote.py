"""Scripts for other nodes: what they read of a kernel, a driver and a box's processes."""

from __future__ import annotations

import ast
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.host import guard_rules
from sparkdash.nodes.agent import remote
from sparkdash.nodes.agent.program import _MODULES, FIGURES, GUARD, program_argv, program_text
from sparkdash.nodes.agent.remote import gpu as gpus
from sparkdash.nodes.agent.remote.engine_processes import EngineProcesses
from sparkdash.nodes.agent.remote.gpu import Driver, GpuReader, ask_nvidia_smi
from sparkdash.nodes.agent.remote.guard_files import KILLS_LIMIT, GuardFolder
from sparkdash.nodes.agent.remote.kernel import Interfaces, RdmaPorts, read_memory

SCRIPTS = [*sorted(Path(next(iter(remote.__path__))).glob("*.py")), Path(guard_rules.__file__)]
ID = "ab" * 32


def put(root: Path, files: dict[str, str]) -> Path:
    """Write a tree of files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.stem))
def test_a_script_is_written_in_python_3_10_and_needs_its_library_alone(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 10))
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    foreign = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign <= {module for modules in _MODULES.values() for module in modules}


@pytest.mark.parametrize("name", [FIGURES, GUARD])
def test_a_program_that_does_not_arrive_whole_says_so_and_does_nothing(name: str) -> None:
    argv = [sys.executable, *program_argv(name, "nobody")[1:]]
    done = subprocess.run(argv, input=program_text(name, "nobody")[:-1], capture_output=True, timeout=30)
    assert done.returncode == 1
    assert b"did not arrive" in done.stderr


def test_figures_need_no_file_of_this_project(tmp_path: Path) -> None:
    """Isolated and without site-packages, in a folder where nothing lies."""
    text = program_text(FIGURES, "nobody") + b'{"every": 60, "id": 1}\n'
    argv, here = [sys.executable, *program_argv(FIGURES, "nobody")[1:]], tmp_path / "empty"
    here.mkdir()
    done = subprocess.run(argv, input=text, capture_output=True, timeout=30, cwd=here, env={})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b'{"clock":')
    assert list(here.iterdir()) == []


def test_memory_is_read_as_on_this_box(tmp_path: Path) -> None:
    lines = "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 60 kB\nCached: 40 kB\nSReclaimable: 5 kB\nShmem: 15 kB\n"
    swap = "SwapTotal: 8 kB\nSwapFree: 5 kB\nOdd line\nHugePages_Total: 0\n"
    proc = put(
        tmp_path, {"meminfo": lines + swap, "pressure/memory": "some avg10=5.00\nfull avg10=2.50 avg60=0.00 total=3\n"}
    )
    assert read_memory(str(proc)) == {
        "total": 102400, "available": 61440, "free": 10240, "page_cache": 30720, "swap_total": 8192, "swap_used": 3072,
        "pressure": 0.025,
    }  # fmt: skip


def test_a_kernel_without_available_memory_or_pressure_tells_nothing(tmp_path: Path) -> None:
    assert read_memory(str(put(tmp_path / "a", {"meminfo": "MemTotal: 1 kB\n"}))) is None
    assert read_memory(str(tmp_path / "none")) is None
    found = read_memory(str(put(tmp_path / "b", {"meminfo": "MemTotal: 1 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n"})))
    assert found is not None
    assert (found["pressure"], found["swap_used"], found["page_cache"]) == (None, None, None)


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


class FakeLibrary:
    """libnvidia-ml of a GB10: no clock events by the newer name, and some calls that it does not support."""

    def __init__(self, **broken: int) -> None:
        self.broken = broken
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlDeviceGetCurrentClocksEventReasons":
            raise AttributeError(name)

        def call(*given: Any) -> int:
            if code := self.broken.get(name, 0):
                return code
            return self._answer(name, [getattr(each, "_obj", each) for each in given])

        return call

    def _answer(self, name: str, given: list[Any]) -> int:
        if name == "nvmlShutdown":
            self.closed = True
        elif name.endswith("Name"):
            given[1].value = b"NVIDIA GB10"
        elif name.endswith("DriverVersion"):
            given[0].value = b"580.95.05"
        elif name.endswith("UtilizationRates"):
            given[1].gpu = 87
        elif name.endswith("ThrottleReasons"):
            given[1].value = 0x1 | 0x4 | 0x20
        elif name == "nvmlDeviceGetComputeRunningProcesses_v3":
            given[1].value = 2
            given[2][0].pid, given[2][0].bytes = 41, 1000
            given[2][1].pid, given[2][1].bytes = 42, gpus.NOT_AVAILABLE
        elif name == "nvmlDeviceGetGraphicsRunningProcesses_v3":
            return 3
        elif given and isinstance(given[-1], ctypes.c_uint):
            given[-1].value = {"nvmlDeviceGetPowerUsage": 45500, "nvmlDeviceGetTemperature": 61}.get(name, 2418)
        return 0


def test_the_drivers_library_tells_all_figures_but_memory() -> None:
    library = FakeLibrary()
    found = Driver(lambda _: library).read()
    assert found == {
        "name": "NVIDIA GB10", "driver": "580.95.05", "utilization": 0.87, "power_w": 45.5, "temperature_c": 61,
        "sm_clock_mhz": 2418, "sm_clock_max_mhz": 2418, "throttle": ["power cap", "thermal"], "processes": {41: 1000},
    }  # fmt: skip


def test_figures_that_the_driver_does_not_support_are_unknown() -> None:
    found = Driver(lambda _: FakeLibrary(nvmlDeviceGetPowerUsage=3, nvmlDeviceGetUtilizationRates=3)).read()
    assert (found["power_w"], found["utilization"], found["temperature_c"]) == (None, None, 61)


def test_a_box_without_a_gpu_is_no_error() -> None:
    def absent() -> Driver:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    def none() -> dict[str, object]:
        raise OSError("nvidia-smi is missing")

    gpu = GpuReader(absent, none)
    assert [gpu.read(at) for at in (0.0, 1.0, 100.0)] == [None, None, None]


def test_a_lost_gpu_is_released_and_tried_again() -> None:
    library = FakeLibrary()
    gpu = GpuReader(lambda: Driver(lambda _: library), dict)
    assert gpu.read(0.0) is not None
    library.broken = dict.fromkeys(
        ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo"), 15
    )
    assert gpu.read(1.0) is None
    assert library.closed
    library.broken = {}
    assert gpu.read(62.0) is not None


def test_without_the_library_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA GB10, 580.95.05, 12, [N/A], 55, 208, 3003'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = ask_nvidia_smi()
    assert (found["name"], found["utilization"], found["power_w"]) == ("NVIDIA GB10", 0.12, None)
    assert (found["sm_clock_mhz"], found["sm_clock_max_mhz"]) == (208, 3003)


@pytest.mark.parametrize(
    "said", [SimpleNamespace(returncode=9, stdout=b""), SimpleNamespace(returncode=0, stdout=b"x,y")]
)
def test_an_nvidia_smi_that_fails_is_an_error(said: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text("")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="no figures"):
        ask_nvidia_smi(lambda *_, **__: said)


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
    table.add(6, environ="SPARKDASH_ENGINE=other/sparkdash-b\0")
    table.add(7)
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
