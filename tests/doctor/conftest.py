"""A DGX Spark on paper: a folder with the files of a healthy one, and what its commands say.

Written after the owners' reports in the checks' evidence; no file was copied from a real box.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sparkdash import __version__
from sparkdash.doctor import Probe, check, examine
from sparkdash.doctor.check import DaemonSeen, Disk, Listener, ProfilesSeen
from sparkdash.doctor.containers import TOOLKIT
from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.domain.metric import Gpu
from sparkdash.domain.node import Finding
from sparkdash.host.command import CommandResult
from sparkdash.host.kernel_lines import KernelFindings, findings, read_line
from sparkdash.host.memory import helper
from sparkdash.settings import Settings
from sparkdash.units import GIB

DRIVER = "580.142"
LIBRARIES = "/usr/lib/aarch64-linux-gnu"


def cdi_spec(driver: str = DRIVER, version: str = "0.5.0", devices: Iterable[str] = ("0", "all")) -> str:
    """A spec as nvidia-ctk writes it, shortened."""
    names = "\n".join(f'  - name: "{name}"\n    containerEdits: {{}}' for name in devices)
    library = f"{LIBRARIES}/libcuda.so.{driver}"
    return (
        f'cdiVersion: "{version}"\nkind: nvidia.com/gpu\ndevices:\n{names}\ncontainerEdits:\n  mounts:\n'
        f"    - hostPath: {library}\n      containerPath: {library}\n"
    )


def held(*more: Holding, told: bool = True) -> MemoryAccount:
    """Account of a healthy box with one engine, and of these holders."""
    engine = Holding(kind=Holder.ENGINE, name="qwen", bytes=60 * GIB, gpu_bytes=56 * GIB if told else None, processes=9)
    kept = Holding(kind=Holder.UNACCOUNTED, name="GPU driver or kernel", bytes=GIB)
    rest = 121 * GIB - sum(one.bytes for one in (engine, kept, *more))
    holdings = (engine, kept, *more, Holding(kind=Holder.FREE, name="free", bytes=rest))
    return MemoryAccount(at=1.0, total=121 * GIB, holdings=holdings, gpu=GpuMemory.UNIFIED, gpu_told=told)


def meminfo(**kib: int) -> str:
    """/proc/meminfo with some lines changed."""
    values = {
        "MemTotal": 127_600_748,
        "MemFree": 90_000_000,
        "MemAvailable": 115_000_000,
        "Cached": 22_000_000,
        "CmaTotal": 32_768,
        "CmaFree": 30_208,
    } | kib
    return "".join(f"{name}: {value:>12} kB\n" for name, value in values.items()) + "HugePages_Total:       0\n"


def recorded(name: str) -> dict[str, str]:
    """Kernel files of a box whose figures were published."""
    parts = (Path(__file__).parent.parent / f"data/contiguity/{name}.txt").read_text().split("== ")[1:]
    return {path: text for path, _, text in (part.partition("\n") for part in parts)}


HEALTHY = {
    "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
    "/etc/dgx-release": 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.5.0"\n',
    "/etc/cdi/.keep": "",
    "/run/cdi/nvidia.yaml": cdi_spec(),
    "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env": "",
    "/etc/subuid": "lab:100000:65536\n",
    "/etc/subgid": "lab:100000:65536\n",
    "/var/lib/systemd/linger/lab": "",
    helper.UNIT: helper.TEXT,
    "/proc/driver/nvidia/version": (
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
    ),
    "/proc/meminfo": meminfo(),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
    **recorded("gb10-fresh"),
    "/proc/swaps": "Filename Type Size Used Priority\n/dev/zram0 partition 16777212 0 100\n",
    "/proc/sys/vm/swappiness": "10\n",
    "/proc/sys/vm/overcommit_memory": "0\n",
    "/proc/sys/kernel/io_uring_disabled": "0\n",
    "/usr/share/containers/seccomp.json": '{"syscalls": []}',
    "/proc/sys/vm/min_free_kbytes": "67584\n",
    "/proc/812/comm": "earlyoom\n",
    "/proc/self/mountinfo": "24 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n",
    "/sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n",
    "/sys/bus/pci/devices/000f:01:00.0/vendor": "0x10de\n",
}  # fmt: skip


def info(**changes: Any) -> CommandResult:
    """`podman info` of an Ubuntu 24.04, shortened; `version`, `root`, `driver` may be changed."""
    said = {
        "host": {"ociRuntime": {"name": "crun"}, "networkBackend": "netavark", "cgroupVersion": "v2"},
        "store": {
            "graphRoot": changes.get("root", "/home/lab/.local/share/containers/storage"),
            "graphDriverName": changes.get("driver", "overlay"),
        },
        "version": {"Version": changes.get("version", "4.9.3")},
    }
    return CommandResult(0, json.dumps(said), "")


def docker_info(**changes: Any) -> CommandResult:
    """`docker info` of DGX OS's docker, shortened; any field may be changed."""
    said = {
        "ServerVersion": "28.3.3",
        "Driver": "overlay2",
        "DockerRootDir": "/var/lib/docker",
        "LiveRestoreEnabled": True,
        "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin"],
        "Runtimes": {"nvidia": {"path": "nvidia-container-runtime"}, "runc": {"path": "runc"}},
    }
    return CommandResult(0, json.dumps(said | changes), "")


IDLE = Gpu(name="NVIDIA GB10", driver=DRIVER, utilization=0.0, power_w=4.2, sm_clock_mhz=208.0)
STUCK = Gpu(name="NVIDIA GB10", driver=DRIVER, utilization=0.96, power_w=19.5, sm_clock_mhz=799.0)


@dataclass
class Spark:
    """The box; a test changes what it likes and then examines it."""

    root: Path
    settings: Settings = field(default_factory=Settings)
    commands: dict[tuple[str, ...], CommandResult | Exception] = field(default_factory=dict)
    gpu: list[Gpu] = field(default_factory=lambda: [IDLE])
    disks: dict[str, Disk] = field(default_factory=dict)
    ports: list[Listener] = field(default_factory=list)
    seen: ProfilesSeen = field(default_factory=lambda: ProfilesSeen(44, 0, 0, 0))
    account: MemoryAccount | Exception = field(default_factory=lambda: held())
    kernel: list[str] | None = field(default_factory=list)
    """Lines of the kernel's log; None: it is closed to this user."""
    changes: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def write(self, path: str, text: str, mode: int = 0o600) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def remove(self, path: str) -> None:
        (self.root / path.lstrip("/")).unlink()

    def set(self, **values: Any) -> None:
        self.settings = self.settings.model_copy(update=values)

    @property
    def probe(self) -> Probe:
        daemon = DaemonSeen("unix:/run/user/1000/d.sock", __version__, 77, "http://127.0.0.1:8484/v1", "podman")
        healthy = Probe(
            settings=self.settings, daemon=daemon, root=self.root, command=self._command, looks=self._looks,
            disk=self._disk, listeners=lambda: self.ports, account=self._account, kernel_log=self._kernel,
            profiles=lambda _: self.seen, machine="aarch64", kernel="6.17.0-1014-nvidia", uid=1000, user="lab",
            home="/home/lab", page_size=4096,
        )  # fmt: skip
        return replace(healthy, **self.changes)

    async def examine(self, *names: str) -> tuple[Finding, ...]:
        return await examine(self.probe, names)

    async def _command(self, argv: Sequence[str]) -> CommandResult:
        self.asked.append(tuple(argv))
        said = self.commands.get(tuple(argv), FileNotFoundError())
        if isinstance(said, Exception):
            raise said
        return said

    async def _account(self, _settings: Settings) -> MemoryAccount:
        if isinstance(self.account, Exception):
            raise self.account
        return self.account

    async def _kernel(self) -> KernelFindings | None:
        if self.kernel is None:
            return None
        return findings(line for text in self.kernel if (line := read_line(text, 1_800_000_000.0)))

    async def _looks(self) -> list[Gpu]:
        return self.gpu

    def _disk(self, path: Path) -> Disk:
        place = f"/{path.relative_to(self.root)}"
        return self.disks.get(place, Disk(4000 * GIB, 2000 * GIB))


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    """A healthy DGX Spark of a user named lab."""
    box = Spark(tmp_path / "box")
    for path, text in HEALTHY.items():
        box.write(path, text)
    box.commands = {
        check.COMMAND: info(),
        TOOLKIT: CommandResult(0, "NVIDIA Container Toolkit CLI version 1.18.2\ncommit: x\n", ""),
    }
    return box
