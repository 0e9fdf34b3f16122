"""State as columns, and columns as state: pure, over plain values.

A key's values are columns. So are the entries of a state that is a mapping; any other is the column
`value`. A column whose values have one type has that type, lists and mappings of one shape too. Any
other column holds JSON. Nothing is lost on the way there and back, except that a whole number
among fractions comes back as a fraction:

    null in a column that all states have       None
    null in one that some states lack           it is lacking there
    null in a column of JSON                    it is lacking there; None is the text "null"
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

import pyarrow as pa

VALUE: Final = "value"
#: Stands before the name of a state's column that a key's column has too.
_OWN: Final = "state."
_LARGEST: Final = 2**63 - 1
#: Whole numbers up to here are fractions as well.
_EXACT: Final = 2**53


NULL, JSON = "null", "json"
_WORDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "text",
    bytes: "bytes",
    datetime: "time",
}
_ARROW: Final = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "time": pa.timestamp("us", tz="UTC"),
    JSON: pa.string(),
    # A column without any value: of some type that everything can read.
    NULL: pa.string(),
}


class _Absent:
    """What stands for an entry that a mapping does not have."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in a table, the entry of the state that it holds, and its type."""

    name: str
    type: Any
    #: Whether some states lack it.
    optional: bool = False
    #: Whether it has a null that is a value.
    nulls: bool = False

    @property
    def as_json(self) -> bool:
        """Whether its values are texts of JSON."""
        return self.type == JSON or (self.optional and self.nulls)

    @property
    def arrow(self) -> pa.DataType:
        return pa.string() if self.as_json else _arrow(self.type)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a state: those of its keys, then its own."""

    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    #: Whether a state is a mapping, whose entries are columns.
    mapping: bool

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, one.arrow) for name, one in self.named])

    @property
    def named(self) -> list[tuple[str, Column]]:
        """The columns by their names in a table."""
        found = {one.name: one for one in self.keys}
        for one in self.values:
            name = one.name
            while name in found:
                name = f"{_OWN}{name}"
            found[name] = one
        return list(found.items())


# types


def type_of(values: Sequence[Any]) -> Any:
    """Return the type that some values have in common: JSON if they have none."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return NULL
    if kinds == {int, float}:
        whole = (value for value in values if type(value) is int)
        return "double" if all(abs(number) <= _EXACT for number in whole) else JSON
    if len(kinds) > 1:
        return JSON
    (kind,) = kinds
    if kind is int:
        return "int" if _small(value for value in values if value is not None) else JSON
    if kind is datetime:
        return "time" if all(one is None or one.tzinfo is not None for one in values) else JSON
    if kind is dict:
        return _struct([value for value in values if value is not None])
    if kind is list:
        inside = type_of([item for value in values if value is not None for item in value])
        return JSON if inside == JSON else ("list", inside)
    return _WORDS.get(kind, JSON)


def _small(numbers: Iterable[int]) -> bool:
    return all(-_LARGEST - 1 <= number <= _LARGEST for number in numbers)


def _struct(values: Sequence[Mapping[Any, Any]]) -> Any:
    names = values[0].keys()
    if not names or not all(type(name) is str for name in names):
        return JSON
    if any(value.keys() != names for value in values):
        return JSON
    fields = {name: type_of([value[name] for value in values]) for name in names}
    return JSON if JSON in fields.values() else fields


def joined(one: Any, other: Any) -> Any:
    """Return the type of values of two types together."""
    if other in (one, NULL):
        return one
    if one == NULL:
        return other
    if {str(one), str(other)} == {"int", "double"}:
        return "double"
    if isinstance(one, tuple) and isinstance(other, tuple):
        inside = joined(one[1], other[1])
        return JSON if inside == JSON else ("list", inside)
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        fields = {name: joined(one[name], other[name]) for name in one}
        return JSON if JSON in fields.values() else fields
    return JSON


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, dict):
        return pa.struct([(name, _arrow(one)) for name, one in kind.items()])
    if isinstance(kind, tuple):
        return pa.list_(_arrow(kind[1]))
    return _ARROW[kind]


# layouts


def layout_of(by: Sequence[str], keys: Sequence[Sequence[Any]], states: Sequence[Any]) -> Layout:
    """Return the columns of some keys and their states."""
    columns = list(zip(*keys, strict=True)) if keys else [() for _ in by]
    named = tuple(Column(name, type_of(values)) for name, values in zip(by, columns, strict=True))
    mapping = all(_is_mapping(state) for state in states)
    if not mapping:
        return Layout(named, (Column(VALUE, type_of(states)),), mapping=False)
    names = dict.fromkeys(name for state in states for name in state)
    return Layout(named, tuple(_column(name, states) for name in names), mapping=True)


def _is_mapping(state: Any) -> bool:
    return type(state) is dict and all(type(name) is str for name in state)


def _column(name: str, states: Sequence[Mapping[str, Any]]) -> Column:
    present = [state[name] for state in states if name in state]
    nulls = any(value is None for value in present)
    return Column(name, type_of(present), len(present) < len(states), nulls)


def merged(one: Layout | None, other: Layout) -> Layout:
    """Return the columns of what two layouts describe together."""
    if one is None:
        return other
    keys = tuple(
        replace(a, type=joined(a.type, b.type)) for a, b in zip(one.keys, other.keys, strict=True)
    )
    if not (one.mapping and other.mapping):
        whole = JSON if one.mapping or other.mapping else joined(*(_value(x) for x in (one, other)))
        return Layout(keys, (Column(VALUE, whole),), mapping=False)
    mine = {column.name: column for column in one.values}
    theirs = {column.name: column for column in other.values}
    values = tuple(_both(mine.get(n), theirs.get(n)) for n in dict.fromkeys((*mine, *theirs)))
    return Layout(keys, values, mapping=True)


def _value(layout: Layout) -> Any:
    return layout.values[0].type


def _both(one: Column | None, other: Column | None) -> Column:
    if one is None or other is None:
        return replace(cast("Column", one or other), optional=True)
    return Column(
        one.name,
        joined(one.type, other.type),
        one.optional or other.optional,
        one.nulls or other.nulls,
    )


# there and back


def to_table(layout: Layout, keys: Sequence[Sequence[Any]], states: Sequence[Any]) -> pa.Table:
    """Return keys and their states as a table."""
    columns = list(zip(*keys, strict=True)) if keys else [() for _ in layout.keys]
    arrays = [_array(one, values) for one, values in zip(layout.keys, columns, strict=True)]
    for column in layout.values:
        values = states
        if layout.mapping:
            values = [state.get(column.name, ABSENT) for state in states]
        arrays.append(_array(column, values))
    return pa.Table.from_arrays(arrays, schema=layout.schema)


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    if column.as_json:
        texts = [None if value is ABSENT else json.dumps(_plain(value)) for value in values]
        return pa.array(texts, pa.string())
    there = [None if value is ABSENT else value for value in values]
    return pa.array(there, column.arrow)


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: what it lacks is a mapping with one name of ours."""
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if not all(isinstance(name, str) for name in value):
        return {"$map": [[_plain(name), _plain(one)] for name, one in value.items()]}
    return {f"${name}" if name[:1] == "$" else name: _plain(one) for name, one in value.items()}


def _from_plain(value: Any) -> Any:
    match value:
        case {"$time": text}:
            return datetime.fromisoformat(text)
        case {"$bytes": text}:
            return bytes.fromhex(text)
        case {"$map": pairs}:
            return {_from_plain(name): _from_plain(one) for name, one in pairs}
        case dict():
            return {name.removeprefix("$"): _from_plain(one) for name, one in value.items()}
        case list():
            return [_from_plain(one) for one in value]
    return value


def from_table(layout: Layout, table: pa.Table) -> tuple[list[list[Any]], list[Any]]:
    """Return the keys and the states that a table of a layout holds."""
    named = layout.named
    columns = {name: _values(column, table.column(name)) for name, column in named}
    key_names = [name for name, _ in named[: len(layout.keys)]]
    keys = [list(one) for one in zip(*(columns[name] for name in key_names), strict=True)]
    if not key_names:
        keys = [[] for _ in range(table.num_rows)]
    rest = named[len(layout.keys) :]
    if not layout.mapping:
        return keys, columns[rest[0][0]]
    names = [column.name for _, column in rest]
    rows = zip(*(columns[name] for name, _ in rest), strict=True) if rest else ((),) * len(keys)
    states = [
        {name: value for name, value in zip(names, row, strict=True) if value is not ABSENT}
        for row in rows
    ]
    return keys, states


def _values(column: Column, found: pa.ChunkedArray) -> list[Any]:
    if column.as_json:
        texts = found.to_pylist()
        absent = ABSENT if column.optional else None
        return [absent if text is None else _from_plain(json.loads(text)) for text in texts]
    values: list[Any] = found.cast(column.arrow).to_pylist()
    return [ABSENT if value is None else value for value in values] if column.optional else values
