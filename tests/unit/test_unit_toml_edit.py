"""One value of a TOML text changes; everything around it stays."""

from __future__ import annotations

import pytest

from sparkdash.errors import ProfileError
from sparkdash.settings import set_toml_value

TEXT = """\
# my box

reserve_gib = 10   # keep this
ports = [
  1,
  2,
]

[policy."a/b"] # mine
pinned = true  # yes

[[hooks]]
command = ["x"]
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        (["reserve_gib"], "12", "reserve_gib = 10", "reserve_gib = 12"),
        (["ports"], "[3]", "ports = [\n  1,\n  2,\n]", "ports = [3]"),
        (["ports"], None, "ports = [\n  1,\n  2,\n]\n", ""),
        (["drain_s"], "3", "  2,\n]\n", "  2,\n]\ndrain_s = 3\n"),
        (["policy", "a/b", "idle_ttl_s"], "9", "# yes\n", "# yes\nidle_ttl_s = 9\n"),
        (["policy", "a/b", "pinned"], None, "pinned = true  # yes\n", ""),
        (["policy", "c", "pinned"], "true", "[[hooks]]", "[policy.c]\npinned = true\n[[hooks]]"),
        (["absent"], None, "", ""),
        (["reserve_gib"], "10", "", ""),
    ],
)
def test_one_value_changes_and_the_rest_of_the_text_stays(
    path: list[str], value: str | None, old: str, new: str
) -> None:
    assert set_toml_value(TEXT, path, value) == TEXT.replace(old, new, 1)


def test_a_value_goes_below_the_head_of_a_file_without_any() -> None:
    assert set_toml_value("# mine\n\n[sets]\n", ["a"], "1") == "# mine\na = 1\n\n[sets]\n"
    assert set_toml_value("", ["a"], '"b"') == 'a = "b"\n'


@pytest.mark.parametrize(("text", "new"), [("a.b = 1\n", "a.b = 2\n"), ("a = { b = 1 }\n", "a = { b = 2 }\n")])
def test_dotted_keys_and_inline_tables_keep_their_layout(text: str, new: str) -> None:
    assert set_toml_value(text, ["a", "b"], "2") == new


def test_a_comment_within_the_old_value_is_not_lost() -> None:
    with pytest.raises(ProfileError) as caught:
        set_toml_value("x = [ # why\n 1 ]\n", ["x"], "2")
    assert caught.value.code == "toml_layout"
