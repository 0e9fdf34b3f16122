"""How functions of SQL are called in Python: their arguments as the types that they take."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.patterns.history import Value
from millstream.patterns.scalar import arithmetic
from millstream.patterns.scalar.casts import converted, untyped
from millstream.patterns.scalar.codes import Build, Code, Writer

_TIMES = ("timestamp", "timestamp_ntz", "date", "string")


def arguments(tree: exp.Expr) -> list[exp.Expr]:
    """Return what a function is given, in the order of its parameters."""
    found: list[exp.Expr] = []
    for name in tree.arg_types:
        one = tree.args.get(name)
        if isinstance(one, exp.Expr) and name != "unit":
            found.append(one)
        elif name == "expressions" and isinstance(one, list):
            found += one
    return found


def given(writer: Writer, code: Code, kind: str, tree: exp.Expr) -> Code:
    """Return an argument as the type that a function takes.

    Numbers become other numbers, and times other times; texts become times, as in Spark.
    """
    if code.type in (kind, "void"):
        return code
    if code.type is None:
        if code.literal:
            return code

        def read(value: Value) -> Value:
            return untyped(value, kind)

        return Code(f"{writer.name(read)}({code.source})", kind, code.when)
    numbers = arithmetic.numeric(code.type) and arithmetic.numeric(kind)
    if not numbers and not (code.type in _TIMES and kind in _TIMES[:-1]):
        raise writer.refused(tree, f"gives a {code.type} where a {kind} should be")
    return converted(writer, code, kind, tree)


def strict(
    helper: Callable[..., Value], result: str, *takes: str, least: int | None = None
) -> Build:
    """Return what builds a call that is null if an argument is.

    Args:
        helper: Computes it.
        result: Its type.
        takes: The types of its arguments; the last may be repeated.
        least: How many there must be; as many as there are types if it is left out.
    """
    needed = len(takes) if least is None else least

    def build(writer: Writer, tree: exp.Expr) -> Code:
        codes = [
            given(writer, code, takes[min(place, len(takes) - 1)], tree)
            for place, code in enumerate(writer.codes(arguments(tree)))
        ]
        if len(codes) < needed:
            raise writer.refused(tree, f"gives {len(codes)} arguments where {needed} should be")
        return writer.call(helper, result, *codes)

    return build


def nullable(helper: Callable[..., Value], result: str, *takes: str) -> Build:
    """Return what builds a call that is null if an argument is, or if it returns None."""

    def build(writer: Writer, tree: exp.Expr) -> Code:
        return writer.kept(strict(helper, result, *takes)(writer, tree).value, result)

    return build


def constant(writer: Writer, tree: exp.Expr | None, around: exp.Expr) -> Value:
    """Return the value of a literal argument; None if it is left out."""
    if tree is None:
        return None
    code = writer.code(tree)
    if not code.literal:
        raise writer.refused(around, "has an argument that must be a literal")
    return code.of
