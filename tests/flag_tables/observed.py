"""Flag as one version's source defines it."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Observed:
    """One definition. `choices` is None where the source leaves the values open."""

    names: list[str]
    takes: str = "one"
    """`none`, `toggle` (also as `--no-…`), `one`, `optional`, `many` (words that follow), `append`, `pair`."""
    type: str = "str"
    """`str`, `int`, `float`, `bool`, `count` (4k, 1M), `count-or-auto`, `json`, `json-or-str`."""
    choices: list[str] | None = None
    folds: bool = False
    """Whether case, and hyphens against underscores, do not matter in the value."""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    keys: list[str] = field(default_factory=list)
    """Keys of a JSON value, where the source says that there are no others."""
    state: str = ""
    """`removed` (the parser names it only to refuse it), `deprecated`, or nothing."""

    def facts(self) -> dict[str, Any]:
        """All but the names, without what says nothing."""
        found = {key: value for key, value in vars(self).items() if key not in ("names", "choices", "keys")}
        return {key: value for key, value in found.items() if value is not None and value is not False and value != ""}

    def read_arity(self, action: str, nargs: ast.AST | str | int | None) -> None:
        """Set what the flag takes by the source of argparse's `action`, and by its `nargs`."""
        count = nargs.value if isinstance(nargs, ast.Constant) else nargs
        if "BooleanOptionalAction" in action:
            self.takes, self.type = "toggle", "bool"
        elif re.search("store_|StoreTrue", action) or action == "DeprecatedAction":
            self.takes, self.type = "none", "bool"
        elif "append" in action:
            self.takes = "append"
        elif count == "?":
            self.takes = "optional"
        elif count in ("+", "*") or isinstance(count, int):
            self.takes = "many"


def long_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: not name.startswith("--"))
