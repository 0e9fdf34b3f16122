"""A generator of rows, for trying things out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidOption
from millstream.flow.connector import Connector
from millstream.flow.schema import Schema
from millstream.flow.sources import SourceSpec
from millstream.flow.spec import Tree

if TYPE_CHECKING:
    from millstream.flow.document import Entry


@dataclass(frozen=True, slots=True)
class Rate(SourceSpec):
    """A generator: so many rows a second, without end or so many in all."""

    kind: ClassVar[str] = "rate"
    reader: ClassVar[str] = "millstream.connectors.rate.origin:open_rate"

    rows_per_second: float
    rows: int | None = None

    @property
    def schema(self) -> Schema:
        return Schema.parse("value long, at timestamp")

    @property
    def bounded(self) -> bool:
        return self.rows is not None

    @property
    def title(self) -> str:
        return f"{self.rows_per_second:g} rows/s"

    @classmethod
    def from_yaml(cls, entry: Entry) -> Rate:
        entry.needed("rate", "rows a second")
        return rate(entry.number("rate") or 0, rows=entry.whole("rows"))

    def to_yaml(self) -> Tree:
        return {"rate": self.rows_per_second, "rows": self.rows}


def rate(rows_per_second: float, *, rows: int | None = None) -> Rate:
    """Rows "value long, at timestamp" at a steady rate, for trying things out."""
    if rows_per_second <= 0:
        msg = f"a rate of {rows_per_second} rows a second makes no rows"
        raise InvalidOption(msg, hint="give a number above 0")
    if rows is not None and rows < 0:
        msg = f"a rate source cannot make {rows} rows"
        raise InvalidOption(msg, hint="leave rows= out for no end")
    return Rate(rows_per_second, rows)


connector = Connector(sources=(Rate,))
