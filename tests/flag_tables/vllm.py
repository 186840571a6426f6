"""Flags of `vllm serve`, from vLLM's sources: its parser is built from the annotations of its configuration classes."""

import ast
import copy
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

from tests.flag_tables.observed import Observed, long_first
from tests.flag_tables.python_source import Module, Source, UnknownValueError, is_dataclass, last_name

_PARSERS = ("vllm/entrypoints/launchers/cli_args.py", "vllm/entrypoints/openai/cli_args.py")
_COUNTS = (
    "max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes", "safetensors_prefetch_block_size",
    "max_num_queued_tokens",
)  # fmt: skip

Keywords = dict[str, Any]


def flags(root: Path) -> list[Observed]:
    return _Reader(Source(root)).read()


class _Filled(ast.NodeTransformer):
    """Puts the values of one turn of a loop in the place of its names."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Observed] = [Observed(["--help", "-h"], takes="none")]
        engine = source.at("vllm/engine/arg_utils.py")
        assert engine is not None
        self.engine = engine
        text = engine.path.read_text()
        self.counts = [name for name in _COUNTS if f'"{name}"' in text]
        self.has_optional_bool = "bool, str, type(None)" in text
        self.text = text

    def read(self) -> list[Observed]:
        module = next(found for path in _PARSERS if (found := self.source.at(path)))
        maker = module.names["make_arg_parser"]
        assert isinstance(maker, ast.FunctionDef)
        self.walk(maker.body, {}, module, None)
        for name, home in (("FrontendArgs", module), ("EngineArgs", self.engine), ("AsyncEngineArgs", self.engine)):
            self.method(name, home)
        return self.found

    def method(self, name: str, module: Module) -> None:
        """Follow `add_cli_args` of a class, wherever in its bases it is."""
        node = module.names[name]
        assert isinstance(node, ast.ClassDef)
        bases = self.source.bases(node, module)
        functions = [(one, home) for owner, home in bases for one in owner.body if isinstance(one, ast.FunctionDef)]
        self.customised = [each for each in functions if each[0].name == "_customize_cli_kwargs"]
        function, home = [each for each in functions if each[0].name == "add_cli_args"][-1]
        self.walk(function.body, {}, home, (node, module))

    def walk(self, body: list[ast.stmt], env: dict[str, Any], module: Module, owner: Any) -> None:
        """Follow statements in order; both branches of a condition."""
        for line in body:
            if isinstance(line, ast.For):
                self.loop(line, env, module)
            elif isinstance(line, ast.If | ast.With | ast.Try):
                self.walk(line.body, env, module, owner)
                self.walk(getattr(line, "orelse", []), env, module, owner)
            elif isinstance(line, ast.Assign):
                self.assign(line, env, module, owner)
            elif isinstance(line, ast.Delete):
                for target in line.targets:
                    self.delete(target, env)
            elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
                self.call(line.value, env, module)

    def assign(self, line: ast.Assign, env: dict[str, Any], module: Module, owner: Any) -> None:
        target = line.targets[0]
        if isinstance(target, ast.Name):
            if isinstance(line.value, ast.Call) and last_name(line.value.func) == "_customize_cli_kwargs":
                if "super()" in ast.unparse(line.value.func):
                    return  # every class in the chain is followed below
                for function, home in self.customised:
                    self.walk(function.body, {"frontend_kwargs": env[target.id]}, home, owner)
                return
            try:
                env[target.id] = self.evaluate(line.value, env, module, owner)
            except UnknownValueError:
                env.pop(target.id, None)
        elif isinstance(target, ast.Subscript):
            try:
                holder = self.evaluate(target.value, env, module, owner)
                key = self.source.value(target.slice, module)
            except UnknownValueError:
                return
            if isinstance(holder, dict):
                holder[key] = line.value

    def delete(self, target: ast.expr, env: dict[str, Any]) -> None:
        if isinstance(target, ast.Subscript):
            try:
                holder = self.evaluate(target.value, env, self.engine, None)
            except UnknownValueError:
                return
            holder.pop(ast.literal_eval(target.slice), None)

    def evaluate(self, node: ast.AST, env: dict[str, Any], module: Module, owner: Any) -> Any:
        """Keyword arguments by field, or those of one field."""
        match node:
            case ast.Name(id=name) if name in env:
                return env[name]
            case ast.Subscript():
                held = self.evaluate(node.value, env, module, owner)
                key = self.source.value(node.slice, module)
                if isinstance(held, dict) and key in held:
                    return held[key]
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]):
                if name == "cls" and owner:
                    return self.keywords(*owner)
                hit = self.source.find(name, module)
                if hit and isinstance(hit[0], ast.ClassDef):
                    return self.keywords(hit[0], hit[1])
        raise UnknownValueError(ast.dump(node)[:60])

    def loop(self, line: ast.For, env: dict[str, Any], module: Module) -> None:
        """`for key, value in kwargs.items(): group.add_argument(f"--{key…}", **value)`."""
        match line.iter:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if isinstance(env.get(name), dict):
                for key, keywords in env[name].items():
                    self.add([f"--{key.replace('_', '-')}"], keywords, module)
        if isinstance(line.iter, ast.List) and isinstance(line.target, ast.Tuple):
            names = [ast.unparse(name) for name in line.target.elts]
            for row in line.iter.elts:
                values = dict(zip(names, row.elts, strict=True)) if isinstance(row, ast.Tuple) else {}
                body = [_Filled(values).visit(copy.deepcopy(each)) for each in line.body]
                self.walk(body, env, module, None)

    def call(self, call: ast.Call, env: dict[str, Any], module: Module) -> None:
        if last_name(call.func) == "remove" and isinstance(call.func, ast.Attribute):
            try:
                held = self.evaluate(call.func.value, env, module, None)
                value = self.source.value(call.args[0], module)
            except UnknownValueError:
                return
            if isinstance(held, list) and value in held:
                held.remove(value)
        if last_name(call.func) != "add_argument":
            return
        names = [one.value for one in call.args if isinstance(one, ast.Constant)]
        keywords: Keywords = {}
        for word in call.keywords:
            if word.arg:
                keywords[word.arg] = word.value
            elif isinstance(word.value, ast.Dict):
                for key, value in zip(word.value.keys, word.value.values, strict=True):
                    if key is None:
                        keywords |= self.evaluate(value, env, module, None)
                    else:
                        keywords[ast.literal_eval(key)] = value
            else:
                keywords |= self.evaluate(word.value, env, module, None)
        if names and names[0].startswith("-"):
            self.add(names, keywords, module)

    def add(self, names: list[str], keywords: Keywords, module: Module) -> None:
        """Note a flag from the arguments of `add_argument`; what is still source is read now."""
        one = Observed(long_first(names))
        one.type = self.type(keywords.get("type"))
        action = keywords.get("action")
        action = action if isinstance(action, str) else ast.unparse(action) if action else ""
        one.read_arity(action, keywords.get("nargs"))
        choices = keywords.get("choices")
        if isinstance(choices, ast.AST):
            choices = self.source.known_value(choices, module)
        if choices:
            one.choices = [str(choice) for choice in choices]
            if "permutations(get_args(DetailedTraceModules)" in self.text and "--collect-detailed-traces" in names:
                modules = [choice for choice in one.choices if choice != "None"]
                one.choices += [",".join(pair) for pair in permutations(modules, r=2)]
        if isinstance(keywords.get("type"), ast.Lambda):
            one.folds = ".lower()" in ast.unparse(keywords["type"])
        if one.takes not in ("none", "toggle"):
            for key, limit in keywords.get("bounds", {}).items():
                setattr(one, key, limit)
            one.keys = keywords.get("keys", [])
        help_text = ast.unparse(keywords["help"]) if isinstance(keywords.get("help"), ast.AST) else ""
        if "deprecated" in keywords or "Deprecat" in action or "DEPRECAT" in help_text:
            one.state = "deprecated"
        self.found.append(one)

    def type(self, given: Any) -> str:
        if isinstance(given, str):
            return given
        text = ast.unparse(given) if isinstance(given, ast.AST) else "str"
        if "json.loads" in text or "dict_type" in text:
            return "json"
        if "human_readable_int_or_auto" in text:
            return "count-or-auto"
        if "human_readable_int" in text:
            return "count"
        if "union_dict_and_str" in text:
            return "json-or-str"
        return next((name for name in ("int", "float") if text == name or text == f"optional_type({name})"), "str")

    def keywords(self, node: ast.ClassDef, module: Module) -> dict[str, Keywords]:
        """Keywords that `get_kwargs` makes of a configuration class."""
        fields = self.source.fields(node, module)
        return {name: self.field(name, line, home) for name, (line, home) in fields.items()}

    def field(self, name: str, line: ast.AnnAssign, module: Module) -> Keywords:
        hints = self.source.hints(line.annotation, module)
        kinds = {kind for kind, _ in hints}
        made: Keywords = {"bounds": self.source.bounds(line, module)}
        by_kind = dict(hints)
        if "class" in kinds:
            node, home = by_kind["class"]
            made |= {"type": "json", "keys": list(self.settable(node, home))}
        elif (kinds == {"bool", "str", "none"} and self.has_optional_bool) or name == "hf_token":
            made |= {"type": "str", "nargs": "?"}
        elif "bool" in kinds:
            made |= {"action": "BooleanOptionalAction"}
        elif "literal" in kinds:
            values = [value for kind, detail in hints if kind == "literal" for value in detail]
            made |= {"type": "int" if isinstance(values[0], int) else "str"}
            made |= {} if "str" in kinds else {"choices": sorted(values)}
        elif kinds & {"list", "tuple", "set"}:
            kind = next(one for one in ("tuple", "list", "set") if one in kinds)
            element = [one for one, _ in (by_kind[kind] or [[("str", None)]])[0]]
            made |= {"type": element[0] if element in (["int"], ["float"]) else "str", "nargs": "+"}
            literal = dict((by_kind[kind] or [[]])[0]).get("literal")
            made |= {"choices": literal} if literal else {}
        elif "int" in kinds:
            made["type"] = self._number(name)
        elif "float" in kinds:
            made["type"] = "float"
        elif "dict" in kinds:
            made["type"] = "json-or-str" if kinds & {"str", "other"} else "json"
        else:
            made["type"] = "str"
        if "none" in kinds and made.get("choices"):
            made["choices"] = [*made["choices"], "None"]
        return copy.deepcopy(made) if "keys" not in made else made

    def _number(self, name: str) -> str:
        if name == "max_model_len" and '"max_model_len"' in self.text:
            return "count-or-auto" if "human_readable_int_or_auto" in self.text else "count"
        return "count" if name in self.counts else "int"

    def settable(self, node: ast.ClassDef, module: Module) -> Iterator[str]:
        assert is_dataclass(node)
        for name, (line, _) in self.source.fields(node, module).items():
            text = ast.unparse(line.value) if line.value else ""
            if "init=False" not in text and not name.startswith("_"):
                yield name
