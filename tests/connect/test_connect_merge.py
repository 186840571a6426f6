"""A client's own file: everything of its owner's stays, and what would be lost is refused."""

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.connect import client_setup, merge
from sparkdash.connect.clients import RECIPES
from sparkdash.connect.merge import merge_file, merge_values
from sparkdash.connect.recipe import ConfigFile, FileFormat, GatewayTarget
from sparkdash.errors import AdmissionError

PLACE = GatewayTarget("http://127.0.0.1:8484", "alpha", 65536)
FILES = [(name, file) for name, each in RECIPES.items() for file in each.setup(PLACE).files]
ids = [f"{name}-{number}" for number, (name, _) in enumerate(FILES)]


def read(told: str, form: FileFormat) -> Any:
    return {FileFormat.JSON: json.loads, FileFormat.TOML: tomllib.loads, FileFormat.YAML: yaml.safe_load}[form](told)


@pytest.mark.parametrize(("_name", "file"), FILES, ids=ids)
def test_a_new_file_is_whole_and_a_second_write_changes_nothing(_name: str, file: ConfigFile) -> None:
    new = merge_file("", file)
    wanted = {**file.seed, **file.content} if file.seed else file.content
    assert read(new, file.format) == wanted
    assert merge_file(new, file) == new


@pytest.mark.parametrize(("_name", "file"), [each for each in FILES if each[1].format is FileFormat.YAML])
def test_a_yaml_file_keeps_its_comments(_name: str, file: ConfigFile) -> None:
    mine = "# mine\n- model_id: other  # keep\n" if isinstance(file.content, list) else "# mine\nversion: 7  # keep\n"
    new = merge_file(mine, file)
    assert new.startswith(mine)
    assert yaml.safe_load(new) == merge_values(yaml.safe_load(mine), file.content, file.same)


CONTINUE = """\
name: My own
version: 1.0.0
schema: v1
models:
  # the one I like
  - name: GPT
    provider: openai   # cloud
    model: gpt-4o

  - name: Other
    provider: ollama
    model: x
context:
  - provider: file
"""


def test_a_model_is_added_at_the_end_of_the_list() -> None:
    (file,) = RECIPES["continue"].setup(PLACE).files
    new = merge_file(CONTINUE, file)
    found = yaml.safe_load(new)
    assert [model["name"] for model in found["models"]] == ["GPT", "Other", "sparkdash alpha"]
    assert found["name"] == "My own"
    kept = [line for line in new.splitlines() if line in CONTINUE.splitlines()]
    assert "\n".join(kept) + "\n" == CONTINUE
    assert merge_file(new, file) == new


def test_another_place_changes_the_model_or_is_refused() -> None:
    """An item that is there already, with another address, is nobody's text to cut."""
    (file,) = RECIPES["continue"].setup(PLACE).files
    before = merge_file(CONTINUE, file)
    (moved,) = RECIPES["continue"].setup(GatewayTarget("http://127.0.0.1:9999", "alpha", 65536)).files
    with pytest.raises(AdmissionError, match="left as it is"):
        merge_file(before, moved)


def test_a_scalar_is_changed_on_its_own_line() -> None:
    file = RECIPES["aider"].setup(PLACE).files[0]
    new = merge_file("dark-mode: true\nmodel: gpt-4o\n# end\n", file)
    assert new.startswith("dark-mode: true\nmodel: openai/alpha\n# end\n")
    with pytest.raises(AdmissionError):
        merge_file("model: gpt-4o # because\n", file)


ZED = """\
// Zed settings
{
  "theme": "One Dark", // mine
  "url": "http://x", /* not a comment: // */
  "list": [1, 2,],
}
"""


def test_an_editors_settings_keep_their_comments() -> None:
    """A new key is put first; one that is there already is refused, if there are comments."""
    (file,) = RECIPES["zed"].setup(PLACE).files
    new = merge_file(ZED, file)
    for line in ZED.splitlines():
        assert line in new
    found = merge.parse_jsonc(new)
    assert found["language_models"] == {"llama.cpp": {"api_url": PLACE.root}}
    assert found["url"] == "http://x"
    assert merge_file(new, file) == new
    with pytest.raises(AdmissionError, match="comments"):
        merge_file('{ // c\n "language_models": {"ollama": {}} }', file)
    assert " // empty\n}" in merge_file("{ // empty\n}", file)


def test_plain_json_is_merged_at_any_depth_with_its_indentation() -> None:
    (file,) = RECIPES["opencode"].setup(PLACE).files
    old = '{\n\t"theme": "x",\n\t"provider": {"mine": {"npm": "y"}}\n}\n'
    new = merge_file(old, file)
    found = json.loads(new)
    assert list(found) == ["theme", "provider", "model", "small_model"]
    assert found["provider"]["mine"] == {"npm": "y"}
    assert '\n\t"theme"' in new


@pytest.mark.parametrize(("name", "old"), [
    ("opencode", "[]"), ("opencode", "{"), ("continue", "models: ["), ("vscode", "{}"),
    ("codex", 'x = 1\nmodel = "mine"\n'),
])  # fmt: skip
def test_what_is_not_understood_is_left_alone(name: str, old: str) -> None:
    file = RECIPES[name].setup(PLACE).files[0]
    with pytest.raises(AdmissionError, match="left as it is") as caught:
        merge_file(old, file)
    assert "by hand" in (caught.value.hint or "")


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.dictionaries(st.text(max_size=5), VALUES, max_size=4)
)
def test_any_json_keeps_what_is_not_asked_for(before: dict[str, Any], more: dict[str, Any]) -> None:
    file = ConfigFile("f", FileFormat.JSON, more)
    new = merge_file(json.dumps(before), file)
    found = json.loads(new)
    assert {key: value for key, value in found.items() if key not in more} == {
        key: value for key, value in before.items() if key not in more
    }
    assert merge_file(new, file) == new


PRINTED = st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" ")
"""Characters that recipes write: TOML has no lone control characters, and integers of 64 bits."""
NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(
    st.dictionaries(
        st.text(PRINTED, min_size=1, max_size=6),
        NUMBERS
        | st.booleans()
        | st.text(PRINTED, max_size=8)
        | st.dictionaries(st.text(PRINTED, min_size=1, max_size=4), NUMBERS, max_size=2),
        max_size=4,
    )
)
def test_our_toml_is_toml(content: dict[str, Any]) -> None:
    back = tomllib.loads(merge.as_toml(content))
    assert back == {key: value for key, value in content.items() if value != {}}


def test_writing_keeps_a_backup_the_mode_and_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "opencode.json"
    real.parent.mkdir()
    real.write_text('{"theme": "x"}')
    real.chmod(0o640)
    link = tmp_path / "opencode.json"
    link.symlink_to(real)
    (file,) = RECIPES["opencode"].setup(PLACE).files
    change = client_setup.plan_change(file, link)
    assert '+  "model": "sparkdash/alpha",' in change.diff()
    backup = client_setup.apply_change(change)
    assert backup is not None
    assert backup.read_text() == '{"theme": "x"}'
    assert link.is_symlink()
    assert json.loads(real.read_text())["theme"] == "x"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert not client_setup.plan_change(file, link).needed


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    (file,) = RECIPES["codex"].setup(PLACE).files
    path = tmp_path / "new" / "x.toml"
    assert client_setup.apply_change(client_setup.plan_change(file, path)) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
