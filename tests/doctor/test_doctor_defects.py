"""Every planted defect is found by its check, and by no other; a healthy box has none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparkdash.doctor import check, checks_named
from sparkdash.doctor.check import DaemonSeen, Disk, Listener, ProfilesSeen
from sparkdash.doctor.containers import REFRESH, TOOLKIT
from sparkdash.domain.memory import Holder, Holding
from sparkdash.domain.node import Status
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.memory import helper
from sparkdash.units import GIB, KIB
from tests.doctor import conftest as box

NFS = "24 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n90 24 0:51 / /home rw,relatime shared:9 - nfs4 nas:/home rw\n"
GRAPH = "/home/lab/.local/share/containers/storage"
WEIGHTS = "/home/lab/.cache/huggingface"
OTHER = "/etc/cdi/nvidia.yaml"
OURS = "/run/cdi/nvidia.yaml"
USERNS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


LOST = Holding(kind=Holder.UNACCOUNTED, name="GPU driver or kernel", bytes=34 * GIB)


class Defect(NamedTuple):
    """Defect of a box: the check that finds it, how bad it is, and words of its evidence and of its cure."""

    plant: Callable[[Any], object]
    check: str
    status: Status
    evidence: str
    fix: str | None = None
    also: frozenset[str] = frozenset()
    """Other checks that see the same, or can say no more."""


def _docker(spark: Any, **changes: Any) -> None:
    """The settings name docker, whose `docker info` is changed so."""
    spark.set(runtime="docker")
    spark.commands[check.DOCKER] = box.docker_info(**changes)


def _free_blocks(spark: Any, largest: int, smaller: int = 900) -> None:
    """So many free blocks of 32 MiB, and of each size below."""
    spark.write("/proc/buddyinfo", f"Node 0, zone   Normal {smaller} {f'{smaller} ' * 12}{largest}\n")


def _driver(spark: Any, version: str) -> None:
    spark.write(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {version}  Release Build\n",
    )
    spark.write(OURS, box.cdi_spec(driver=version))
    spark.gpu[0] = box.IDLE.model_copy(update={"driver": version})


DEFECTS = {
    "podman is missing": Defect(lambda s: s.commands.pop(check.COMMAND), "podman", Status.FAIL, "not installed", "apt install podman", also=frozenset({"images", "cdi-version"})),
    "podman is old": Defect(lambda s: s.commands.update({check.COMMAND: box.info(version="3.4.4")}), "podman", Status.FAIL, "podman 3.4.4", "only-upgrade", also=frozenset({"cdi-version"})),
    "podman hangs": Defect(lambda s: s.commands.update({check.COMMAND: TimeoutError()}), "podman", Status.FAIL, "did not answer within 15 s", "reboot", also=frozenset({"images", "cdi-version"})),
    "podman's lock is another version's": Defect(lambda s: s.commands.update({check.COMMAND: CommandResult(125, "", "Error: failed to open 2048 locks in /libpod_rootless_lock_1000: numerical result out of range")}), "podman", Status.FAIL, "2048 locks", "rm /dev/shm/libpod_rootless_lock_1000", also=frozenset({"images", "cdi-version"})),
    "podman without newuidmap": Defect(lambda s: s.commands.update({check.COMMAND: CommandResult(125, "", 'Error: command required for rootless mode with multiple IDs: exec: "newuidmap": executable file not found in $PATH')}), "podman", Status.FAIL, "newuidmap", "apt install uidmap", also=frozenset({"images", "cdi-version"})),
    "a podman that AppArmor holds back": Defect(lambda s: s.commands.update({check.COMMAND: CommandResult(125, "", "cannot clone: Permission denied\nError: cannot re-exec process")}), "podman", Status.FAIL, "apparmor_restrict_unprivileged_userns is 1", "userns,", also=frozenset({"images", "cdi-version"})),
    "a newer one": Defect(lambda s: s.commands.update({check.COMMAND: CommandResult(125, "", "Error: failed to reexec: Permission denied")}), "podman", Status.FAIL, "apparmor_restrict_unprivileged_userns is 1", "reload apparmor", also=frozenset({"images", "cdi-version"})),
    "namespaces refused without AppArmor": Defect(lambda s: (s.remove(USERNS), s.commands.update({check.COMMAND: CommandResult(125, "", "Error: failed to reexec: Permission denied")})), "podman", Status.FAIL, "failed to reexec", "system migrate", also=frozenset({"images", "cdi-version"})),
    "podman speaks in riddles": Defect(lambda s: s.commands.update({check.COMMAND: CommandResult(0, "<html>", "")}), "podman", Status.FAIL, "fails: status 0", also=frozenset({"images", "cdi-version"})),
    "docker does not answer": Defect(lambda s: _docker(s, ServerVersion="", ServerErrors=["Cannot connect to the Docker daemon"]), "podman", Status.FAIL, "Cannot connect", "systemctl start docker"),
    "docker is not for this user": Defect(lambda s: _docker(s, ServerVersion="", ServerErrors=["permission denied while trying to connect"]), "podman", Status.FAIL, "permission denied", "usermod -aG docker lab"),
    "docker's engines are root's": Defect(_docker, "podman", Status.WARN, "memory guard, which runs as you, cannot end them", 'runtime = "podman"'),
    "docker ends its engines": Defect(lambda s: _docker(s, LiveRestoreEnabled=False), "podman", Status.NOTE, "ends all engines", "live-restore"),
    "docker without the GPU": Defect(lambda s: _docker(s, Runtimes={"runc": {}}), "podman", Status.NOTE, "may get no GPU", "nvidia-ctk runtime configure"),
    "rootless docker without the GPU": Defect(lambda s: _docker(s, SecurityOptions=["name=rootless"], LiveRestoreEnabled=False, Runtimes={"runc": {}}), "podman", Status.NOTE, "may get no GPU", "no-cgroups"),
    "podman is missing beside docker": Defect(lambda s: (_docker(s), s.set(runtime="podman"), s.commands.pop(check.COMMAND)), "podman", Status.FAIL, 'This box has docker: runtime = "docker"', "apt install podman", also=frozenset({"images", "cdi-version"})),
    "no room for docker's images": Defect(lambda s: (_docker(s), s.disks.update({"/var/lib/docker": Disk(900 * GIB, 3 * GIB)})), "images", Status.FAIL, "no image fits", "docker image prune"),
    "no default of seccomp": Defect(lambda s: s.remove("/usr/share/containers/seccomp.json"), "io-uring", Status.NOTE, "no default seccomp profile", "apt install containers-common"),
    "a kernel without io_uring": Defect(lambda s: s.write("/proc/sys/kernel/io_uring_disabled", "2\n"), "io-uring", Status.NOTE, "The kernel refuses io_uring"),
    "images on NFS": Defect(lambda s: s.write("/proc/self/mountinfo", NFS), "images", Status.FAIL, "network file system", "graphroot =", also=frozenset({"weights"})),
    "no room for images": Defect(lambda s: s.disks.update({GRAPH: Disk(900 * GIB, 3 * GIB)}), "images", Status.FAIL, "3.0 GiB of 900.0 GiB free", "image prune"),
    "little room for images": Defect(lambda s: s.disks.update({GRAPH: Disk(900 * GIB, 41 * GIB)}), "images", Status.WARN, "41.0 GiB", "image prune"),
    "no CDI spec": Defect(lambda s: s.remove(OURS), "cdi", Status.FAIL, "No CDI spec offers nvidia.com/gpu", "restart nvidia-cdi-refresh", also=frozenset({"cdi-version", "cdi-driver"})),
    "a CDI spec without `all`": Defect(lambda s: s.write(OURS, box.cdi_spec(devices=("0",))), "cdi", Status.FAIL, "and not nvidia.com/gpu=all", "nvidia-cdi-refresh"),
    "a CDI spec that is none": Defect(lambda s: s.write(OTHER, "cdiVersion: [\n"), "cdi", Status.FAIL, f"{OTHER} is no CDI spec", f"sudo rm {OTHER}"),
    "two CDI specs": Defect(lambda s: s.write(OTHER, box.cdi_spec()), "cdi", Status.NOTE, f"{OURS} wins over {OTHER}", f"sudo rm {OTHER}"),
    "a CDI spec that this podman cannot read": Defect(lambda s: s.write(OURS, box.cdi_spec(version="0.7.0")), "cdi-version", Status.FAIL, "needs podman 5.1", "FEATURE_FLAGS=no-additional-gids"),
    "a hand-made spec gone stale": Defect(lambda s: (s.remove(OURS), s.write(OTHER, box.cdi_spec(driver="570.86.16"))), "cdi-driver", Status.FAIL, "is for driver 570.86.16, and 580.142 runs", "cdi generate --output"),
    "a stale spec that does not win": Defect(lambda s: s.write(OTHER, box.cdi_spec(driver="570.86.16")), "cdi-driver", Status.WARN, "570.86.16", f"sudo rm {OTHER}", also=frozenset({"cdi"})),
    "no toolkit": Defect(lambda s: s.commands.pop(TOOLKIT), "toolkit", Status.WARN, "nvidia-ctk is not installed", "nvidia-container-toolkit-base"),
    "a toolkit that renews nothing": Defect(lambda s: s.remove(REFRESH), "toolkit", Status.NOTE, "1.18.2", "After a driver upgrade"),
    "no driver": Defect(lambda s: s.remove("/proc/driver/nvidia/version"), "driver", Status.FAIL, "No NVIDIA driver is loaded", "ubuntu-drivers", also=frozenset({"gpu-power", "cdi-driver"})),
    "the driver was upgraded under us": Defect(lambda s: s.gpu.clear(), "driver", Status.FAIL, "NVML does not answer", "sudo reboot", also=frozenset({"gpu-power"})),
    "libraries of another driver": Defect(lambda s: s.gpu.__setitem__(0, box.IDLE.model_copy(update={"driver": "580.159.03"})), "driver", Status.FAIL, "libraries are of 580.159.03", "sudo reboot"),
    "another GPU": Defect(lambda s: s.gpu.__setitem__(0, box.IDLE.model_copy(update={"name": "NVIDIA RTX 4090"})), "driver", Status.NOTE, "not the GB10"),
    "pages that this driver maps wrongly": Defect(lambda s: (s.changes.update(page_size=64 * KIB), _driver(s, "595.84")), "page-size", Status.FAIL, "64 KiB pages and driver 595.84", "without 64k"),
    "large pages and a newer driver": Defect(lambda s: (s.changes.update(page_size=64 * KIB), _driver(s, "620.10")), "page-size", Status.NOTE, "64 KiB pages and driver 620.10"),
    "large pages": Defect(lambda s: s.changes.update(page_size=64 * KIB), "page-size", Status.NOTE, "64 KiB pages and driver 580.142"),
    "the stuck low-power state": Defect(lambda s: s.gpu.__setitem__(slice(None), [box.STUCK] * 3), "gpu-power", Status.FAIL, "96 % busy, 799 MHz, 19.5 W, held back by nothing", "Unplug"),
    "what the daemon has seen": Defect(lambda s: s.changes.update(daemon=DaemonSeen("x", box.__version__, 77, "http://127.0.0.1:8484/v1", "podman", low_power=True)), "gpu-power", Status.FAIL, "The daemon sees", "Unplug"),
    "no subordinate ids": Defect(lambda s: s.write("/etc/subgid", "other:100000:65536\n"), "rootless", Status.FAIL, "0 in /etc/subgid", "--add-subgids"),
    "no linger": Defect(lambda s: s.remove("/var/lib/systemd/linger/lab"), "linger", Status.WARN, "last logout", "enable-linger"),
    "little memory": Defect(lambda s: s.write("/proc/meminfo", box.meminfo(MemAvailable=6 << 20, Cached=1 << 20)), "memory", Status.WARN, "6.0 GiB available", "status"),
    "huge pages": Defect(lambda s: s.write("/proc/meminfo", box.meminfo() + "HugePages_Total: 8192\nHugepagesize: 2048 kB\n"), "memory", Status.WARN, "16.0 GiB are kept as huge pages", "nr_hugepages=0"),
    "memory kept for kexec handover": Defect(lambda s: s.write("/proc/meminfo", box.meminfo(CmaTotal=0, CmaFree=9_751_000)), "handover", Status.WARN, "9.3 GiB", "kho=off"),
    "GPU memory of processes that ended": Defect(lambda s: setattr(s, "account", box.held().replace(holdings=(LOST,))), "memory-holders", Status.WARN, "The GPU driver or the kernel holds 34.0 GiB for no process", "sudo reboot"),
    "a box that is not looked through": Defect(lambda s: setattr(s, "account", HostError("/proc was not read within 10 s.")), "memory-holders", Status.UNKNOWN, "was not read within 10 s"),
    "no large block of memory free": Defect(lambda s: s.write("/proc/buddyinfo", box.recorded("gb10-7-days")["/proc/buddyinfo"]), "contiguity", Status.WARN, "fragmented: 0 of 200", "reboot"),
    "memory in pieces": Defect(lambda s: _free_blocks(s, 140), "contiguity", Status.WARN, "fragmented: 140 of 200 free 32 MiB blocks, with 109.7 GiB available", "reboot before a big load"),
    "memory full of page cache, a load's to take": Defect(lambda s: _free_blocks(s, 20, 90), "contiguity", Status.NOTE, "page cache"),
    "a kernel that does not tell of blocks": Defect(lambda s: s.write("/proc/buddyinfo", "what is this\n"), "contiguity", Status.UNKNOWN, ""),
    "a kernel that tells nothing": Defect(lambda s: s.write("/proc/buddyinfo", ""), "contiguity", Status.UNKNOWN, ""),
    "the kernel that failed most": Defect(lambda s: s.changes.update(kernel="7.0.0-1019-nvidia"), "contiguity", Status.NOTE, "Kernel 7.0.0-1019-nvidia failed 7 boots of 7"),
    "no memory helper": Defect(lambda s: s.remove(helper.UNIT), "memory-helper", Status.NOTE, "not installed", "service install --helper"),
    "an older memory helper": Defect(lambda s: s.write(helper.UNIT, f"{helper.MARK}, long ago\n"), "memory-helper", Status.NOTE, "another version", "service install --helper"),
    "somebody's own memory helper": Defect(lambda s: s.write(helper.UNIT, "[Service]\n"), "memory-helper", Status.NOTE, "not written by sparkdash"),
    "swap on disk": Defect(lambda s: s.write("/proc/swaps", "Filename Type Size Used Priority\n/swap.img file 16777212 0 -2\n"), "swap", Status.NOTE, "/swap.img 16.0 GiB", "swapoff"),
    "swapped out": Defect(lambda s: s.write("/proc/swaps", "Filename Type Size Used Priority\n/swap.img file 16777212 4194304 -2\n"), "swap", Status.WARN, "4.0 GiB used", "swapoff"),
    "nobody watches memory": Defect(lambda s: s.remove("/proc/812/comm"), "oom-guard", Status.NOTE, "Only sparkdash's own guard", "apt install earlyoom"),
    "nobody at all watches memory": Defect(lambda s: (s.remove("/proc/812/comm"), s.set(guard="off")), "oom-guard", Status.WARN, "guard is 'off'", 'guard = "act"'),
    "only systemd-oomd": Defect(lambda s: s.write("/proc/812/comm", "systemd-oomd\n"), "oom-guard", Status.NOTE, "cgroups", "apt install earlyoom"),
    "strict overcommit": Defect(lambda s: s.write("/proc/sys/vm/overcommit_memory", "2\n"), "vm", Status.WARN, "overcommit_memory is 2", "overcommit_memory=0"),
    "a greedy kernel": Defect(lambda s: s.write("/proc/sys/vm/min_free_kbytes", "6500000\n"), "vm", Status.WARN, "6.2 GiB", "min_free_kbytes"),
    "no room for weights": Defect(lambda s: s.disks.update({WEIGHTS: Disk(900 * GIB, 2 * GIB)}), "weights", Status.FAIL, "no model fits", "hf cache"),
    "little room for weights": Defect(lambda s: s.disks.update({WEIGHTS: Disk(900 * GIB, 40 * GIB)}), "weights", Status.WARN, "40.0 GiB", "hf cache"),
    "weights on NFS": Defect(lambda s: (s.set(hf_home=Path("/mnt/nas/hf")), s.write("/proc/self/mountinfo", NFS.replace(" /home ", " /mnt/nas "))), "weights", Status.WARN, "network file system", "hf_home"),
    "a stranger on our port": Defect(lambda s: s.ports.append(Listener(8484, "0.0.0.0", 4711, "ollama")), "port", Status.FAIL, "8484 is held by ollama (pid 4711)", "SPARKDASH_PORT"),
    "somebody else's program on our port": Defect(lambda s: s.ports.append(Listener(8484, "0.0.0.0")) or s.changes.update(daemon=DaemonSeen("", problem="No sparkdash daemon answers.")), "port", Status.FAIL, "a program of another user", "SPARKDASH_PORT", also=frozenset({"daemon"})),
    "broken profiles": Defect(lambda s: setattr(s, "seen", ProfilesSeen(40, 3, 1, 0)), "profiles", Status.WARN, "3 problems, 1 error", "profiles check"),
    "settings that are not valid": Defect(lambda s: s.changes.update(settings_problem="config.toml: prot: unknown key."), "settings", Status.FAIL, "prot"),
    "a daemon of yesterday": Defect(lambda s: s.changes.update(daemon=DaemonSeen("x", "0.0.1", 77, "http://127.0.0.1:8484/v1", "podman")), "daemon", Status.WARN, "is 0.0.1", "stop --daemon"),
    "a daemon with other settings": Defect(lambda s: s.changes.update(daemon=DaemonSeen("x", box.__version__, 77, "http://127.0.0.1:8484/v1", "docker")), "daemon", Status.WARN, "uses docker", "stop --daemon"),
    "a kill for want of memory": Defect(lambda s: setattr(s, "kernel", ["Out of memory: Killed process 9 (python3) anon-rss:83886080kB"]), "kernel-log", Status.WARN, "The kernel killed python3 (pid 9, which held 80 GiB) for want of memory; last at 2027-01-15 08:00 UTC", "shorter context"),
    "a GPU that fell off the bus": Defect(lambda s: setattr(s, "kernel", ["NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus."] * 2), "kernel-log", Status.WARN, "Xid 79 (the GPU is off the bus); last at 2027-01-15 08:00 UTC, 2 times in the last day", "plug"),
    "a kernel's log that is closed": Defect(lambda s: setattr(s, "kernel", None), "kernel-log", Status.UNKNOWN, "may not read the kernel's log", "usermod -aG systemd-journal lab"),
    "another processor": Defect(lambda s: s.changes.update(machine="x86_64"), "system", Status.NOTE, "x86_64, on NVIDIA_DGX_Spark: not a DGX Spark"),
    "another system": Defect(lambda s: s.remove("/etc/dgx-release"), "system", Status.NOTE, "not DGX OS"),
}  # fmt: skip


async def test_a_healthy_spark_has_no_finding(spark: Any) -> None:
    """Not even a note, and each check says what it saw."""
    found = await spark.examine()
    assert {one.name: one.status.value for one in found if one.status is not Status.OK} == {}
    assert {one.name for one in found} == {one.name for one in checks_named(())}
    assert all(one.evidence.endswith(".") and one.fix is None for one in found)


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
async def test_a_planted_defect_is_found_by_its_check(spark: Any, defect: Defect) -> None:
    """With the evidence and the cure, and no check that it does not concern changes its mind."""
    defect.plant(spark)
    found = [one for one in await spark.examine() if one.status is not Status.OK]
    hits = [one for one in found if one.name == defect.check and one.status is defect.status]
    assert [one for one in hits if defect.evidence in one.evidence], found
    if defect.fix is not None:
        assert defect.fix in (hits[0].fix or "")
    assert "\n" not in (hits[0].fix or "")
    stray = {one.name for one in found} - {defect.check} - defect.also
    if spark.settings.runtime == "podman":  # docker makes notes of all that is about podman
        assert stray == set()


async def test_few_blocks_are_no_finding_where_engines_hold_the_memory(spark: Any) -> None:
    """Only what could still be let in is judged."""
    _free_blocks(spark, 0)
    spark.write("/proc/meminfo", box.meminfo(MemAvailable=7 << 20, MemFree=7 << 20))
    assert [one.status for one in await spark.examine("contiguity")] == [Status.OK]


async def test_another_box_gets_the_figures_of_its_blocks_and_no_verdict(spark: Any) -> None:
    _free_blocks(spark, 0)
    spark.gpu = [box.IDLE.model_copy(update={"name": "NVIDIA GeForce RTX 5090"})]
    (finding,) = await spark.examine("contiguity")
    assert (finding.status, "32 MiB blocks: 0 free" in finding.evidence) == (Status.OK, True)


def test_every_check_that_can_fail_has_a_defect() -> None:
    """A check nobody has seen finding something is a guess."""
    assert {defect.check for defect in DEFECTS.values()} == {one.name for one in checks_named(())}
    assert len(DEFECTS) >= 20
