"""Noticing edits, and what stands in for a file that has become bad."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sparkdash import catalog
from sparkdash.catalog.watch import Watch, keeping

Write = Callable[..., Path]


def test_a_watch_tells_each_edit_once(write: Write, good: str) -> None:
    """A new file, an edit, a deletion and a new folder are changes; nothing else is."""
    folder = write(one=good)
    later = folder.parent / "later"
    watch = Watch(lambda: [folder, later])
    assert not watch.changed()
    (folder / "notes.txt").write_text("not a profile")
    assert not watch.changed()
    write(one=good + "# a word more\n")
    assert watch.changed()
    assert not watch.changed()
    write("later", two=good)
    assert watch.changed()
    (folder / "one.yaml").unlink()
    assert watch.changed()
    assert not watch.changed()


def test_a_broken_edit_keeps_the_last_good_version_and_tells_the_problem(write: Write, good: str) -> None:
    """The profile goes on as it was until its file is good again."""
    last = catalog.load([write(file=good)])
    broken = catalog.load([write(file=good + "no_such_key: 1\n")])
    kept = keeping(last, broken)
    assert kept.profiles == last.profiles
    assert "no_such_key" in str(kept.problems[0])
    assert keeping(kept, broken).profiles == last.profiles


def test_a_deleted_file_is_not_kept(write: Write, good: str) -> None:
    """Taking a file away is no mistake."""
    folder = write(file=good)
    last = catalog.load([folder])
    (folder / "file.yaml").unlink()
    assert keeping(last, catalog.load([folder])).profiles == {}


def test_a_broken_file_does_not_bring_a_weaker_folder_s_family_to_light(write: Write, good: str) -> None:
    """The owner's version, not the shipped one, is what ran."""
    shipped, own = write("shipped", tiny=good), write("own", tiny=good.replace("a small one", "mine"))
    last = catalog.load([shipped, own])
    write("own", tiny="profile: [\n")
    assert keeping(last, catalog.load([shipped, own])).profiles["tiny"].about == "mine"


def test_a_name_that_another_file_has_taken_is_not_kept(write: Write, good: str) -> None:
    """Two profiles never answer to one alias."""
    last = catalog.load([write(file=good)])
    folder = write(file=good + "no_such_key: 1\n", other=good.replace("tiny", "newer"))
    kept = keeping(last, catalog.load([folder]))
    assert set(kept.profiles) == {"newer"}
