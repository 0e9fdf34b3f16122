"""`lookup`: a stream joined with a static table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, cast, get_args

from millstream.errors import InvalidOption, SchemasDiffer, Where
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages import forms
from millstream.flow.stages.stage import FunctionTable, OneInput, Tree
from millstream.flow.stages.upstream import Upstream
from millstream.flow.targets import Table, table

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream

How = Literal["inner", "left"]
_CLASH = (
    "select what you need with sql(...) before, under another name: "
    '"SELECT delay AS other_delay, ..."'
)


@dataclass(frozen=True, slots=True)
class Lookup(OneInput):
    """A stream joined with a static table: the stream's columns, then the table's without `on`."""

    kind: ClassVar[str] = "lookup"
    yaml_words: ClassVar[tuple[str, ...]] = ("lookup",)

    name: str
    input: str
    table: Table
    on: tuple[str, ...]
    how: How = "inner"
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        schema = joined(site, inputs[0].schema, self.table.schema, self.on)
        return inputs[0].derived(self.name, schema)

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        path, schema = entry.needed("lookup", "a path"), entry.text("schema")
        right = table(path, format=entry.text("format"), schema=schema)
        on, how = entry.texts("on") or [], entry.text("how")
        return inputs[0].join(name, right, on=on, how=how or "inner")

    def to_yaml(self, flow: Flow) -> Tree:
        schema = None if self.table.schema is None else self.table.schema.ddl
        tree = {"lookup": self.table.path, "format": self.table.format, "schema": schema}
        on = forms.columns(self.on)
        return forms.given({"from": self.input, **tree, "on": on, "how": self.how})

    def fingerprint(
        self, described: Tree, functions: FunctionTable, snapshots: Mapping[str, str]
    ) -> Tree:
        snapshot = snapshots.get(self.table.path)
        return {**described, "table": {**described["table"], "snapshot": snapshot}}

    @property
    def contents(self) -> tuple[str, ...]:
        return (self.table.path,)

    @property
    def label(self) -> str:
        return f"lookup in {forms.end_of(self.table.path)}"


def looked_up(
    left: Upstream, site: Site, right: Table, on: str | Sequence[str], within: object, how: str
) -> Lookup:
    """Return the stage that joins a stream with a table."""
    if within is not None:
        hint = "a table has no time: leave it out"
        raise site.mistake(InvalidOption, "has within= for a table", hint=hint)
    if how not in get_args(How):
        hint = 'how= is "inner" or "left": a stream never ends, so nobody knows what it lacks'
        raise site.mistake(InvalidOption, f'joins "{how}" with a table', hint=hint)
    columns = columns_on(site, on, (left.name, left.schema), (right.path, right.schema))
    return Lookup(site.name, left.name, right, columns, cast("How", how), site.where)


# what joins of streams do too

_Side = tuple[str, Schema | None]


def columns_on(site: Site, on: str | Sequence[str], left: _Side, right: _Side) -> tuple[str, ...]:
    """Return the columns that both sides are equal in."""
    names = (on,) if isinstance(on, str) else tuple(on)
    if not names:
        hint = 'name at least one: on="flight"'
        raise site.mistake(InvalidOption, "joins on no column", hint=hint)
    columns = tuple(site.column(left[1], name, left[0], verb="joins on") for name in names)
    for name in names:
        site.column(right[1], name, right[0], verb="joins on")
        _check_type(site, name, left, right)
    return columns


def _check_type(site: Site, name: str, left: _Side, right: _Side) -> None:
    fields = [(owner, schema.find(name)) for owner, schema in (left, right) if schema is not None]
    known = [(owner, one.type) for owner, one in fields if one is not None and one.type is not None]
    if len({found for _, found in known}) > 1:
        types = " and ".join(f'{found} in "{owner}"' for owner, found in known)
        fact = f'joins on column "{name}", which is {types}'
        raise site.mistake(SchemasDiffer, fact, hint="cast one of them in sql(...) before")


def joined(
    site: Site, left: Schema | None, right: Schema | None, dropped: Sequence[str]
) -> Schema | None:
    """Return the left's columns, then the right's without those that are dropped."""
    if left is None or right is None:
        return None
    return site.combined(left, right.without(dropped), hint=_CLASH)
