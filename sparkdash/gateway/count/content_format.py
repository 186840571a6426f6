"""Content format: whether a template loops over the content of messages, read from its syntax tree.

Owns: the choice of the content's format, by vLLM's rules: a template that loops over a message's content gets parts,
any other a text. Loaded in the counter's process only.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes


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
