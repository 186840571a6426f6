"""mypy plugin: calls of `Frozen.replace` are checked against the fields of the value that is changed.

pydantic's `model_copy(update={…})` takes any name and any value, and stores them unchecked. `Frozen.replace(**changes)` is
declared with `object`, since no annotation can say "the fields of this class, each of them optional". This plugin says it.
"""

from collections.abc import Callable

from mypy.nodes import ARG_NAMED_OPT, Var
from mypy.plugin import MethodSigContext, Plugin
from mypy.types import CallableType, FunctionLike, Instance, Type, get_proper_type

FROZEN = "sparkdash.domain.base.Frozen"


class TypedReplace(Plugin):
    """Gives `Frozen.replace` the fields of the receiver's class as keyword parameters."""

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        """The hook for any method of that name, since mypy names the receiver's class here; None for every other method."""
        return _signature if fullname.endswith(".replace") else None


def _signature(context: MethodSigContext) -> FunctionLike:
    receiver = get_proper_type(context.type)
    if not isinstance(receiver, Instance) or not receiver.type.has_base(FROZEN):
        return context.default_signature
    fields = _fields(receiver)
    return context.default_signature.copy_modified(
        arg_names=list(fields),
        arg_types=list(fields.values()),
        arg_kinds=[ARG_NAMED_OPT] * len(fields),
        ret_type=receiver,
    )


def _fields(receiver: Instance) -> dict[str, Type]:
    """Name and declared type of each field; the names are those that pydantic's own plugin gives the constructor."""
    symbol = receiver.type.get("__init__")
    made = get_proper_type(symbol.type) if symbol else None
    assert isinstance(made, CallableType), f"no constructor of pydantic's mypy plugin on {receiver.type.fullname}"
    fields: dict[str, Type] = {}
    for name in made.arg_names:
        declared = receiver.type.get(name) if name else None
        if name and declared and isinstance(declared.node, Var) and declared.type:
            fields[name] = declared.type
    return fields


def plugin(version: str) -> type[Plugin]:
    return TypedReplace
