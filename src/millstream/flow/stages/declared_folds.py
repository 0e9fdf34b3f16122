"""Declared folds as their user writes them: sum(delay), read and checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Final

from millstream.errors import FlowError, InvalidFunction, InvalidOption, InvalidSql
from millstream.flow.compiled import Compiled
from millstream.flow.declared import (
    FUNCTIONS,
    KEPT_AS,
    NUMBERS,
    ORDERED,
    REAL,
    AnyFold,
    CompiledFold,
    DeclaredFold,
)
from millstream.flow.kept import check_of
from millstream.flow.schema import Field, Schema
from millstream.flow.site import Site
from millstream.flow.stages.named_states import NamedState, declared
from millstream.flow.stages.upstream import Upstream, check_callable, schema_of

_CALL: Final = re.compile(
    r"\s*(?P<function>\w+)\s*\(\s*(?P<column>\*|\w+|`[^`]+`)\s*(,\s*(?P<weight>[0-9.eE+-]+)\s*)?\)\s*"
)
_HINT: Final = (
    "a fold is count(*), or count, sum, min, max, first or last of a column, ewma(column, 0.1), "
    "or ms.compiled(function, initial=...)"
)


def read_folds(
    site: Site, above: Upstream, folds: Mapping[str, str | Compiled], output: str | Schema | None
) -> tuple[AnyFold, ...]:
    """Return folds as they are given, checked against the columns of a stream."""
    if not folds:
        return ()
    wanted = Schema(()) if output is None else schema_of(site, output)
    return tuple(_read(site, above, name, given, wanted) for name, given in folds.items())


def _read(site: Site, above: Upstream, name: str, given: str | Compiled, wanted: Schema) -> AnyFold:
    if isinstance(given, Compiled):
        return _compiled(site, above, name, given, wanted.find(name))
    return _declared(site, above, name, given, wanted)


def _compiled(
    site: Site, above: Upstream, name: str, given: Compiled, shown: Field | None
) -> CompiledFold:
    if hasattr(given.step, "py_func"):
        fact = f'has a function as "{name}" that numba has compiled'
        hint = "give the function itself; those that it calls may be compiled"
        raise site.mistake(InvalidFunction, fact, hint=hint)
    names = given.columns or _parameters(site, given)
    columns = tuple(site.column(above.schema, one, above.name, verb="folds") for one in names)
    check_callable(site, given.step, 1 + len(names), f"step({', '.join(('known', *names))})")
    for column in columns:
        field = None if above.schema is None else above.schema.find(column)
        if field is not None and field.type not in (*NUMBERS, "boolean", None):
            fact = f'compiles a fold of column "{column}", which is {field.type}'
            hint = "it works on numbers and booleans: make one of it in a stage above"
            raise site.mistake(InvalidSql, fact, hint=hint)
    whole = "boolean" if isinstance(given.initial, bool) else "bigint"
    kind = whole if isinstance(given.initial, int) else "double"
    initial, check = KEPT_AS[kind](given.initial), check_of(kind)
    if check is None or not check(initial):
        fact = f'begins the fold "{name}" with {given.initial!r}'
        hint = "initial= is a number of up to 64 bits, True or False"
        raise site.mistake(InvalidOption, fact, hint=hint)
    if shown is not None and shown.type != kind:
        fact = f'has {shown.type} as the type of "{name}" in its output, which is {kind}'
        hint = f"initial={initial!r} makes it {kind}"
        raise site.mistake(InvalidOption, fact, hint=hint)
    return CompiledFold(name, given.step, columns, initial, kind)


def _parameters(site: Site, given: Compiled) -> tuple[str, ...]:
    """Return the names of the parameters behind the first, which are those of columns."""
    try:
        found = tuple(inspect.signature(given.step).parameters.values())[1:]
    except (TypeError, ValueError):  # it is no function, or written in C
        found = ()
    found = tuple(one for one in found if one.default is one.empty)
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if not found or any(one.kind is not plain for one in found):
        fact = "compiles a function whose parameters do not name columns"
        hint = 'name them: ms.compiled(step, "delay", initial=0.0)'
        raise site.mistake(InvalidFunction, fact, hint=hint)
    return tuple(one.name for one in found)


def _declared(site: Site, above: Upstream, name: str, text: str, wanted: Schema) -> DeclaredFold:
    found = _CALL.fullmatch(text) if isinstance(text, str) else None
    function = "" if found is None else found["function"].lower()
    if found is None or function not in FUNCTIONS:
        fact = f'has "{text}" as "{name}", which is no fold'
        raise site.mistake(InvalidOption, fact, hint=_HINT)
    weight = _weight(site, name, text, function, found["weight"])
    if found["column"] == "*":
        if function != "count":
            raise site.mistake(InvalidOption, f'has "{text}" as "{name}"', hint=_HINT)
        return DeclaredFold(name, function, None, "bigint")
    given = found["column"].strip("`")
    column = site.column(above.schema, given, above.name, verb="folds")
    known = None if above.schema is None else above.schema.find(column)
    kind = _type(site, name, function, Field(column, known.type if known else None), wanted)
    return DeclaredFold(name, function, column, kind, weight)


def _weight(site: Site, name: str, text: str, function: str, given: str | None) -> float:
    try:
        weight = 1.0 if given is None else float(given)
    except ValueError:
        weight = -1.0
    if (function == "ewma") != (given is not None) or not 0 < weight <= 1:
        hint = "ewma(column, weight) has a weight above 0 and up to 1; the others have none"
        raise site.mistake(InvalidOption, f'has "{text}" as "{name}"', hint=hint)
    return weight


def _type(site: Site, name: str, function: str, column: Field, wanted: Schema) -> str:
    """Return the type of a fold: that of its column as far as it is known, else of its output."""
    shown = wanted.find(name)
    if function == "count":
        return "bigint"
    if function == "ewma" and column.type is None:
        return "double"
    kind = column.type or (None if shown is None else shown.type)
    if kind is None:
        fact = f'folds column "{column.name}", whose type is known only to Spark'
        raise site.mistake(InvalidOption, fact, hint="give output=, with the types of its columns")
    if function in ("sum", "ewma"):
        if kind not in NUMBERS:
            raise _unfit(site, function, column, kind, f"it must be a number: {', '.join(NUMBERS)}")
        return "double" if function == "ewma" or kind in REAL else "bigint"
    if function in ("min", "max") and kind not in ORDERED:
        raise _unfit(site, function, column, kind, f"it must be one of {', '.join(ORDERED)}")
    if check_of(kind) is None:
        raise _unfit(site, function, column, kind, "write a step that keeps it in another form")
    return kind


def _unfit(site: Site, function: str, column: Field, kind: str, hint: str) -> FlowError:
    fact = f'has the {function} of column "{column.name}", which is {kind}'
    return site.mistake(InvalidSql, fact, hint=hint)


def states_of(site: Site, folds: tuple[AnyFold, ...]) -> tuple[NamedState, ...]:
    """Return what folds keep: a state for each, under its name, with a column for its function."""
    if not folds:
        return ()
    return declared(site, {one.name: Schema.of((one.function, one.type)) for one in folds})


def output_of(
    site: Site, above: Upstream, by: tuple[str, ...], folds: tuple[AnyFold, ...]
) -> Schema:
    """Return the columns of results: the key, the time and the folds."""
    names = dict.fromkeys((*by, *(() if above.time is None else (above.time,))))
    known = above.schema or Schema(())
    found = [(name, known.find(name)) for name in names]
    if unknown := next((name for name, one in found if one is None or one.type is None), None):
        fact = f'has column "{unknown}" in its rows, whose type is known only to Spark'
        raise site.mistake(InvalidOption, fact, hint="give output=, with the types of its columns")
    first = Schema.of(*((name, one.type) for name, one in found if one is not None))
    rest = Schema.of(*((one.name, one.type) for one in folds))
    return site.combined(first, rest, hint="give the fold another name")
