"""Joins, lookups and merges: what the streams must have in common, and the columns that come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

from millstream.errors import InvalidOption, SchemasDiffer
from millstream.flow.schema import Schema
from millstream.flow.site import Site

JoinKind = Literal["inner", "left", "right", "full", "semi"]
LookupKind = Literal["inner", "left"]
_CLASH = 'select what you need with sql(...) before, under another name: "SELECT delay AS other_delay, ..."'


def join_kind(site: Site, how: str) -> JoinKind:
    """Return `how` two streams are joined, if there is such a join."""
    if how not in get_args(JoinKind):
        raise site.mistake(
            InvalidOption, f'joins "{how}"', hint=f"how= is one of {', '.join(get_args(JoinKind))}"
        )
    return cast("JoinKind", how)


def lookup_kind(site: Site, how: str) -> LookupKind:
    """Return `how` a stream is joined with a table, if that is possible on a stream."""
    if how not in get_args(LookupKind):
        fact = f'joins "{how}" with a table'
        raise site.mistake(
            InvalidOption,
            fact,
            hint='how= is "inner" or "left": a stream never ends, so nobody knows what it lacks',
        )
    return cast("LookupKind", how)


def columns_on(
    site: Site,
    on: str | Sequence[str],
    left: tuple[str, Schema | None],
    right: tuple[str, Schema | None],
) -> tuple[str, ...]:
    """Return the columns that both sides are equal in."""
    names = (on,) if isinstance(on, str) else tuple(on)
    if not names:
        raise site.mistake(
            InvalidOption, "joins on no column", hint='name at least one: on="flight"'
        )
    columns = tuple(site.column(left[1], name, left[0], verb="joins on") for name in names)
    for name in names:
        site.column(right[1], name, right[0], verb="joins on")
        _same_type(site, name, left, right)
    return columns


def _same_type(
    site: Site, name: str, left: tuple[str, Schema | None], right: tuple[str, Schema | None]
) -> None:
    fields = [(owner, schema.find(name)) for owner, schema in (left, right) if schema is not None]
    known = [
        (owner, field.type)
        for owner, field in fields
        if field is not None and field.type is not None
    ]
    if len({found for _, found in known}) > 1:
        said = " and ".join(f'{found} in "{owner}"' for owner, found in known)
        raise site.mistake(
            SchemasDiffer,
            f'joins on column "{name}", which is {said}',
            hint="cast one of them in sql(...) before",
        )


def joined(
    site: Site, left: Schema | None, right: Schema | None, dropped: Sequence[str]
) -> Schema | None:
    """Return the left's columns, then the right's without those that are dropped."""
    if left is None or right is None:
        return None
    return site.combined(left, right.without(dropped), hint=_CLASH)


def same_columns(
    site: Site, first: tuple[str, Schema | None], other: tuple[str, Schema | None]
) -> None:
    """Refuse two streams whose columns differ, with the differences."""
    if first[1] is None or other[1] is None:
        return
    found = differences(first[0], first[1], other[0], other[1])
    if found:
        fact = f'merges "{first[0]}" and "{other[0]}", whose columns differ: {"; ".join(found)}'
        raise site.mistake(
            SchemasDiffer, fact, hint="bring them to the same columns with sql(...) before"
        )


def differences(name: str, schema: Schema, other_name: str, other: Schema) -> list[str]:
    """Return what differs between two schemas, apart from order."""
    lines = [f'only "{name}" has {_listed(schema, other)}'] if _listed(schema, other) else []
    lines += [f'only "{other_name}" has {_listed(other, schema)}'] if _listed(other, schema) else []
    for field in schema:
        twin = other.find(field.name)
        if twin is not None and None not in (field.type, twin.type) and field.type != twin.type:
            lines.append(
                f'"{field.name}" is {field.type} in "{name}" and {twin.type} in "{other_name}"'
            )
    return lines


def _listed(schema: Schema, other: Schema) -> str:
    return ", ".join(f'"{field.name}"' for field in schema if field.name not in other)


def merged(schemas: Sequence[Schema | None]) -> Schema | None:
    """Return the first schema, its unknown types filled in from the others; None if none is known."""
    known = [schema for schema in schemas if schema is not None]
    if not known:
        return None
    pairs = [
        (
            field.name,
            next(
                (twin.type for schema in known if (twin := schema.find(field.name)) and twin.type),
                None,
            ),
        )
        for field in known[0]
    ]
    return Schema.of(*pairs)
