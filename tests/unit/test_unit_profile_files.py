"""The owner's files, also where a folder of them hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.catalog.catalog import Catalog
from sparkdash.daemon import profile_files, reloading
from sparkdash.daemon.daemon import Parts
from sparkdash.daemon.profile_files import ProfileFiles
from sparkdash.domain.event import Notice

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
    monkeypatch.setattr(profile_files, "SILENT_S", 0.0)
    yield made
    made.answers.set()


def files(late: Callable[[], object], *folders: Path) -> ProfileFiles:
    """These folders, nobody telling of edits."""
    return ProfileFiles(lambda: folders, Path("/nowhere/config.toml"), late)


async def until_read(seen: ProfileFiles, name: str) -> None:
    """Look until that profile is there; no look waits long for a folder."""
    while name not in seen.catalog().profiles:
        found = await seen.look(0.01)
        await asyncio.sleep(found.due_s or 0.01)


async def test_a_folder_that_hangs_holds_up_nobody(mount: Mount, tmp_path: Path) -> None:
    """What it held stays, the other folder's edits are read, one thread waits for it; when it answers its news are
    read."""
    near, late = write(tmp_path / "near", "near"), asyncio.Event()
    seen = files(late.set, mount.folder, near)
    await seen.look()
    assert set(seen.catalog().profiles) == {"far", "near"}
    mount.answers.clear()
    assert (await seen.look(1.0)).changed  # the other folder answers by then, also on a busy box
    assert seen.silent == {mount.folder}
    assert set(seen.catalog().profiles) == {"far", "near"}
    assert "the folder does not answer" in str(seen.catalog().problems[0])
    write(near, "newer")
    write(mount.folder, "further")
    async with asyncio.timeout(PATIENCE_S):
        await until_read(seen, "newer")
        assert mount.waiting == 1
        mount.answers.set()
        await late.wait()
        await until_read(seen, "further")
        await seen.look(PATIENCE_S)  # those short looks may have missed an answer on a busy box
    assert seen.silent == set()
    assert seen.catalog().problems == ()


async def test_a_daemon_starts_without_a_folder_that_hangs(mount: Mount, tmp_path: Path) -> None:
    """It has the other profiles, and the problem says what is missing."""
    seen = files(lambda: None, mount.folder, write(tmp_path / "near", "near"))
    mount.answers.clear()
    await seen.look(1.0)
    assert set(seen.catalog().profiles) == {"near"}
    assert str(mount.folder) in str(seen.catalog().problems[0])


async def test_a_folder_that_hangs_is_told_once_and_so_is_its_answer(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its name, and what holds meanwhile."""
    told: list[Any] = []
    late = asyncio.Event()
    seen = files(late.set, mount.folder)
    parts = cast("Parts", SimpleNamespace(load_catalog=None))

    async def unchanged(_now: object) -> None: ...

    supervisor = SimpleNamespace(
        catalog=Catalog({}), settings=None, replace_catalog=lambda _: None, need=lambda _: None, sees=lambda _: None
    )
    bus = SimpleNamespace(publish=told.append, snapshot=SimpleNamespace(profiles=(), problems=()))
    daemon: Any = SimpleNamespace(
        files=seen, parts=parts, supervisor=supervisor, bus=bus, rereading=SimpleNamespace(read=unchanged), reload_lock=asyncio.Lock(),
        silent_folders=frozenset(), node_names=("local",),
    )  # fmt: skip
    mount.answers.clear()
    for _ in range(3):
        await reloading.refresh(daemon)
    mount.answers.set()
    await late.wait()
    monkeypatch.setattr(seen, "look", partial(seen.look, PATIENCE_S))  # a folder that answers may be slow
    await reloading.refresh(daemon)
    notices = [fact for fact in told if isinstance(fact, Notice)]
    assert [fact.code for fact in notices] == ["folder_silent", "folder_answers"]
    assert all(str(mount.folder) in fact.text for fact in notices)
