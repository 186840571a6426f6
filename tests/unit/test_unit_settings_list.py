"""The settings as a list for screens: values, meanings, and one changed in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.daemon.config_file import change_setting, list_settings
from sparkdash.errors import ProfileError
from sparkdash.settings import Settings, load_settings


def test_every_setting_has_a_meaning_and_a_default(tmp_path: Path) -> None:
    """A screen must explain each of them."""
    now = Settings.model_validate({"any": {"pair": ["a", "b"]}, "reserve_gib": 12})
    found = list_settings(tmp_path / "config.toml", now, Settings)
    rows = {one.name: one for one in found.settings}
    assert list(rows) == list(Settings.model_fields)
    assert [name for name, row in rows.items() if not row.meaning] == []
    assert (rows["reserve_gib"].value, rows["reserve_gib"].default, rows["reserve_gib"].waits) == ("12", "10", "10")
    assert (rows["any"].value, rows["any"].editable) == ("pair", False)
    assert rows["history"].value == "{ max_gib = 1 }"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (["guard"], "warn", 'guard = "warn"\n'),
        (["preload"], "a, b/c", 'preload = ["a", "b/c"]\n'),
        (["drain_s"], "3", "drain_s = 3\n"),
        (["history"], "{ max_gib = 2 }", "history = { max_gib = 2 }\n"),
        (["policy", "a/b", "pinned"], "true", '\n[policy."a/b"]\npinned = true\n'),
    ],
)
def test_a_value_is_written_as_a_person_types_it(tmp_path: Path, key: list[str], value: str, text: str) -> None:
    """The comments stay, and the file can be read by the next daemon."""
    file = tmp_path / "config.toml"
    file.write_text("# mine\n", "utf-8")
    change_setting(file, key, value)
    assert file.read_text("utf-8") == "# mine\n" + text
    load_settings(file)
    change_setting(file, key, None)
    assert load_settings(file) == Settings() or load_settings(file).policy_of("a/b") == Settings().policy_of("a/b")


@pytest.mark.parametrize(("key", "value"), [(["guard"], "perhaps"), (["unknown"], "1"), (["port"], "99999")])
def test_a_value_that_is_not_valid_changes_nothing(tmp_path: Path, key: list[str], value: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n", "utf-8")
    with pytest.raises(ProfileError, match=key[0]):
        change_setting(file, key, value)
    assert file.read_text("utf-8") == "# mine\n"
