"""Knowledge of an engine is in its folder, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import house

import sparkdash
from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import adapter

ROOT = Path(sparkdash.__file__).parent
IMITATED = {EngineKind.SIM: EngineKind.VLLM}
"""Engines that show another one's surface."""
MOST_QUESTIONS = 10
"""Questions about an engine's kind outside of its folder, and of the kinds' own file."""


def test_every_kind_has_its_module() -> None:
    for kind in EngineKind:
        assert adapter(kind).kind is kind
        assert adapter(kind).title


def test_no_engine_imports_another() -> None:
    """A flag of one engine must never leak into another's command line."""
    graph = house.imports(house.read_tree(ROOT))
    found = []
    for kind in EngineKind:
        others = {f"sparkdash.engines.{other}" for other in EngineKind if other not in (kind, IMITATED.get(kind))}
        for name, targets in graph.items():
            if _is_within(name, f"sparkdash.engines.{kind}"):
                found += [(name, one) for one in targets if any(_is_within(one, other) for other in others)]
    assert found == []


def test_the_rest_of_the_house_asks_the_engine_and_not_for_its_kind() -> None:
    found = house.engine_kind_questions(house.read_tree(ROOT))
    assert len(found) <= MOST_QUESTIONS, found


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
