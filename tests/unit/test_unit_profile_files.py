"""The owner's files, also where a folder of them hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkdash.daemon.profile_files import ProfileFiles

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
