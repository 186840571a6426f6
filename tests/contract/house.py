"""The source tree as figures and graphs: who imports whom, which modules claim to be pure, how long and how clear things are.

Used by the contract tests and by `make metrics`. Reads source files and imports none of them.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PURE = "Pure."
"""Last word of the docstring of a module that does no I/O and reads no clock."""
# fmt: off
IMPURE = frozenset({
    "aiohttp", "asyncio", "fastapi", "fcntl", "http.client", "http.server", "httptools", "httpx", "logging", "mmap",
    "multiprocessing", "psutil", "queue", "requests", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib.request", "uvicorn",
})
# fmt: on
"""Modules that a pure module may not import while the program runs. Imports under `TYPE_CHECKING` are free."""
# fmt: off
PRONOUNS = frozenset({
    "anybody", "anything", "everybody", "everything", "he", "her", "him", "his", "i", "it", "its", "itself",
    "nobody", "none", "nothing", "one", "ones", "she", "somebody", "something", "such", "that", "their", "them",
    "there", "these", "they", "this", "those", "us", "we", "what", "whatever", "which", "who", "whoever", "whom",
    "whose", "you", "your",
})
# fmt: on
"""First words that name nothing a reader can see."""
PARAMETERS = 8
FOLDER_LIMIT = 25
"""Modules in one folder; a reader takes in no more names at once."""
FILE_LIMIT = 700
"""Lines of a file; a longer one has two subjects."""
SMALL = 40
"""Lines below which a file that is no `__init__` could be part of the one that uses it."""
FUNCTION_LIMIT = 70


@dataclass(frozen=True)
class Module:
    """Source file and its syntax tree."""

    name: str
    text: str

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def code_lines(self) -> int:
        """Lines that are no docstring, comment or blank line."""
        texts = {n for node in self.docstring_nodes() for n in range(node.lineno, (node.end_lineno or 0) + 1)}
        lines = enumerate(self.text.splitlines(), 1)
        return sum(n not in texts and bool(line.strip()) and not line.lstrip().startswith("#") for n, line in lines)

    @cached_property
    def head_lines(self) -> int:
        head = 0
        for node in self.tree.body:
            if not isinstance(node, ast.Import | ast.ImportFrom) and not (node is self.tree.body[0] and _is_text(node)):
                break
            head = node.end_lineno or head
        return head

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def is_pure(self) -> bool:
        return (ast.get_docstring(self.tree) or "").split()[-1:] == [PURE]

    def imported(self, *, types: bool) -> Iterator[tuple[str, ...]]:
        """Dotted parts of every name that is imported; `types`: with those that only the type checker loads."""
        skipped = set() if types else {id(node) for node in _for_types(self.tree)}
        for node in ast.walk(self.tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                yield from (tuple(alias.name.split(".")) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from ((*node.module.split("."), alias.name) for alias in node.names)

    def docstrings(self) -> Iterator[str]:
        yield from (node.value.value for node in self.docstring_nodes())  # type: ignore[attr-defined]

    def docstring_nodes(self) -> Iterator[ast.Expr]:
        """Statements that are nothing but a text."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Lambda | ast.IfExp):
                yield from (each for each in getattr(node, "body", None) or () if _is_text(each))

    def public_classes(self) -> Iterator[str]:
        """Names of the classes that other modules may use."""
        return (n.name for n in self.tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_"))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def read_tree(root: Path) -> dict[str, Module]:
    """Every module of the package at `root`, by dotted name; a package has the name of its folder."""
    found = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, file.read_text())
    return found


def imports(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Names of the project's modules that each module imports, those for the type checker included."""
    return {name: {to for to in _targets(module, modules) if to != name} for name, module in modules.items()}


def _targets(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    for parts in module.imported(types=True):
        whole, above = ".".join(parts), ".".join(parts[:-1])
        if whole in modules:
            yield whole
        elif above in modules:
            yield above


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """A group of modules that import each other, directly or not; none in a tree without such."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [sorted(set(error.args[1]))]
    return []


def impurities(modules: Mapping[str, Module]) -> list[str]:
    """`module imports name` for every import that a module with the mark `Pure.` may not have."""
    pure = [module for module in modules.values() if module.is_pure]
    return [f"{module.name} imports {name}" for module in pure for name in sorted(_impure(module))]


def _impure(module: Module) -> set[str]:
    names = {".".join(parts[:depth]) for parts in module.imported(types=False) for depth in (1, 2)}
    return names & IMPURE


def shared_class_names(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Names of public classes that two or more modules define, with those modules."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for each in module.public_classes():
            found[each].append(name)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def pronoun_docstrings(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    found = {
        name: [line for text in module.docstrings() if (line := text.strip().partition("\n")[0]) and _is_pronoun(line)]
        for name, module in modules.items()
    }
    return {name: lines for name, lines in found.items() if lines}


def _is_pronoun(line: str) -> bool:
    return line.split()[0].strip(",.:;").partition("'")[0].lower() in PRONOUNS


def modules_per_folder(modules: Mapping[str, Module]) -> dict[str, int]:
    """Modules that lie directly in each package, without `__init__` and packages below."""
    packages = {name.rpartition(".")[0] for name in modules} - {""}
    found: defaultdict[str, int] = defaultdict(int)
    for name in modules:
        if name not in packages and (above := name.rpartition(".")[0]):
            found[above] += 1
    return dict(found)


@dataclass(frozen=True)
class Function:
    """Size and parameters of a function or method; ruff's C90 bounds its complexity."""

    place: str
    """`module:line name`."""
    parameters: int
    """Names in the parameter list, without `self` and `cls`."""
    lines: int
    """Lines from its `def` to its end, the docstring included."""


def functions(modules: Mapping[str, Module]) -> list[Function]:
    """Every function and method; one inside another counts for itself."""
    return [
        Function(f"{name}:{node.lineno} {node.name}", _parameters(node), _length(node))
        for name, module in modules.items()
        for node in ast.walk(module.tree)
        if isinstance(node, _FUNCTIONS)
    ]


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def protocols(modules: Mapping[str, Module]) -> list[str]:
    """`module Class` of every class that is a `typing.Protocol` itself; asyncio's class of that name is none."""
    return [
        f"{name} {node.name}"
        for name, module in modules.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and any(_base(base) == "Protocol" for base in node.bases)
    ]


def _base(node: ast.expr) -> str:
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node).removeprefix("typing.")


def engine_kind_questions(modules: Mapping[str, Module]) -> list[str]:
    """`module:line` of every use of `EngineKind.` outside the engines' room and the profile."""
    return [
        f"{name}:{node.lineno}"
        for name, module in modules.items()
        if not name.startswith(("sparkdash.engines", "sparkdash.domain.profile"))
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "EngineKind"
    ]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in given)


def _for_types(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for statement in node.body:
                yield from ast.walk(statement)
