"""`merge`: the rows of several streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidOption, NotLoadable, SchemasDiffer, TimesDiffer, Where
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages.stage import Stage, Tree
from millstream.flow.stages.upstream import Upstream

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Merge(Stage):
    """The rows of several streams of one schema."""

    kind: ClassVar[str] = "merge"
    yaml_words: ClassVar[tuple[str, ...]] = ("merge",)

    name: str
    inputs: tuple[str, ...]
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        first = inputs[0]
        key, keyed_by = first.key, first.keyed_by
        if not all((stream.key, stream.keyed_by) == (key, keyed_by) for stream in inputs):
            key = keyed_by = None
        lateness = max(stream.lateness for stream in inputs)
        schema = _merged([stream.schema for stream in inputs])
        same = replace(first, key=key, keyed_by=keyed_by)
        return replace(same, name=self.name, schema=schema, lateness=lateness)

    @classmethod
    def yaml_inputs(cls, entry: Entry) -> list[str]:
        return listed_streams(entry, "merge")

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        return inputs[0].flow.merge(name, *inputs)

    def to_yaml(self, flow: Flow) -> Tree:
        return {"merge": list(self.inputs)}


def listed_streams(entry: Entry, key: str) -> list[str]:
    """Return the names of the streams that are listed under a key."""
    names = entry.texts(key) or []
    if not names:
        fact, hint = f"{entry.title} names no streams", f'expected "{key}: [one, another]"'
        raise NotLoadable(fact, hint=hint, where=entry.where)
    return names


class MergeMethod(Upstream):
    """`stream.merge`."""

    __slots__ = ()

    def merge(self, name: str, *others: Stream) -> Stream:
        """Return the rows of this stream and of others, which have the same columns and time."""
        site = self._site(name)
        if not others:
            raise site.mistake(InvalidOption, "merges one stream", hint="name at least two")
        for other in others:
            self._check_own(site, other)
            _check_columns(site, self, other)
            if other.time != self.time:
                one, two = (
                    f'"{stream.name}", whose time is {_quoted(stream.time)}'
                    for stream in (self, other)
                )
                hint = "both need the same time column"
                raise site.mistake(TimesDiffer, f"merges {one}, and {two}", hint=hint)
        names = (self.name, *(stream.name for stream in others))
        return self.flow.add(Merge(name, names, site.where), self, *others)


def _quoted(time: str | None) -> str:
    return "not known" if time is None else f'"{time}"'


def _check_columns(site: Site, first: Upstream, other: Upstream) -> None:
    if first.schema is None or other.schema is None:
        return
    found = first.schema.differences(first.name, other.schema, other.name)
    if found:
        fact = f'merges "{first.name}" and "{other.name}", whose columns differ: {"; ".join(found)}'
        hint = "bring them to the same columns with sql(...) before"
        raise site.mistake(SchemasDiffer, fact, hint=hint)


def _merged(schemas: Sequence[Schema | None]) -> Schema | None:
    """Return the first known schema, its unknown types filled in from the others."""
    known = [schema for schema in schemas if schema is not None]
    if not known:
        return None
    return Schema.of(*((field.name, _type_in(known, field.name)) for field in known[0]))


def _type_in(schemas: Sequence[Schema], name: str) -> str | None:
    found = (schema.find(name) for schema in schemas)
    return next((twin.type for twin in found if twin and twin.type), None)
