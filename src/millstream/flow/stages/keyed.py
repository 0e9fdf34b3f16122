"""`keyed`: the columns of keys that are expressions, before the stage that is keyed by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import Where
from millstream.flow import expressions
from millstream.flow.keys import KeyExpression
from millstream.flow.schema import Field, Schema
from millstream.flow.site import Site
from millstream.flow.stages.stage import Named, OneInput, Stage, Tree

if TYPE_CHECKING:
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Keyed(OneInput):
    """The input's columns, then those of the keys; `by="upper(shop)"` of the stage below makes it.

    So no kind of stage knows of keys that are not columns. It has no form of its own in YAML: the
    stage below is written with the expressions.
    """

    kind: ClassVar[str] = "keyed"

    name: str
    input: str
    columns: Named
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        above = inputs[0]
        if above.schema is None:
            return above.derived(self.name, None)
        known = above.schema
        added = (Field(name, expressions.type_of(text, known)) for name, text in self.columns)
        output = Schema((*known, *added))
        site.check_columns(output)
        return above.derived(self.name, output)

    @classmethod
    def normal(cls, meaning: Tree) -> Tree:
        columns = {name: expressions.normal(text) for name, text in meaning["columns"]}
        return {**meaning, "columns": columns}

    @property
    def key_expressions(self) -> Mapping[str, str]:
        return dict(self.columns)

    @property
    def label(self) -> str:
        return ", ".join(str(KeyExpression(*one)) for one in self.columns)


def spelled(stage: Stage, flow: Flow) -> Stage:
    """Return a stage as its user wrote it: keyed by expressions, with no stage for them above it."""
    above = [flow.stages[name] for name in stage.inputs]
    keyed = [one for one in above if isinstance(one, Keyed)]
    if not keyed:
        return stage
    names = {one.name: one.input for one in keyed}
    columns = {name: str(KeyExpression(name, text)) for one in keyed for name, text in one.columns}
    changed = {
        one.name: _replaced(getattr(stage, one.name), columns if one.name in _KEYS else names)
        for one in fields(stage)
        if one.name in (*_KEYS, *_INPUTS)
    }
    return replace(stage, **changed)


_INPUTS = ("input", "left", "right")
_KEYS = ("by", "on", "key")


def _replaced(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, tuple):
        return tuple(names.get(one, one) for one in value)
    return names.get(value, value) if isinstance(value, str) else value
