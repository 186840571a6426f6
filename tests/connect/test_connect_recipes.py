"""Each client's configuration, word for word; and what holds for all of them."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sparkdash.connect.client_setup import setup_facts, setup_page
from sparkdash.connect.clients import RECIPES, find_recipe
from sparkdash.connect.recipe import MASK, VARIABLE, GatewayTarget, Language
from sparkdash.errors import AdmissionError

GOLDEN = Path(__file__).parent / "golden"
PLACE = GatewayTarget("http://127.0.0.1:8484", "qwen3-coder-30b/eagle3", 131072)
KEYED = GatewayTarget("https://spark.lan:8484", "gpt-oss-120b", None, "sk-sparkdash-SECRET")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("place", [PLACE, KEYED], ids=["open", "keyed"])
def test_what_is_printed(name: str, place: GatewayTarget) -> None:
    """Run with SPARKDASH_WRITE_GOLDEN=1 to agree on a new one."""
    file = GOLDEN / f"{name}.{'keyed' if place.key else 'open'}.txt"
    told = setup_page(RECIPES[name], RECIPES[name].setup(place), place)
    if os.environ.get("SPARKDASH_WRITE_GOLDEN"):
        file.write_text(told)
    assert told == file.read_text()
    assert RECIPES[name].source


@pytest.mark.parametrize("name", RECIPES)
def test_no_key_is_ever_printed(name: str) -> None:
    """Neither for people nor for programs; a word stands where it belongs, or the client reads a variable."""
    setup = RECIPES[name].setup(KEYED)
    told = setup_page(RECIPES[name], setup, KEYED) + str(setup_facts(RECIPES[name], setup, KEYED))
    assert "SECRET" not in told
    assert (MASK in told) == (name not in ("llm", "vscode"))  # these two keep keys in a safe of their own
    assert "32768 tokens are assumed" in told


@pytest.mark.parametrize("name", [name for name in RECIPES if RECIPES[name].setup(PLACE).snippets])
@pytest.mark.parametrize("place", [PLACE, KEYED], ids=["open", "keyed"])
def test_a_librarys_program_is_whole(name: str, place: GatewayTarget) -> None:
    """Nothing in it is left to be filled in, what is Python compiles, and a key is read from its variable."""
    for snippet in RECIPES[name].setup(place).snippets:
        assert not re.search(r"<[A-Z_0-9]+>", snippet.text)
        assert "SECRET" not in snippet.text
        assert (VARIABLE in snippet.text) == bool(place.key)
        if snippet.language is Language.PYTHON:
            compile(snippet.text, name, "exec")


@pytest.mark.parametrize(("name", "word"), [
    ("llm", "vision: true"), ("aider", '"supports_vision": true'), ("cline", "Supports Images"),
    ("vscode", '"vision": true'), ("continue", "image_input"), ("opencode", '"image"'), ("pi", '"image"'),
])  # fmt: skip
def test_clients_that_must_be_told_of_eyes_are_told(name: str, word: str) -> None:
    """Otherwise they leave pictures out of a request; for a model not known to read them nothing is claimed."""
    seeing, blind = replace(PLACE, sees=True), PLACE
    assert word in setup_page(RECIPES[name], RECIPES[name].setup(seeing), seeing)
    assert word not in setup_page(RECIPES[name], RECIPES[name].setup(blind), blind)


def test_an_unknown_client_gets_the_nearest_names() -> None:
    with pytest.raises(AdmissionError) as caught:
        find_recipe("claude")
    assert caught.value.hint == "Did you mean claude-code or codex or cline? `sparkdash connect --list` shows all 32."


def test_continue_gets_a_second_model_for_autocomplete() -> None:
    (file,) = RECIPES["continue"].setup(replace(PLACE, autocomplete="qwen2.5-coder-7b")).files
    chat, second = file.content["models"]
    assert "autocomplete" not in chat["roles"]
    assert (second["model"], second["roles"]) == ("qwen2.5-coder-7b", ["autocomplete"])
    assert second["requestOptions"]["headers"] == {"X-Sparkdash-Priority": "autocomplete"}
