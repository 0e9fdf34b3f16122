"""Schemas: names and Spark SQL types of a stream's columns, to and from DDL and Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from millstream.errors import DuplicateColumn, InvalidSchema
from millstream.flow import ddl

if TYPE_CHECKING:  # describing a flow should not cost loading Arrow
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Field:
    """A column; a type of None means that Spark tells it at planning."""

    name: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a stream, in order.

    Names are found as Spark finds them, whatever their case, and must differ in more than case.

        >>> Schema.parse("flight string, delay double, at timestamp").names
        ('flight', 'delay', 'at')
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for field in self.fields:
            if field.name.lower() in seen:
                msg = f'column "{field.name}" is there twice'
                raise DuplicateColumn(msg, hint="give each column a name of its own")
            seen.add(field.name.lower())

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Return the schema that a Spark SQL column list describes.

        Raises:
            InvalidSchema: The text is not a list of columns.
            UnknownType: A type is not one that Spark and a journal know.
            DuplicateColumn: A name is there twice.
        """
        return cls(tuple(Field(name, type_) for name, type_ in ddl.parse_columns(text)))

    @classmethod
    def of(cls, *columns: tuple[str, str | None]) -> Schema:
        """Return a schema of (name, type) pairs."""
        return cls(tuple(Field(name, type_) for name, type_ in columns))

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """Return the schema whose columns Spark would read from Arrow's."""
        from millstream.flow import arrow

        return cls(tuple(Field(field.name, arrow.spark_type(field.type)) for field in schema))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def complete(self) -> bool:
        """Whether the type of every column is known."""
        return all(field.type is not None for field in self.fields)

    @property
    def ddl(self) -> str:
        """The schema as a Spark SQL column list.

        Raises:
            InvalidSchema: A type is not known yet.
        """
        return ", ".join(f"{ddl.quoted(field.name)} {_known(field)}" for field in self.fields)

    def find(self, name: str) -> Field | None:
        """Return the column of that name, in any case."""
        return next((field for field in self.fields if field.name.lower() == name.lower()), None)

    def closest(self, name: str) -> str | None:
        """Return the column that someone who wrote `name` may have meant."""
        lowered = {field.name.lower(): field.name for field in self.fields}
        found = get_close_matches(name.lower(), lowered, n=1)
        return lowered[found[0]] if found else None

    def without(self, names: Iterable[str]) -> Schema:
        """Return the schema without these columns."""
        gone = {name.lower() for name in names}
        return Schema(tuple(field for field in self.fields if field.name.lower() not in gone))

    def differences(self, name: str, other: Schema, other_name: str) -> list[str]:
        """Return what differs between two schemas, whose owners are named, apart from order."""
        lines = []
        for owner, one, twin in ((name, self, other), (other_name, other, self)):
            own = ", ".join(f'"{field.name}"' for field in one if field.name not in twin)
            lines += [f'only "{owner}" has {own}'] if own else []
        for field in self.fields:
            found = other.find(field.name)
            kinds = field.type, found.type if found else None
            if None not in kinds and kinds[0] != kinds[1]:
                lines.append(
                    f'"{field.name}" is {kinds[0]} in "{name}" and {kinds[1]} in "{other_name}"'
                )
        return lines

    def arrow(self) -> pa.Schema:
        """Return the Arrow schema of a journal with these columns.

        Raises:
            InvalidSchema: A type is not known yet.
        """
        from millstream.flow import arrow

        return arrow.schema([(field.name, _known(field)) for field in self.fields])


def _known(field: Field) -> str:
    if field.type is None:
        msg = f'the type of column "{field.name}" is known only to Spark'
        raise InvalidSchema(msg, hint="give the stage a schema=")
    return field.type
