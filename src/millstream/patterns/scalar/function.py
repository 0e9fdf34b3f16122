"""Functions that compute Spark SQL expressions of one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sqlglot import exp

from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.patterns.conditions import Owner
from millstream.patterns.history import Value
from millstream.patterns.scalar.calls import CALLS
from millstream.patterns.scalar.casts import CASTS
from millstream.patterns.scalar.codes import Build, Source, Writer, compiled
from millstream.patterns.scalar.operators import OPERATORS

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
