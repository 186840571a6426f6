"""The look at the box: its limits, what it leaves alone, answers of any shape, and the real box."""

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkdash.doctor import CHECKS, Probe, checks_named, examine, probe
from sparkdash.doctor import check as podman_info
from sparkdash.doctor.check import DOCKER, DaemonSeen, Disk, Readings, Unreadable, file_system, judge
from sparkdash.doctor.containers import SPECS
from sparkdash.domain.metric import DiskRate
from sparkdash.domain.node import Status
from sparkdash.host.command import CommandResult
from sparkdash.settings import Settings
from sparkdash.units import GIB


async def test_only_what_is_asked_for_is_read(spark: Any) -> None:
    """`doctor swap` starts no podman and wakes no GPU."""

    async def looks() -> list[Any]:
        raise AssertionError("nobody asked for the GPU")

    spark.changes = {"looks": looks}
    (found,) = await spark.examine("swap")
    assert (found.name, found.status) == ("swap", Status.OK)
    assert spark.asked == []


async def test_the_disk_is_read_only_where_its_check_is_named(spark: Any) -> None:
    """Engines may be serving from it; what it gave is told with what a first load takes."""
    rates: list[DiskRate | None] = [
        DiskRate("/m/a.safetensors", GIB, 2.0),
        DiskRate("/m/a.safetensors", 4 * GIB, 1.0),
        None,
    ]
    spark.changes = {"disk_rate": lambda _settings: rates.pop(0)}
    assert "disk" not in {one.name for one in await spark.examine()}
    (slow,), (quick,), (none,) = [await spark.examine("disk") for _ in range(3)]
    assert (slow.status, quick.status, none.status) == (Status.WARN, Status.OK, Status.UNKNOWN)
    assert "0.54 GB/s" in slow.evidence
    assert "60 GiB take 15s at least" in quick.evidence


async def test_a_disk_that_never_answers_holds_up_only_its_own_checks(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead NFS server: the thread is left behind, the finding is unknown, and says why."""
    real = probe.read_within

    def soon(
        what: str, work: Callable[[], Any]
    ) -> Awaitable[Any]:  # the others are as slow as a busy machine makes them
        return real(what, work, limit_s=0.2 if what.startswith("/home") else 60)

    monkeypatch.setattr(probe, "read_within", soon)
    stuck = threading.Event()

    def disk(_path: object) -> Disk:
        stuck.wait(30)
        return Disk(1, 1)

    spark.changes = {"disk": disk}
    found = {one.name: one for one in await spark.examine("weights", "swap", "memory")}
    stuck.set()
    assert found["weights"].status is Status.UNKNOWN
    assert "/home/lab/.cache/huggingface did not answer within 0.2 s" in found["weights"].evidence
    assert found["swap"].status is found["memory"].status is Status.OK


async def test_a_real_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "COMMAND_S", 0.2)
    with pytest.raises(TimeoutError):
        await probe.read_command(["sleep", "60"])


async def test_a_program_that_a_closed_folder_hides_is_not_there(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH may name folders of somebody else: the system then says "permission denied" for "not found"."""
    monkeypatch.setenv("PATH", "/nowhere")
    spark.commands[podman_info.COMMAND] = PermissionError(13, "Permission denied")
    (found,) = await spark.examine("podman")
    assert (found.status, found.evidence) == (Status.FAIL, "podman is not installed.")
    spark.commands[podman_info.COMMAND] = OSError(8, "Exec format error")
    (found,) = await spark.examine("podman")
    assert found.status is Status.FAIL


@pytest.mark.parametrize("runtime", ["podman", "docker", "process"])
async def test_other_runtimes_need_less(spark: Any, runtime: str) -> None:
    """Without podman, what is podman's own is a note or well, never a fault."""
    spark.remove("/etc/subuid")
    spark.remove("/run/cdi/nvidia.yaml")
    spark.commands[DOCKER] = CommandResult(
        0, '{"ServerVersion": "28.3.0", "DockerRootDir": "/var/lib/docker", "SecurityOptions": ["name=rootless"]}', ""
    )
    spark.set(runtime=runtime)
    spark.changes = {"daemon": DaemonSeen("", problem="No sparkdash daemon answers.")}
    faults = {one.name for one in await spark.examine() if one.status in (Status.WARN, Status.FAIL)}
    assert faults == {"podman": {"rootless", "cdi"}, "docker": set(), "process": set()}[runtime]


async def test_a_file_that_may_not_be_read_is_unknown(spark: Any) -> None:
    """Root may read everything, so the refusal is the file's own: a folder where a file should be."""
    spark.remove("/proc/swaps")
    (spark.root / "proc/swaps").mkdir()
    (found,) = await spark.examine("swap")
    assert found.status is Status.UNKNOWN
    assert "proc/swaps cannot be read: it is a folder" in found.evidence


async def test_a_file_that_no_check_foresaw_does_not_hide_the_others(spark: Any) -> None:
    """A stumbling check is unknown, and says over what."""
    spark.write("/proc/swaps", "Filename\nnonsense\n")
    found = {one.name: one for one in await spark.examine("swap", "memory")}
    assert found["swap"].status is Status.UNKNOWN
    assert "IndexError" in found["swap"].evidence
    assert found["memory"].status is Status.OK


async def test_this_box_is_examined_in_a_few_seconds_and_every_check_answers() -> None:
    """The real thing, whatever box this is: no check fails by itself, none asks for what it did not declare."""
    found = await examine(Probe(settings=Settings()))
    assert {one.name for one in found} == {one.name for one in checks_named(())}
    assert [one for one in found if "check itself failed" in one.evidence] == []
    assert all(one.fix for one in found if one.status in (Status.WARN, Status.FAIL))


async def test_the_real_listeners_name_this_process() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (mine,) = [one for one in probe.read_listeners() if one.port == port]
    server.close()
    assert mine.pid is not None
    assert mine.address == "127.0.0.1"


async def test_a_busy_gpu_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three looks while it is busy, one while it is not: the stuck state cannot be told from a single look."""
    from sparkdash.domain.metric import Gpu
    from sparkdash.host.box import GpuReading

    class Nvml:
        utilization = 0.95

        def __init__(self, *, deadline_s: float) -> None:
            self.closed = False

        async def read(self) -> GpuReading:
            return GpuReading(Gpu(utilization=Nvml.utilization))

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(probe, "Nvml", Nvml)
    monkeypatch.setattr(probe, "APART_S", 0.0)
    assert len(await probe.read_looks()) == 3
    Nvml.utilization = 0.2
    assert len(await probe.read_looks()) == 1


async def test_waiting_ends_also_when_the_work_raises() -> None:
    def work() -> int:
        raise OSError("stale file handle")

    answer = await probe.read_within("x", work)
    assert isinstance(answer, Unreadable)
    assert str(answer) == "x cannot be read: stale file handle"


def test_the_file_system_is_that_of_the_innermost_mount() -> None:
    """With spaces as the kernel writes them, and without taking /homework for /home."""
    text = "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /home rw - nfs b rw\n3 1 8:3 / /my\\040disk rw master:2 - xfs c rw\nbad line\n"
    assert file_system("/home/lab/x", text) == "nfs"
    assert file_system("/homework", text) == "ext4"
    assert file_system("/my disk/y", text) == "xfs"
    assert file_system("/x", "") is None


def test_versions_are_compared_as_numbers() -> None:
    """4.10 is after 4.9, and what a distribution adds does not count."""
    assert podman_info.version_numbers("4.10.1") > podman_info.version_numbers("4.9.3+ds1-1ubuntu0.2")
    assert podman_info.version_numbers("5.1") >= (5, 1)
    assert podman_info.version_numbers("") == ()


def test_a_uid_without_a_name_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_123)
    assert Probe(settings=Settings()).user == "4000000123"


SPEC = "/etc/cdi/nvidia.yaml"
WORDS = (
    "cdiVersion", "kind", "devices", "name", "nvidia.com/gpu", "all", "0.5.0",
    "host", "store", "version", "Version", "graphRoot", "graphDriverName", "ociRuntime", "networkBackend", "4.9.3",
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(WORDS) | st.text()
SHAPES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(WORDS), inner), max_leaves=8
)
SPECIFIC = st.fixed_dictionaries(
    {"cdiVersion": SHAPES, "kind": st.just("nvidia.com/gpu")}, optional={"devices": st.lists(SHAPES) | SHAPES}
)
READERS = [
    one
    for one in CHECKS.values()
    if podman_info.COMMAND in one.needs.get("runs", ()) or set(SPECS) & {*one.needs.get("reads", ())}
]


@pytest.mark.parametrize("devices", ["[all]", "all", "7", "[{name: all}, 3]", "{name: all}", "[{}]"])
async def test_a_spec_whose_devices_are_no_devices_is_no_spec(spark: Any, devices: str) -> None:
    """podman's reader refuses the whole file, and so does ours, in the same words as for any other text."""
    spark.write(SPEC, f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: {devices}\n")
    found = await spark.examine("cdi")
    assert found[0].status is Status.FAIL
    assert f"{SPEC} is no CDI spec" in found[0].evidence


@pytest.mark.parametrize("said", ['{"host": []}', '{"version": "4.9.3"}', '{"store": {"graphRoot": 7}}', "[]", "7"])
async def test_podman_may_answer_what_it_likes(spark: Any, said: str) -> None:
    """A word that it does not tell is unknown; the other checks go on."""
    spark.commands[podman_info.COMMAND] = CommandResult(0, said, "")
    found = await spark.examine()
    assert {one.name for one in found} == {one.name for one in checks_named(())}
    assert not [one for one in found if "The check itself failed" in one.evidence]


@given(spec=SPECIFIC | SHAPES, info=SHAPES, as_json=st.booleans())
@settings(max_examples=50)
def test_no_shape_of_a_spec_or_of_podman_s_answer_trips_a_check(spec: object, info: object, as_json: bool) -> None:
    text = json.dumps(spec) if as_json else yaml.safe_dump(spec)
    files = dict.fromkeys((path for one in READERS for path in one.needs.get("reads", ()) if "*" not in path), "") | {
        SPEC: text
    }
    names = {"graphroot": "/", "uid": "1000", "user": "lab", "home": "/home/lab", "hf_home": "/", "cache_dir": "/"}
    answers = dict.fromkeys(
        (argv for one in READERS for argv in one.needs.get("runs", ())), CommandResult(0, json.dumps(info), "")
    )
    readings = Readings(
        uid=1000, names=names, files={p.format_map(names): t for p, t in files.items()}, commands=answers
    )
    failed = [f.evidence for f in judge(readings, READERS) if "The check itself failed" in f.evidence]
    assert not failed, failed
