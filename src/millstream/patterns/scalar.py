"""Spark SQL expressions as Python functions of one row, for watchers: no Spark, no Arrow.

What conditions may use is what has a builder here (operators.py, casts.py, calls.py); anything else
is refused when the function is made, by name. What both compute is what Spark computes; types are
Spark's where the schema tells them, and without one they are what comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from millstream.errors import InvalidCondition
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.patterns.calls import CALLS
from millstream.patterns.casts import CASTS
from millstream.patterns.codes import Build, Source, Writer
from millstream.patterns.conditions import Owner
from millstream.patterns.history import Value
from millstream.patterns.operators import OPERATORS

Row = Mapping[str, Value]
BUILDERS: Final[dict[type[exp.Expr], Build]] = {**OPERATORS, **CASTS, **CALLS}


def writer_for(schema: Schema | None, owner: Owner) -> Writer:
    """Return what writes expressions over rows with these columns, or with any."""
    return Writer(BUILDERS, schema or Schema(()), owner, open=schema is None)


def scalar(sql: str, schema: Schema | None = None) -> Callable[[Row], Value]:
    """Return the function that computes an expression of a row.

    Raises:
        InvalidCondition: It uses what only Spark computes.
        UnknownColumn: It reads a column that is not in `schema`.
    """
    writer = writer_for(schema, Owner("the expression"))
    value = writer.code(expressions.expression(sql)).value
    body = [*reading(writer.columns, writer), f"return {value}"]
    return compiled("scalar", "row", body, writer)  # type: ignore[no-any-return]


def reading(columns: Mapping[str, Source], writer: Writer) -> Iterator[Source]:
    """Yield the lines that read columns of `row` into locals."""
    for name, local in columns.items():
        yield f"{local} = row.get({writer.name(name)})"


def compiled(name: str, parameters: str, body: Sequence[Source], writer: Writer) -> Any:
    """Return the Python function with this body.

    Raises:
        InvalidCondition: It is too deep for Python.
    """
    lines = [f"def {name}({parameters}):", *(f"    {line}" for line in body)]
    try:
        code = compile("\n".join(lines), f"<{name}>", "exec")
    except (MemoryError, RecursionError, SyntaxError):
        fact = "is nested too deeply"
        hint = "split it into several columns or blocks"
        raise writer.owner.mistake(InvalidCondition, fact, hint=hint) from None
    namespace = {**writer.namespace, "__builtins__": {}}
    exec(code, namespace)  # noqa: S102  (our own source: see codes.py)
    return namespace[name]
