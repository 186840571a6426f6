"""Flags of SGLang's server, from its sources: calls of `add_argument`, and annotated fields in newer versions."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.flag_tables.observed import Observed, long_first
from tests.flag_tables.python_source import Module, Source, last_name

_ARGS = "sglang/srt/server_args.py"
_FIELDS = "sglang/srt/arg_groups/fields"


def flags(root: Path) -> list[Observed]:
    source = Source(root)
    module = source.at(_ARGS)
    assert module is not None
    args = module.names["ServerArgs"]
    assert isinstance(args, ast.ClassDef)
    adding = next(one for one in args.body if isinstance(one, ast.FunctionDef) and one.name == "add_cli_args")
    found = [Observed(["--help", "-h"], takes="none")]
    found += _fields(args, module, source)
    for file in sorted((root / _FIELDS).glob("*.py")):
        home = source.at(f"{_FIELDS}/{file.name}")
        assert home is not None
        for node in home.names.values():
            if isinstance(node, ast.ClassDef):
                found += _fields(node, home, source)
    local = {
        line.targets[0].id: line.value for line in ast.walk(adding)
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)
    }  # fmt: skip
    for call in ast.walk(adding):
        if isinstance(call, ast.Call) and last_name(call.func) == "add_argument":
            found.append(_argument(call, local, module, source))
    return [one for one in found if one.names]


def _argument(call: ast.Call, local: dict[str, ast.AST], module: Module, source: Source) -> Observed:
    names = [one.value for one in call.args if isinstance(one, ast.Constant) and str(one.value).startswith("-")]
    words = {word.arg: word.value for word in call.keywords if word.arg}
    one = Observed(long_first(names))
    action = ast.unparse(words["action"]) if "action" in words else ""
    _converter(one, words.get("type"))
    one.read_arity(action, words.get("nargs"))
    one.choices = _choices(words.get("choices"), local, module, source)
    told = ast.unparse(words["help"]).lower() if "help" in words else ""
    if "Deprecated" in action or "(deprecated" in told or told.lstrip("'\"f").startswith("deprecated"):
        one.state = "deprecated"
    return one


def _converter(one: Observed, node: ast.AST | None) -> None:
    text = ast.unparse(node) if node is not None else "str"
    if "json" in text:
        one.type = "json"
    elif text in ("int", "float"):
        one.type = text


def _choices(node: ast.AST | None, local: dict[str, ast.AST], module: Module, source: Source) -> list[str] | None:
    values = source.known_value(node, module, local)
    return None if values is None else [str(value) for value in values]


def _fields(node: ast.ClassDef, module: Module, source: Source) -> Iterator[Observed]:
    """Flags of `name: A[type, "help"]` and `A[type, Arg(…)]`."""
    for name, (line, home) in source.fields(node, module).items():
        hint = line.annotation
        if not (isinstance(hint, ast.Subscript) and last_name(hint.value) in ("A", "Annotated")):
            continue
        parts = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
        meta = next((part for part in parts[1:] if _is_meta(part)), None)
        if meta is None:
            continue
        words = {word.arg: word.value for word in meta.keywords if word.arg} if isinstance(meta, ast.Call) else {}
        if "no_cli" in words and ast.unparse(words["no_cli"]) == "True":
            continue
        yield _field(name, parts[0], words, home, source)


def _is_meta(part: ast.expr) -> bool:
    is_call = isinstance(part, ast.Call) and last_name(part.func) == "Arg"
    return (
        is_call
        or isinstance(part, ast.Constant | ast.JoinedStr)
        or (isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add))
    )


def _field(name: str, hint: ast.expr, words: dict[str, ast.expr], module: Module, source: Source) -> Observed:
    own = ast.literal_eval(words["cli_name"]) if "cli_name" in words else f"--{name.replace('_', '-')}"
    names = [own, *(ast.literal_eval(words["aliases"]) if "aliases" in words else [])]
    one = Observed(long_first(names))
    hints = [hit for hit in source.hints(hint, module) if hit[0] != "none"]
    kinds = dict(hints)
    one.choices = _choices(words.get("choices"), {}, module, source)
    if "action" in words:
        one.read_arity(ast.unparse(words["action"]), words.get("nargs"))
    elif "literal" in kinds:
        one.choices = one.choices or [str(value) for value in kinds["literal"]]
        one.type = "int" if isinstance(kinds["literal"][0], int) else "str"
    elif "list" in kinds and "type_parser" not in words:
        element = [kind for kind, _ in (kinds["list"] or [[("str", None)]])[0]]
        one.type = element[0] if element[0] in ("int", "float") else "str"
        one.read_arity("", words.get("nargs", ast.Constant("+")))
    elif list(kinds) == ["bool"]:
        one.takes, one.type = "none", "bool"
    else:
        if "type_parser" in words:
            _converter(one, words["type_parser"])
        elif len(kinds) == 1 and next(iter(kinds)) in ("int", "float"):
            one.type = next(iter(kinds))
        one.read_arity("", words.get("nargs"))
    help_text = ast.unparse(words["help"]).lower() if "help" in words else ""
    if help_text.lstrip("('\"f ").startswith(("deprecated", "[deprecated")):
        one.state = "deprecated"
    return one
