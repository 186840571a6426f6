"""The shape of the source tree: no circles, no I/O where a module calls itself pure, each engine in its folder, folders and names that one can take in."""

import tomllib
from pathlib import Path

import house
import pytest

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import adapter

ROOT = Path(__file__).parents[2]
PURE_ROOMS = tuple(
    f"sparkdash.{room}"
    for room in (
        "domain", "engines", "rules", "connect.recipe", "doctor.box", "doctor.containers",
        "doctor.memory", "doctor.services", "gateway.protocol", "supervisor.decide", "bench.judge",
    )
)  # fmt: skip
"""Rooms in which every module carries the mark."""


@pytest.fixture(scope="module")
def modules() -> dict[str, house.Module]:
    return house.read_tree(ROOT / "sparkdash")


def test_no_module_imports_itself_through_others_not_even_for_types(modules: dict[str, house.Module]) -> None:
    assert house.circles(house.imports(modules)) == []


def test_what_calls_itself_pure_imports_nothing_that_waits_or_tells_the_time(modules: dict[str, house.Module]) -> None:
    assert house.impurities(modules) == []


def test_rooms_of_decisions_are_pure_throughout(modules: dict[str, house.Module]) -> None:
    unmarked = [
        name for name, m in modules.items() if name.startswith(PURE_ROOMS) and not m.is_pure and m.tree.body[1:]
    ]
    assert unmarked == []


def test_no_folder_has_more_modules_than_a_reader_takes_in(modules: dict[str, house.Module]) -> None:
    crowded = {name: n for name, n in house.modules_per_folder(modules).items() if n > house.FOLDER_LIMIT}
    assert crowded == {}


def test_class_names_mean_one_thing(modules: dict[str, house.Module]) -> None:
    shared = house.shared_class_names(modules)
    assert len(shared) <= 11, shared


def test_docstrings_name_their_thing(modules: dict[str, house.Module]) -> None:
    found = house.pronoun_docstrings(modules)
    assert sum(map(len, found.values())) <= 4, found


def test_a_file_is_one_subject(modules: dict[str, house.Module]) -> None:
    long = {name: module.lines for name, module in modules.items() if module.lines > house.FILE_LIMIT}
    assert long == {}


def test_the_head_of_a_file_is_short(modules: dict[str, house.Module]) -> None:
    """Docstring and imports: a house of few large files has few heads."""
    assert sum(m.head_lines for m in modules.values()) <= 0.086 * sum(m.lines for m in modules.values())


def test_functions_are_short(modules: dict[str, house.Module]) -> None:
    """Half of them have at most 7 lines, 95 % at most 21, and none more than 70."""
    functions = sorted(house.functions(modules), key=lambda each: each.lines)
    assert functions[-1].lines <= house.FUNCTION_LIMIT, functions[-1]
    assert functions[len(functions) // 2].lines <= 7
    assert functions[len(functions) * 95 // 100].lines <= 21


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    for name, text in {
        "__init__": "",
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B\n",
        "b": "from p import c\n",
        "c": "import p.a\n",
        "d": "from p import a\n",
    }.items():
        (tmp_path / "p" / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "p" / f"{name}.py").write_text(text)
    assert house.circles(house.imports(house.read_tree(tmp_path / "p"))) == [["p.a", "p.b", "p.c"]]


@pytest.mark.parametrize(("line", "found"), [
    ("import time", ["time"]), ("from asyncio import sleep", ["asyncio"]), ("import urllib.request", ["urllib.request"]),
    ("def wait() -> None:\n    import socket", ["socket"]),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio", []),
])  # fmt: skip
def test_a_planted_import_of_io_is_refused_unless_only_types_need_it(line: str, found: list[str]) -> None:
    planted = house.Module("breaker", f'"""Breaker: counts failures.\n\nPure.\n"""\n\n{line}\n')
    assert house.impurities({"breaker": planted}) == [f"breaker imports {name}" for name in found]


def test_every_room_has_a_floor_and_a_row_on_the_map() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract["name"] == "layers")
    placed = {room.strip().removeprefix("sparkdash.") for floor in floors for room in floor.split("|")}
    files = [f for f in (ROOT / "sparkdash").iterdir() if f.suffix == ".py" or (f / "__init__.py").exists()]
    rooms = {file.stem for file in files if not file.stem.startswith("__")}
    page = (ROOT / "sparkdash" / "ARCHITECTURE.md").read_text()
    assert placed == rooms
    assert {room for room in rooms if f"`{room}`" not in page and f"`{room}/`" not in page} == set()


IMITATED = {EngineKind.SIM: EngineKind.VLLM}
"""Engines that show another one's surface."""
MOST_QUESTIONS = 10
"""Questions about an engine's kind outside of its folder, and of the kinds' own file."""


def test_every_kind_has_its_module() -> None:
    for kind in EngineKind:
        assert adapter(kind).kind is kind
        assert adapter(kind).title


def test_no_engine_imports_another(modules: dict[str, house.Module]) -> None:
    """A flag of one engine must never leak into another's command line."""
    graph = house.imports(modules)
    found = []
    for kind in EngineKind:
        others = {f"sparkdash.engines.{other}" for other in EngineKind if other not in (kind, IMITATED.get(kind))}
        for name, targets in graph.items():
            if _is_within(name, f"sparkdash.engines.{kind}"):
                found += [(name, one) for one in targets if any(_is_within(one, other) for other in others)]
    assert found == []


def test_the_rest_of_the_house_asks_the_engine_and_not_for_its_kind(modules: dict[str, house.Module]) -> None:
    found = house.engine_kind_questions(modules)
    assert len(found) <= MOST_QUESTIONS, found


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
