"""The daemon's own few decisions: its files, accounts of memory, what it records, and how it ends."""

import asyncio
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from logs import capture_logs
from recorded import START, asked, sample
from stored import rows, swap

from sparkdash.bus import Bus
from sparkdash.daemon import build, control_actions, lifecycle, reloading
from sparkdash.daemon.daemon import RECENT_S, SHARED_S, MemoryAccounts
from sparkdash.daemon.profile_files import FilesChange, ProfileFiles
from sparkdash.daemon.samples import record_in, record_notices, recording_samples, restore_past
from sparkdash.domain.event import Level, Notice, RequestChanged, SampleTaken
from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.domain.request import Request
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.errors import HostError
from sparkdash.store import Store
from sparkdash.units import GIB


@pytest.mark.parametrize("stop_engines", [True, False])
async def test_the_daemon_ends_also_when_an_engine_will_not(stop_engines: bool) -> None:
    """A request for both ends does not leave a daemon that serves on as if nothing had been said."""
    told: list[str] = []

    async def stop(_profile: str | None) -> None:
        raise HostError("Process 7 does not end.", code="unkillable")

    supervisor, server = SimpleNamespace(stop=stop), SimpleNamespace(stop=lambda: told.append("stopped"))
    await control_actions.shutdown(cast("Any", SimpleNamespace(supervisor=supervisor, server=server)), stop_engines)
    assert told == ["stopped"]


@pytest.mark.parametrize(("looks", "reads"), [
    ([(False, None)], 0), ([(True, None)], 1), ([(False, 1e-6), (False, 1e-6), (True, None)], 1),
    ([(True, 1e-6), (False, None)], 1), ([(False, 1e-6), (False, None)], 0), ([(False, 1e-6)] * 99, 0),
])  # fmt: skip
async def test_files_are_read_once_they_are_whole(
    looks: list[tuple[bool, float | None]], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is written all the time keeps nobody who asks."""
    read: list[object] = []
    seen = iter([FilesChange(*each) for each in looks])

    async def noted(daemon: object) -> None:
        read.append(daemon)

    async def look() -> FilesChange:
        return next(seen)

    monkeypatch.setattr(reloading, "_read", noted)
    daemon = SimpleNamespace(reload_lock=asyncio.Lock(), files=SimpleNamespace(look=look))
    await reloading.refresh(cast("Any", daemon))
    assert len(read) == reads


async def test_a_reading_that_takes_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller meanwhile gets what held before."""
    monkeypatch.setattr(reloading, "ANSWER_S", 0.01)
    daemon = SimpleNamespace(reload_lock=asyncio.Lock())
    async with daemon.reload_lock:
        await reloading.refresh(cast("Any", daemon))


@pytest.mark.parametrize(("soft", "hard", "then"), [
    (1024, 524_288, 65_536), (1024, 4096, 4096), (1024, resource.RLIM_INFINITY, 65_536), (100_000, 524_288, None),
    (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
])  # fmt: skip
def test_streams_do_not_end_at_the_usual_limit_of_open_files(
    soft: int, hard: int, then: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two descriptors for each: five hundred of them. What the owner has forbidden stays forbidden."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    lifecycle.raise_file_limit()
    assert asked == ([] if then is None else [(then, hard)])


async def test_a_reader_of_an_earlier_daemon_gets_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event numbers of one life never continue another's."""
    parts: Any = SimpleNamespace(host="spark", runtime=SimpleNamespace(name="podman"), simulated=False)
    fact = Notice(level=Level.INFO, code="c", text="t")
    lives = []
    for now in (1000.0, 1001.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        lives.append(Bus(build._first_snapshot(parts, "http://127.0.0.1:1"), time.time))
    last = lives[0].publish(fact).seq
    lives[1].publish(fact)
    lives[1].publish(fact)
    assert await anext(aiter(lives[1].subscribe(last))) == lives[1].snapshot


THEIRS = Holding(kind=Holder.CONTAINER, name="open-webui", bytes=6 * GIB)
FOUND = MemoryAccount(at=1.0, total=9 * GIB, holdings=(THEIRS, Holding(kind=Holder.ENGINE, name="qwen", bytes=3 * GIB)))


class Looks:
    """Looks that end when the gate opens; `now` is the clock."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 100.0
        self.gate = asyncio.Event()
        self.accounts = MemoryAccounts(self.look, lambda: self.now)

    async def look(self) -> MemoryAccount:
        self.count += 1
        await self.gate.wait()
        return FOUND


async def test_all_who_ask_at_once_share_one_look() -> None:
    """Also if the first of them leaves."""
    looks = Looks()
    first, second = (asyncio.create_task(looks.accounts.now()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    looks.gate.set()
    assert await second == FOUND
    assert looks.count == 1


async def test_a_look_counts_for_a_moment_only() -> None:
    looks = Looks()
    looks.gate.set()
    await looks.accounts.now()
    looks.now += SHARED_S
    await looks.accounts.now()
    assert looks.count == 1
    looks.now += SHARED_S + 0.1
    await looks.accounts.now()
    assert looks.count == 2


async def test_a_look_that_fails_is_tried_again() -> None:
    async def fail() -> MemoryAccount:
        raise HostError("No.", code="memory_unread")

    accounts = MemoryAccounts(fail, lambda: 0.0)
    for _ in range(2):
        with pytest.raises(HostError):
            await accounts.now()


async def test_large_holders_that_are_not_ours_are_named_while_the_look_is_recent() -> None:
    looks = Looks()
    assert looks.accounts.foreign() == ()
    looks.gate.set()
    await looks.accounts.now()
    assert looks.accounts.foreign() == (THEIRS,)
    looks.now += RECENT_S + 0.1
    assert (looks.accounts.foreign(), looks.count) == ((), 1)


PROFILE = "profile: {name}\nengine: vllm\nimage: i\nmodels: {{target: {{path: /m}}}}\n"
PATIENCE_S = 30


def write(folder: Path, name: str) -> Path:
    """A profile of that name, in a folder of its own where there is none yet."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(PROFILE.format(name=name))
    return folder


class Mount:
    """A folder that can be made to hang: whoever lists it waits until it answers again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers = threading.Event()
        self.answers.set()
        self.waiting = 0
        self._list = Path.iterdir

    def listed(self, folder: Path) -> Iterator[Path]:
        if folder == self.folder:
            self.waiting += 1
            self.answers.wait(PATIENCE_S)
            self.waiting -= 1
        return self._list(folder)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    made = Mount(write(tmp_path / "mount", "far"))
    monkeypatch.setattr(Path, "iterdir", lambda folder: made.listed(folder))
    yield made
    made.answers.set()


def files(*folders: Path) -> ProfileFiles:
    return ProfileFiles(lambda: folders, Path("/nowhere/config.toml"))


async def test_a_folder_that_hangs_blocks_no_caller_and_is_read_once_it_answers(mount: Mount) -> None:
    """The folder's profiles stay, and one thread waits for it."""
    seen = files(mount.folder)
    await seen.look(PATIENCE_S)
    assert set(seen.catalog().profiles) == {"far"}
    mount.answers.clear()
    write(mount.folder, "further")
    for _ in range(3):
        assert not (await seen.look(0.01)).changed
    assert mount.waiting == 1
    assert set(seen.catalog().profiles) == {"far"}
    assert seen.catalog().problems == ()
    mount.answers.set()
    async with asyncio.timeout(PATIENCE_S):
        while "further" not in seen.catalog().profiles:
            found = await seen.look(PATIENCE_S)
            await asyncio.sleep(found.due_s or 0.01)


async def test_a_daemon_starts_without_a_folder_that_hangs_and_says_so(mount: Mount) -> None:
    seen = files(mount.folder)
    mount.answers.clear()
    await seen.look(0.01)
    assert seen.catalog().profiles == {}
    assert "the folders do not answer" in str(seen.catalog().problems[0])
    mount.answers.set()
    await seen.look(PATIENCE_S)
    assert (set(seen.catalog().profiles), seen.catalog().problems) == ({"far"}, ())


def new_bus() -> Bus:
    info = DaemonInfo(version="1", host="h", pid=1, started_at=START, runtime="podman", url="http://h/v1")
    ticks = iter(range(START + 1, START + 1000))
    return Bus(Snapshot(seq=7, at=START, daemon=info), lambda: float(next(ticks)))


async def test_the_first_snapshot_of_a_daemon_has_the_past_and_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        for number in range(3):
            store.record_request(asked(number, START - 100 + 9 * number, decode_tok_s=40.0 + number))
        store.record_swap(swap("1", 30), "f")
        store.record_notice(Notice(level=Level.INFO, code="old", text="It was.", at=5.0))
    bus = new_bus()
    async with Store.opened(path, bus.publish) as store:
        bus.publish(Notice(level=Level.INFO, code="new", text="It is."))
        restore_past(bus, store)
    known = bus.snapshot
    assert [one.id for one in known.recent] == ["00000002", "00000001", "00000000"]
    assert [one.target for one in known.swaps] == ["a"]
    assert [notice.code for notice in known.notices] == ["new", "old"]
    assert (known.figures["alpha"].best, known.figures["alpha"].decode_tok_s) == (42.0, 41.0)
    bus.publish(RequestChanged(asked(9, START, decode_tok_s=60.0)))
    assert (bus.snapshot.recent[0].id, bus.snapshot.figures["alpha"].best) == ("00000009", 60.0)


async def test_samples_and_notices_are_recorded_and_the_past_is_not_recorded_again(tmp_path: Path) -> None:
    """Notices from the daemon's start on, also those from before the recording began."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        store.record_notice(Notice(level=Level.INFO, code="old", text="It was.", at=5.0))
    bus = new_bus()
    async with Store.opened(path, bus.publish) as store:
        restore_past(bus, store)
        bus.publish(Notice(level=Level.INFO, code="early", text="It is."))
        record_notices(bus, store)
        publish = recording_samples(bus.publish, store)
        for at in (START, START + 1):
            publish(SampleTaken(sample=sample(at)))
        publish(Notice(level=Level.WARNING, code="late", text="It is, too.", profile="alpha"))
    assert rows(path, "SELECT code, profile FROM notices ORDER BY at") == [
        ("old", None), ("early", None), ("late", "alpha"),
    ]  # fmt: skip
    assert rows(path, "SELECT DISTINCT start FROM history_seconds") == [(START,), (START + 1,)]
    assert cast("Any", bus.snapshot.sample).at == START + 1


def test_a_recorder_that_fails_keeps_a_request_from_no_other() -> None:
    request = asked(1, START)
    told: list[Request] = []

    def broken(_request: Request) -> None:
        raise AttributeError("when")

    with capture_logs() as logs:
        record_in(told.append, broken, told.append)(request)
    assert told == [request, request]
    assert [line["request"] for line in logs] == [request.id]
