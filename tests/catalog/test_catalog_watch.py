"""Noticing edits, and what stands in for a file that has become bad."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkdash import catalog
from sparkdash.catalog.load import QUIET_S, ProfileFileWatch, keep_last_good

Write = Callable[..., Path]


def test_a_watch_tells_each_edit_once(write: Write, good: str) -> None:
    """A new file, an edit, a deletion and a new folder are changes; nothing else is."""
    folder = write(one=good)
    later, clock = folder.parent / "later", [100.0]
    watch = ProfileFileWatch(lambda: [folder, later], clock=lambda: clock[0])

    def changed() -> bool:
        found = watch.due()
        clock[0] += QUIET_S
        return found == QUIET_S and watch.due() == 0.0

    assert not changed()
    (folder / "notes.txt").write_text("not a profile")
    assert not changed()
    write(one=good + "# a word more\n")
    assert changed()
    assert not changed()
    write("later", two=good)
    assert changed()
    (folder / "one.yaml").unlink()
    assert changed()
    assert not changed()


def test_what_is_being_written_is_not_due(tmp_path: Path) -> None:
    """An editor that writes in place empties the file first; some take it away for a moment. It is due once nothing changed any more."""
    file, clock = tmp_path / "config.toml", [100.0]
    file.write_text("port = 9000\n")
    watch = ProfileFileWatch(list, [file], clock=lambda: clock[0])
    file.unlink()
    assert watch.due() == QUIET_S
    clock[0] += QUIET_S / 2
    assert watch.due() == QUIET_S / 2
    file.write_text("")
    assert watch.due() == QUIET_S
    clock[0] += QUIET_S * 0.9
    file.write_text("port = 9001\n")
    assert watch.due() == QUIET_S
    clock[0] += 3600  # however long nobody looked
    assert watch.due() == 0.0
    assert watch.due() is None


def test_a_broken_edit_keeps_the_last_good_version_and_tells_the_problem(write: Write, good: str) -> None:
    """The profile goes on as it was until its file is good again."""
    last = catalog.load_catalog([write(file=good)])
    broken = catalog.load_catalog([write(file=good + "no_such_key: 1\n")])
    kept = keep_last_good(last, broken)
    assert kept.profiles == last.profiles
    assert "no_such_key" in str(kept.problems[0])
    assert keep_last_good(kept, broken).profiles == last.profiles


def test_a_deleted_file_is_not_kept(write: Write, good: str) -> None:
    folder = write(file=good)
    last = catalog.load_catalog([folder])
    (folder / "file.yaml").unlink()
    assert keep_last_good(last, catalog.load_catalog([folder])).profiles == {}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_a_folder_that_cannot_be_listed_is_a_problem_and_keeps_its_profiles(
    write: Write, good: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor left, rights taken away: its files are there, and so is what runs of them."""
    folders = [write("one", file=good), write("two", other=good.replace("tiny", "newer").replace("small", "large"))]
    last = catalog.load_catalog(folders)
    list_it = Path.iterdir

    def listed(folder: Path) -> Iterator[Path]:
        if folder == folders[0]:
            raise OSError(number, os.strerror(number))
        return list_it(folder)

    monkeypatch.setattr(Path, "iterdir", listed)
    read = catalog.load_catalog(folders)
    assert set(read.profiles) == {"newer"}
    assert os.strerror(number) in str(read.problems[0])
    assert keep_last_good(last, read).profiles == last.profiles


def test_a_broken_file_does_not_bring_a_weaker_folder_s_family_to_light(write: Write, good: str) -> None:
    """The owner's version, not the shipped one, is what ran."""
    shipped, own = write("shipped", tiny=good), write("own", tiny=good.replace("a small one", "mine"))
    last = catalog.load_catalog([shipped, own])
    write("own", tiny="profile: [\n")
    assert keep_last_good(last, catalog.load_catalog([shipped, own])).profiles["tiny"].about == "mine"


def test_a_name_that_another_file_has_taken_is_not_kept(write: Write, good: str) -> None:
    """Two profiles never answer to one alias."""
    last = catalog.load_catalog([write(file=good)])
    folder = write(file=good + "no_such_key: 1\n", other=good.replace("tiny", "newer"))
    kept = keep_last_good(last, catalog.load_catalog([folder]))
    assert set(kept.profiles) == {"newer"}
