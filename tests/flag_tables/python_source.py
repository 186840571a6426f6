"""Reading of Python sources without running them: names, constants and annotations, as far as parsers of flags need."""

import ast
import operator
from functools import cached_property
from pathlib import Path
from typing import Any

OPERATIONS = {
    ast.Add: operator.add, ast.Mult: operator.mul, ast.Sub: operator.sub, ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}  # fmt: skip


class UnknownValueError(Exception):
    """An expression whose value cannot be told from the source."""


class Module:
    """One parsed file; `names` are its top-level definitions, those for run time before those for type checkers."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        self.tree = ast.parse(path.read_text())

    @cached_property
    def names(self) -> dict[str, ast.AST]:
        found: dict[str, ast.AST] = {}
        self._collect(self.tree.body, found)
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for one in node.names:
                    found[one.asname or one.name] = (self._absolute(node), one.name)
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        is_package = self.path.name == "__init__.py"
        base = parts[: len(parts) - node.level + is_package]
        return ".".join([*base, *([node.module] if node.module else [])])

    def _collect(self, body: list[ast.stmt], found: dict[str, ast.AST]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                found |= {name: node.value for name in names if not isinstance(found.get(name), ast.ClassDef)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                found[node.target.id] = node.value
            elif isinstance(node, ast.If):
                is_checking = "TYPE_CHECKING" in ast.unparse(node.test)
                self._collect(node.body if not is_checking else [], found)
                self._collect(node.orelse, found)
            elif isinstance(node, ast.Try):
                self._collect(node.body, found)


class Source:
    """A source tree below `root`, whose top package is `package`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        if name not in self._modules:
            base = self.root / Path(*name.split("."))
            path = next((one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()), None)
            self._modules[name] = Module(path, self.root) if path else None
        return self._modules[name]

    def at(self, path: str) -> Module | None:
        return self.module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))

    def find(self, name: str, module: Module, depth: int = 0) -> tuple[ast.AST, Module] | None:
        """The definition of a name as `module` sees it; follows imports."""
        if name in module.names:
            return module.names[name], module
        if name not in module.imports or depth > 8:
            return None
        home, original = module.imports[name]
        there = self.module(home)
        if there and (found := self.find(original, there, depth + 1)):
            return found
        inner = self.module(f"{home}.{original}")
        return (inner.tree, inner) if inner else None

    def bases(self, node: ast.ClassDef, module: Module) -> list[tuple[ast.ClassDef, Module]]:
        found: list[tuple[ast.ClassDef, Module]] = []
        for base in node.bases:
            name = base.id if isinstance(base, ast.Name) else ""
            hit = self.find(name, module) if name else None
            if hit and isinstance(hit[0], ast.ClassDef):
                found += self.bases(hit[0], hit[1])
        return [*found, (node, module)]

    def value(self, node: ast.AST, module: Module, local: dict[str, ast.AST] | None = None) -> Any:
        """Evaluate constants, their containers and sums, and names of these.

        Raises:
            UnknownValueError: it is anything else.
        """
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                return self._elements(node.elts, module, local)
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand, module, local)
            case ast.BinOp():
                return self._binary(node, module, local)
            case ast.Name():
                return self._named(node.id, module, local)
            case ast.Call(func=ast.Name(id="list" | "set" | "tuple" | "sorted" | "frozenset"), args=[one]):
                return list(self.value(one, module, local))
            case ast.Call(func=ast.Name(id="get_args"), args=[one]):
                return self._literal(one, module)
            case ast.Call(func=ast.Attribute(attr="keys"), args=[]):
                return self.value(node.func.value, module, local)
            case ast.Dict():
                return [self.value(key, module, local) for key in node.keys if key is not None]
            case ast.Attribute(value=ast.Name(id=owner)):
                return self._attribute(owner, node.attr, module)
            case ast.Subscript(value=ast.Name(id="Literal")):
                return self._literal(node, module)
        raise UnknownValueError(ast.dump(node)[:80])

    def known_value(self, node: ast.AST | None, module: Module, local: dict[str, ast.AST] | None = None) -> Any:
        """As `value`; None where it cannot be told."""
        try:
            return None if node is None else self.value(node, module, local)
        except UnknownValueError:
            return None

    def _elements(self, nodes: list[ast.expr], module: Module, local: dict[str, ast.AST] | None) -> list[Any]:
        found: list[Any] = []
        for one in nodes:
            if isinstance(one, ast.Starred):
                found += self.value(one.value, module, local)
            else:
                found.append(self.value(one, module, local))
        return found

    def _binary(self, node: ast.BinOp, module: Module, local: dict[str, ast.AST] | None) -> Any:
        left, right = self.value(node.left, module, local), self.value(node.right, module, local)
        if (operation := OPERATIONS.get(type(node.op))) is None:
            raise UnknownValueError("operator")
        return operation(left, right)

    def _named(self, name: str, module: Module, local: dict[str, ast.AST] | None) -> Any:
        if local and name in local:
            return self.value(local[name], module, {key: one for key, one in local.items() if key != name})
        if (hit := self.find(name, module)) is None:
            raise UnknownValueError(name)
        return self.value(hit[0], hit[1])

    def _attribute(self, owner: str, attribute: str, module: Module) -> Any:
        hit = self.find(owner, module)
        if hit and isinstance(hit[0], ast.ClassDef):
            for node in hit[0].body:
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                        if name == attribute and node.value:
                            return self.value(node.value, hit[1])
        raise UnknownValueError(f"{owner}.{attribute}")

    def _literal(self, node: ast.AST, module: Module) -> list[Any]:
        values = self.literal(node, module)
        if values is None:
            raise UnknownValueError("literal")
        return values

    def literal(self, node: ast.AST, module: Module) -> list[Any] | None:
        """Values of a `Literal[…]`, also behind a name; None for anything else."""
        if isinstance(node, ast.Name):
            hit = self.find(node.id, module)
            return self.literal(hit[0], hit[1]) if hit else None
        if not (isinstance(node, ast.Subscript) and last_name(node.value) == "Literal"):
            return None
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found: list[Any] = []
        for part in parts:
            inner = self.literal(part, module)
            found += inner if inner is not None else [self.value(part, module)]
        return found

    def hints(self, node: ast.AST | None, module: Module) -> list[tuple[str, Any]]:
        """Alternatives of an annotation, each as kind and detail."""
        match node:
            case None:
                return []
            case ast.Constant(value=None):
                return [("none", None)]
            case ast.Constant(value=str() as text):
                return self.hints(ast.parse(text, mode="eval").body, module)
            case ast.BinOp(op=ast.BitOr()):
                return self.hints(node.left, module) + self.hints(node.right, module)
            case ast.Subscript():
                return self._subscript(node, module)
            case ast.Name() | ast.Attribute():
                return self._name_hint(last_name(node), module)
        return [("other", ast.dump(node)[:40])]

    def _subscript(self, node: ast.Subscript, module: Module) -> list[tuple[str, Any]]:
        head = last_name(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head in ("Optional",):
            return [*self.hints(parts[0], module), ("none", None)]
        if head == "Union":
            return [hint for part in parts for hint in self.hints(part, module)]
        if head in ("Annotated", "A", "SkipValidation", "Required", "Final"):
            return self.hints(parts[0], module)
        if head == "Literal":
            return [("literal", self._literal(node, module))]
        if head in ("list", "List", "Sequence", "set", "Set", "tuple", "Tuple"):
            return [(head.lower().replace("sequence", "list"), [self.hints(part, module) for part in parts])]
        if head in ("dict", "Dict", "Mapping"):
            return [("dict", None)]
        return [("other", head)]

    def _name_hint(self, name: str, module: Module) -> list[tuple[str, Any]]:
        if name in ("bool", "int", "float", "str", "list", "tuple", "set", "dict"):
            return [(name, [])]
        hit = self.find(name, module)
        if hit is None:
            return [("other", name)]
        node, home = hit
        if not isinstance(node, ast.ClassDef):
            return self.hints(node, home) if isinstance(node, ast.expr) else [("other", name)]
        heads = {
            last_name(base.value if isinstance(base, ast.Subscript) else base)
            for one, _ in self.bases(node, home)
            for base in one.bases
        }
        if "dict" in heads:
            return [("dict", None)]
        if is_dataclass(node):
            return [("class", (node, home))]
        return [("other", name)]

    def fields(self, node: ast.ClassDef, module: Module) -> dict[str, tuple[ast.AnnAssign, Module]]:
        """Annotated fields of a dataclass and its bases, in their order."""
        found: dict[str, tuple[ast.AnnAssign, Module]] = {}
        for one, home in self.bases(node, module):
            for line in one.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    head = ast.unparse(line.annotation)
                    if not head.startswith(("ClassVar", "InitVar", "typing.ClassVar")):
                        found[line.target.id] = (line, home)
        return found

    def bounds(self, line: ast.AnnAssign, module: Module) -> dict[str, float]:
        """Limits that pydantic's Field gives a number."""
        found: dict[str, float] = {}
        for call in ast.walk(line):
            if isinstance(call, ast.Call) and last_name(call.func) == "Field":
                for word in call.keywords:
                    key = {"ge": "low", "gt": "above", "le": "high", "lt": "below"}.get(word.arg or "")
                    limit = self.known_value(word.value, module)
                    if key and isinstance(limit, int | float):
                        found[key] = limit
        return found


def is_dataclass(node: ast.ClassDef) -> bool:
    """Whether a class is decorated as a dataclass, or as one of vLLM's configs."""
    names = {last_name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list}
    return bool(names & {"dataclass", "config"})


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
