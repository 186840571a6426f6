"""The pages and hints for people: every link and command leads somewhere, and docs/settings.md is made from the code.

SPARKDASH_GOLDEN=write makes that page anew.
"""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import typer.main
from pydantic import BaseModel

from sparkdash import errors
from sparkdash.cli.main import app
from sparkdash.daemon.config_file import LIVE, read_meanings, value_text
from sparkdash.doctor import CHECKS
from sparkdash.doctor.nodes.examine import check_list
from sparkdash.domain.profile import Profile, ServerSpec
from sparkdash.settings import HistorySettings, Policy, Settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "sparkdash").rglob("*.md")])
MOST_PAGES, MOST_WORDS, MOST_README = 16, 21_000, 1_400
SETTINGS = ROOT / "docs" / "settings.md"
BEGIN, END = "<!-- made from the code: {} -->", "<!-- end: {} -->"
VARIABLES = {
    "SPARKDASH_HOST": "`host`, over config.toml",
    "SPARKDASH_PORT": "`port`, over config.toml",
    "SPARKDASH_RUNTIME": "`runtime`, over config.toml",
    "SPARKDASH_URL": "address of the daemon that commands and dashboard ask, such as a demo's or another box's",
    "SPARKDASH_KEY": "key for that address; the unix socket needs none",
    "SPARKDASH_CONFIG_DIR": "folder of config.toml, keys.json and your profiles: `~/.config/sparkdash`",
    "SPARKDASH_STATE_DIR": "folder of the database, logs, builds and evidence: `~/.local/state/sparkdash`",
    "SPARKDASH_BENCH_DIR": "folder of measured runs: `bench` in the state folder",
    "SPARKDASH_RUNTIME_DIR": "folder of the unix socket: `sparkdash` in XDG_RUNTIME_DIR",
    "SPARKDASH_THEME": "theme of the dashboard",
}
INTERNAL = {f"SPARKDASH_{name}" for name in ("COMPLETE", "DEMO_LEASH", "ENGINE", "SIM_DIR", "SIM_HEAD_DIR")}
"""Set by sparkdash itself: for its engines, demo and the shell's completion."""


def words(page: Path) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in page.read_text().split())


def test_the_docs_stay_short_enough_to_be_read() -> None:
    docs = list((ROOT / "docs").glob("*.md"))
    assert len(docs) <= MOST_PAGES
    assert sum(map(words, docs)) <= MOST_WORDS
    assert words(ROOT / "README.md") <= MOST_README


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")).replace(" ", "-") for title in titles}


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def test_every_link_between_the_pages_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page, target in links():
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


COMMAND = re.compile(r"(?:^|&& )(?:\$ )?(?:[A-Z_]+=\S+ )*sparkdash ([^#&;]*)")


def shown_commands() -> Iterator[tuple[str, str]]:
    """Return each command of sparkdash that README, docs and the messages of the code show, with its file."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        prose, fenced = [], []
        for part, block in enumerate(re.split(r"^```\w*$", page.read_text(), flags=re.MULTILINE)):
            (fenced if part % 2 else prose).append(block)
        for line in [*"\n".join(fenced).splitlines(), *re.findall(r"`([^`]+)`", "\n".join(prose))]:
            for found in COMMAND.findall(" ".join(line.split())):
                yield page.name, found.split("|")[0].partition(" > ")[0]
    for file, source in ((file, file.read_text()) for file in (ROOT / "sparkdash").rglob("*.py")):
        for node in ast.walk(ast.parse(source)) if "`sparkdash " in source else ():
            if isinstance(node, ast.JoinedStr):
                text = "".join(one.value if isinstance(one, ast.Constant) else "NAME" for one in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            for line in re.findall(r"`([^`]+)`", text):
                yield from ((f"{file.name}:{node.lineno}", found) for found in COMMAND.findall(" ".join(line.split())))


def test_every_command_that_people_read_exists_with_its_options() -> None:
    root = typer.main.get_command(app)
    checks = {*CHECKS, *(name for name, _ in check_list(()))}
    wrong = []
    for place, line in shown_commands():
        command, words = root, [word for word in line.partition(" -- ")[0].split() if not word.startswith("[")]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        if command is root.commands["bench"] and words:  # a profile, which `run` measures
            command = command.commands["run"]  # type: ignore[attr-defined]
        options = {one for parameter in command.params for one in parameter.opts} | {"--help"}
        if any(word.startswith("-") and len(word) > 1 and word not in options for word in words):
            wrong.append(f"{place}: sparkdash {line}: an option")
        elif words and words[0][0].islower() and hasattr(command, "commands"):
            wrong.append(f"{place}: sparkdash {line}: no such command")
        elif command.name == "doctor" and not options & set(words) and set(words) - checks - {"NAME"}:
            wrong.append(f"{place}: sparkdash {line}: no such check")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("page", "model"), [("profiles", Profile), ("servers", ServerSpec)])
def test_every_key_that_people_write_has_its_line(page: str, model: type[BaseModel]) -> None:
    told = re.findall(r"`([a-z_]+)`", (ROOT / "docs" / f"{page}.md").read_text())
    keys = {"profile" if name == "name" else name for name in model.model_fields}
    keys -= {"built_by", "adapters", "fewer"}  # no keys of a file
    assert keys - set(told) == set()


def test_every_page_that_code_and_tests_name_exists() -> None:
    named = {
        (file.relative_to(ROOT).as_posix(), page)
        for room in ("sparkdash", "tests")
        for file in (ROOT / room).rglob("*")
        if file.suffix in (".py", ".md", ".txt") and "tests/data" not in file.as_posix()
        for page in re.findall(r"(?<![\w/.-])docs/[a-z-]+\.md", file.read_text(errors="replace"))
    }
    foreign = {"docs/gguf.md"}  # ggml's own
    ollama = ("sparkdash/gateway/apis/ollama_wire.py", "docs/api.md")
    assert [one for one in sorted(named - {ollama}) if one[1] not in foreign and not (ROOT / one[1]).is_file()] == []


def test_every_file_that_the_pages_name_exists() -> None:
    named = {
        (page.relative_to(ROOT).as_posix(), file)
        for page in PAGES
        for file in re.findall(r"`((?:tests|sparkdash|profiles|docs)/[\w/.-]+\.\w+)", page.read_text())
    }
    examples = {"sparkdash/engines/mlx.py", "sparkdash/engines/ENGINE/flags.json"}
    assert [one for one in sorted(named) if one[1] not in examples and not (ROOT / one[1]).is_file()] == []


def parts() -> Mapping[str, str]:
    """Return the parts of docs/settings.md that are made from the code."""
    tables, head = {"policy": Policy, "history": HistorySettings}, ("key", "default", "meaning")
    return {
        "settings": _rows(head, _settings(Settings, tables)),
        **{name: _rows(head, _settings(model, {})) for name, model in tables.items()},
        "exit codes": _rows(("code", "means"), _exit_codes()),
        "variables": _rows(("variable", "sets"), ((f"`{name}`", text) for name, text in VARIABLES.items())),
    }


def _exit_codes() -> Iterator[tuple[str, str]]:
    yield "0", "success"
    yield "1", "a failure that none of the others names"
    named = {
        kind.exit_code: (kind.__doc__ or "").splitlines()[0].rstrip(".").lower()
        for kind in reversed(errors.SparkdashError.__subclasses__())
        if kind.__module__ == errors.__name__
    }
    yield from ((str(code), text) for code, text in sorted((named | {2: f"wrong usage, or {named[2]}"}).items()))
    yield "130", "ended by Ctrl-C"


def _settings(model: type[BaseModel], tables: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    meanings = read_meanings(model)
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else value_text(field.get_default())
        star = "" if model is not Settings or name in LIVE else " *"
        below = "; its keys are below" if name in tables else _choices(field.annotation)
        yield f"`{name}`{star}", f"`{default}`" if default.strip('-"[]') else "-", meanings[name].rstrip(".") + below


def _choices(annotation: object) -> str:
    """Name the values of a setting that takes one of a few words."""
    parts = [annotation, *get_args(annotation)]
    found = [one for part in parts if get_origin(part) is Literal for one in get_args(part)]
    return f": {', '.join(f'`{one}`' for one in found)}" if found else ""


def _rows(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_parts(page: str) -> str:
    for name, text in parts().items():
        before, _, rest = page.partition(BEGIN.format(name))
        page = f"{before}{BEGIN.format(name)}\n{text}\n{END.format(name)}{rest.partition(END.format(name))[2]}"
    return page


def test_the_page_of_settings_is_the_one_of_today_s_code() -> None:
    """Every setting with its default, every exit code, every variable."""
    if os.environ.get("SPARKDASH_GOLDEN") == "write":
        SETTINGS.write_text(with_parts(SETTINGS.read_text()))
    assert SETTINGS.read_text() == with_parts(SETTINGS.read_text())


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_every_variable_of_the_page_is_read_by_the_code(name: str) -> None:
    stem = name.removeprefix("SPARKDASH_").lower()
    assert name in variables_in_code() or stem in ("host", "port", "runtime")  # these by their setting's name


def test_every_variable_of_the_code_is_on_the_page() -> None:
    assert variables_in_code() - INTERNAL - set(VARIABLES) == set()


@cache
def variables_in_code() -> set[str]:
    sources = (file.read_text() for file in (ROOT / "sparkdash").rglob("*.py"))
    found = {name for text in sources for name in re.findall(r"(?<![A-Z_])_?(SPARKDASH_[A-Z_]*[A-Z])(?![A-Z_{])", text)}
    return found - {"YOUR_SPARKDASH_KEY"}


ROOMS = ("catalog", "daemon", "engines", "gateway", "host", "keyring", "rules", "supervisor", "telemetry", "upstream")
"""Rooms whose words reach clients and people who asked for one profile; usage texts of the command line do not."""
PLACEHOLDER = re.compile(r"`sparkdash [a-z]+ (?:PROFILE|NAME|MODEL)`")


def files_of(room: Path) -> list[Path]:
    """Modules of a folder, or the one module of that name."""
    return list(room.rglob("*.py")) or [room.with_suffix(".py")]


def test_no_hint_prints_a_placeholder_for_the_name_of_a_profile() -> None:
    """A command in a hint can be typed as it stands there."""
    found = [
        f"{file.name}:{node.lineno}: {node.value}"
        for room in ROOMS
        for file in files_of(ROOT / "sparkdash" / room)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and PLACEHOLDER.search(node.value)
    ]
    assert found == []
