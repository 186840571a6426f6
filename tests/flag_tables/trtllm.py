"""Flags of `trtllm-serve serve`, from the click options in TensorRT-LLM's sources."""

import ast
from pathlib import Path

from tests.flag_tables.observed import Observed, long_first
from tests.flag_tables.python_source import Module, Source, last_name

_SERVE = "tensorrt_llm/commands/serve.py"
_NUMBERS = {"INT": "int", "int": "int", "FLOAT": "float", "float": "float", "IntRange": "int", "FloatRange": "float"}


def flags(root: Path) -> list[Observed]:
    """All options of the command `serve` of a tree that holds the folder `tensorrt_llm`."""
    source = Source(root)
    module = source.at(_SERVE)
    assert module is not None
    function = module.names["serve"]
    assert isinstance(function, ast.FunctionDef)
    found = [Observed(["--help"], takes="none")]
    for call in function.decorator_list:
        if isinstance(call, ast.Call) and last_name(call.func) == "option":
            found.append(_option(call, module, source))
    return found


def _option(call: ast.Call, module: Module, source: Source) -> Observed:
    given = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
    names = [name for word in given if word.startswith("-") for name in word.split("/")]
    words = {word.arg: word.value for word in call.keywords if word.arg}
    one = Observed(long_first(names))
    if "is_flag" in words or any("/" in word for word in given):
        one.takes, one.type = "none", "bool"
    elif "multiple" in words:
        one.takes = "append"
    kind = words.get("type")
    if isinstance(kind, ast.Call) and last_name(kind.func) == "Choice":
        values = source.known_value(kind.args[0], module)
        one.choices = None if values is None else [str(value) for value in values]
        one.folds = any(word.arg == "case_sensitive" for word in kind.keywords)
    elif kind is not None:
        head = last_name(kind.func if isinstance(kind, ast.Call) else kind)
        one.type = _NUMBERS.get(head, "str")
        for word in kind.keywords if isinstance(kind, ast.Call) else ():
            if word.arg in ("min", "max"):
                setattr(one, "low" if word.arg == "min" else "high", source.value(word.value, module))
    elif "default" in words and isinstance(words["default"], ast.Constant):
        value = words["default"].value
        if isinstance(value, int | float) and not isinstance(value, bool) and one.takes == "one":
            one.type = type(value).__name__
    if "deprecated" in ast.unparse(words.get("help", ast.Constant(""))).lower()[:40]:
        one.state = "deprecated"
    return one
