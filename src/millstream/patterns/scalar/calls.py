"""Functions of Spark SQL as Python: those that take any type here, the others beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlglot import exp

from millstream.patterns import typed
from millstream.patterns.history import Value
from millstream.patterns.scalar import arithmetic
from millstream.patterns.scalar.calling import arguments
from millstream.patterns.scalar.calls_of_numbers import NUMBER_CALLS, NUMBER_NAMES
from millstream.patterns.scalar.calls_of_text import TEXT_CALLS
from millstream.patterns.scalar.calls_of_time import TIME_CALLS, TIME_NAMES
from millstream.patterns.scalar.casts import trying
from millstream.patterns.scalar.codes import Build, Code, Writer, asked, compiled
from millstream.patterns.scalar.operators import alike, calculated, compared, is_null

# What takes any type


def _extreme(choose: Callable[..., Value]) -> Build:
    def most(*values: Value) -> Value:
        known = (value for value in values if value is not None)
        return choose(known, key=arithmetic.ordered, default=None)

    def build(writer: Writer, tree: exp.Expr) -> Code:
        codes = alike(writer, writer.codes([tree.this, *tree.expressions]), tree)
        kind = next((code.type for code in codes if code.type != "void"), "void")
        values = ", ".join(code.value for code in codes)
        return writer.kept(f"{writer.name(most)}({values})", kind)

    return build


def _null_if(writer: Writer, tree: exp.Nullif) -> Code:
    code = writer.code(tree.this)
    left, right = alike(writer, [code, writer.code(tree.expression)], tree)
    same = " and ".join((*asked(left, right), compared(writer, "==", left, right)))
    return writer.kept(f"(None if {same} else {code.value})", code.type)


def _null_else(writer: Writer, tree: exp.Nvl2) -> Code:
    missing = is_null(writer.code(tree.this))
    codes = writer.codes([tree.args["true"], tree.args["false"]])
    there, other = alike(writer, codes, tree)
    kind = other.type if there.type == "void" else there.type
    return writer.kept(f"({other.value} if {missing} else {there.value})", kind)


def _is_null(*, wanted: bool) -> Build:
    def build(writer: Writer, tree: exp.Expr) -> Code:
        source = is_null(writer.code(arguments(tree)[0]))
        return Code(source if wanted else f"(not {source})", "boolean")

    return build


# Arrays, maps and structs


def _size(writer: Writer, tree: exp.Expr) -> Code:
    code = writer.code(arguments(tree)[0])
    if code.type is not None and not code.type.startswith(("array<", "map<")):
        raise writer.refused(tree, f"takes the size of a {code.type}")
    return writer.call(len, "int", code)


def _contains(writer: Writer, tree: exp.ArrayContains) -> Code:
    array, wanted = writer.codes(arguments(tree))
    if array.type is not None:
        if not array.type.startswith("array<"):
            raise writer.refused(tree, f"looks into a {array.type}")
        inner = Code("", typed.element_of(array.type))
        wanted = alike(writer, [inner, wanted], tree)[1]
    found = writer.call(has, "boolean", array, wanted)
    return writer.kept(found.value, "boolean")


def has(array: list[Value], wanted: Value) -> bool | None:
    """Tell whether a list has a value; unknown if it has not, and has nulls."""
    if any(one is not None and arithmetic.equal(one, wanted) for one in array):
        return True
    return None if None in array else False


def _array(writer: Writer, tree: exp.Array) -> Code:
    codes = alike(writer, writer.codes(tree.expressions), tree)
    kind = next((code.type for code in codes if code.type != "void"), "void")
    values = ", ".join(code.value for code in codes)
    return Code(f"[{values}]", None if kind is None else f"array<{kind}>")


def _extreme_of(choose: Callable[..., Value]) -> Build:
    def most(array: list[Value]) -> Value:
        known = (one for one in array if one is not None)
        return choose(known, key=arithmetic.ordered, default=None)

    def build(writer: Writer, tree: exp.Expr) -> Code:
        array = writer.code(tree.this)
        if array.type is not None and not array.type.startswith("array<"):
            raise writer.refused(tree, f"looks into a {array.type}")
        kind = None if array.type is None else typed.element_of(array.type)
        return writer.kept(writer.call(most, kind, array).value, kind)

    return build


def _item(writer: Writer, tree: exp.Bracket) -> Code:
    container, place = writer.code(tree.this), writer.code(tree.expressions[0])
    kind = container.type
    if kind is not None and kind.startswith("array<"):
        helper: Callable[..., Value] = element_at if tree.args.get("offset") == 1 else item
        if tree.args.get("safe"):
            helper = try_element_at
        element = typed.element_of(kind)
    elif kind is not None and kind.startswith("map<"):
        helper, element = entry, typed.value_of(kind)
    elif kind is None and tree.args.get("offset") == 1:
        helper, element = (try_held if tree.args.get("safe") else held), None
    else:
        raise writer.refused(tree)
    return writer.kept(writer.call(helper, element, container, place).value, element)


def item(array: list[Value], place: int) -> Value:
    if not 0 <= place < len(array):
        raise ValueError(f"there is no place {place} in {len(array)} elements")
    return array[place]


def element_at(array: list[Value], place: int) -> Value:
    """Return an element counted from 1, or from the end."""
    if place == 0 or not -len(array) <= place <= len(array):
        raise ValueError(f"there is no place {place} in {len(array)} elements")
    return array[place - 1 if place > 0 else place]


def try_element_at(array: list[Value], place: int) -> Value:
    return element_at(array, place) if 1 <= abs(place) <= len(array) else None


def held(container: Value, place: Value) -> Value:
    """Return what a map has for a key, or an element of a list."""
    return entry(container, place) if isinstance(container, dict) else element_at(container, place)


def try_held(container: Value, place: Value) -> Value:
    return (
        entry(container, place) if isinstance(container, dict) else try_element_at(container, place)
    )


def _list_joined(writer: Writer, tree: exp.ArrayToString) -> Code:
    array, between = writer.codes([tree.this, tree.expression])
    if array.type is not None and not array.type.startswith("array<"):
        raise writer.refused(tree, f"joins a {array.type}")
    missing = tree.args.get("null")
    others = () if missing is None else (writer.code(missing),)
    return writer.call(list_joined, "string", array, between, *others)


def list_joined(array: list[Value], between: str, missing: str | None = None) -> str:
    """Return the elements as one text, in which null is left out or is what is said."""
    texts = (missing if one is None else str(one) for one in array)
    return between.join(text for text in texts if text is not None)


def entry(pairs: dict[Value, Value], key: Value) -> Value:
    return pairs.get(key)


# Calculations that are null where others fail


def _trying(sign: str) -> Build:
    def build(writer: Writer, tree: exp.Binary) -> Code:
        codes = writer.codes([tree.this, tree.expression])
        # The operands are computed before, so that their own failures stay failures.
        held = [
            code if code.literal else replace(code, source=f"a{place}", when=())
            for place, code in enumerate(codes)
        ]
        found = calculated(writer, sign, held[0], held[1], tree)
        helper = compiled("calculated", "a0, a1", [f"return {found.source}"], writer)
        return writer.kept(writer.call(trying(helper), found.type, *codes).value, found.type)

    return build


# By name, where the parser knows no class for it


def _named(writer: Writer, tree: exp.Anonymous) -> Code:
    build = _NAMED.get(tree.name.lower())
    if build is None:
        raise writer.refused(tree)
    return build(writer, tree)


_NAMED: Final[dict[str, Build]] = {
    "isnull": _is_null(wanted=True),
    "isnotnull": _is_null(wanted=False),
    "cardinality": _size,
    "positive": lambda writer, tree: writer.code(tree.expressions[0]),
    **NUMBER_NAMES,
    **TIME_NAMES,
}

CALLS: Final[dict[type[exp.Expr], Build]] = {
    exp.Anonymous: _named,
    exp.Least: _extreme(min),
    exp.Greatest: _extreme(max),
    exp.Nullif: _null_if,
    exp.Nvl2: _null_else,
    exp.Array: _array,
    exp.ArrayMax: _extreme_of(max),
    exp.ArrayMin: _extreme_of(min),
    exp.ArraySize: _size,
    exp.ArrayContains: _contains,
    exp.ArrayToString: _list_joined,
    exp.Bracket: _item,
    exp.SafeAdd: _trying("+"),
    exp.SafeSubtract: _trying("-"),
    exp.SafeMultiply: _trying("*"),
    exp.SafeDivide: _trying("/"),
    **NUMBER_CALLS,
    **TEXT_CALLS,
    **TIME_CALLS,
}
