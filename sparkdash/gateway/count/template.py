"""A model's chat template, in a sandbox, and the message format that it expects. For the counter's process only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sparkdash.gateway.count.chat import InvalidPrompt, Uncountable


def loops_over_content(tree: nodes.Node) -> bool:
    """Whether the template loops over a message's content, directly or as a macro's argument."""
    turns = {*_turns(tree)}
    macros = [*tree.find_all(nodes.Macro)]
    inside = {id(loop) for macro in macros for loop in macro.find_all(nodes.For)}
    return (
        any(_is_content(loop.iter, turns) for loop in tree.find_all(nodes.For))
        or any(_name(loop.iter) == "content" for loop in tree.find_all(nodes.For) if id(loop) not in inside)
        or any(_walks_through_what_it_is_handed(tree, macro, turns) for macro in macros)
    )


def _walks_through_what_it_is_handed(tree: nodes.Node, macro: nodes.Macro, turns: set[str]) -> bool:
    handed = {*_handed(tree, macro, turns)}
    return any(_name(loop.iter) in handed for loop in macro.find_all(nodes.For))


def _handed(tree: nodes.Node, macro: nodes.Macro, turns: set[str]) -> Iterator[str]:
    """Yield the macro's parameters that some call gives a message's content."""
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            yield from (to.name for to, given in zip(macro.args, call.args, strict=False) if _is_content(given, turns))
            yield from (
                given.key
                for given in call.kwargs
                if isinstance(given, nodes.Keyword) and _is_content(given.value, turns)
            )


def _turns(tree: nodes.Node) -> Iterator[str]:
    """Yield the names of single messages in loops."""
    lists = _aliases(tree, "messages")
    for loop in tree.find_all(nodes.For):
        if _name(loop.iter) in lists and isinstance(loop.target, nodes.Name):
            yield loop.target.name


def _aliases(tree: nodes.Node, name: str) -> set[str]:
    """List the names that stand for `name` by plain assignments."""
    found, size = {name}, 0
    while size != len(found):
        size = len(found)
        for each in tree.find_all(nodes.Assign):
            if _name(each.node) in found and isinstance(each.target, nodes.Name):
                found.add(each.target.name)
    return found


def _is_content(node: nodes.Node, turns: set[str]) -> bool:
    """Whether this is `message.content` or `message["content"]` of one of these names."""
    match _bare(node):
        case nodes.Getattr(node=nodes.Name(name=name), attr="content"):
            return name in turns
        case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value="content")):
            return name in turns
    return False


def _name(node: nodes.Node) -> str | None:
    bare = _bare(node)
    return bare.name if isinstance(bare, nodes.Name) else None


def _bare(node: nodes.Node) -> nodes.Node:
    """Strip filters, tests and slices: `messages[1:]` is still `messages`."""
    while isinstance(node, nodes.Filter | nodes.Test) or _is_slice(node):
        inner: nodes.Node | None = node.node  # type: ignore[attr-defined]
        if inner is None:
            break
        node = inner
    return node


def _is_slice(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)


Message = dict[str, Any]
_OURS = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"})
"""Names that a client's `chat_template_kwargs` cannot take."""
_FAULTS = (TypeError, ValueError, LookupError, ArithmeticError)
"""Errors that Python raises for a template that does the impossible."""
_TURNS = ("system", "user", "system", "user")


class _Generation(Extension):
    """`{% generation %}` marks what training looks at; in a prompt it is nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Template:
    """A chat template with the model's special tokens. Raises Uncountable: Jinja cannot read it."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _json
        environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
        self._source = source
        self._tokens = tokens
        try:
            self._tree = environment.parse(source)
            self._compiled = environment.from_string(self._tree)
        except TemplateError as error:
            raise Uncountable(f"its chat template cannot be read ({error})") from None

    def prompt(
        self,
        messages: Iterable[Message],
        tools: list[Message] | None = None,
        words: Mapping[str, Any] = {},
        *,
        in_parts: bool | None = None,
    ) -> str:
        """Render the prompt; `words` are further variables. Raises InvalidPrompt: the template refuses it."""
        as_parts = self.in_parts if in_parts is None else in_parts
        variables = {**self._tokens, **{name: value for name, value in words.items() if name not in _OURS}}
        shaped = [_shaped(each, as_parts) for each in messages]
        try:
            return self._compiled.render(variables, messages=shaped, tools=tools, add_generation_prompt=True)
        except (TemplateError, *_FAULTS) as error:
            raise InvalidPrompt(f"the model's chat template refuses it ({error})") from None

    @cached_property
    def system_first(self) -> bool:
        """Whether system messages are allowed at the beginning only.

        Tested as vLLM does: without transformers' additions, so that a template that needs them counts as one that
        refuses.
        """
        bare = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        turns = [{"role": role, "content": "t"} for role in _TURNS]
        try:
            bare.from_string(self._source).render(messages=turns, add_generation_prompt=False)
        except (TemplateError, *_FAULTS):
            return True
        return False

    @cached_property
    def in_parts(self) -> bool:
        """Whether the template loops over the parts of a message's content, rather than taking a text."""
        return loops_over_content(self._tree)


def _shaped(message: Message, in_parts: bool) -> Message:
    given = message.get("content", [])
    texts = [given] if isinstance(given, str) else given
    parts = in_parts and message["role"] != "tool"
    content = [{"type": "text", "text": text} for text in texts] if parts else "\n".join(texts)
    thoughts = {"reasoning_content": message["reasoning"]} if "reasoning" in message else {}
    return {**message, "content": content, **thoughts}


def _json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Encode JSON. Jinja's own filter writes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(words: object) -> NoReturn:
    raise TemplateError(str(words))


def _now(form: str) -> str:
    return datetime.now().strftime(form)
