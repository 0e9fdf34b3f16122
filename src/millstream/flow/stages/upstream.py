"""A stream as the stages below it see it: what the methods of all kinds build on."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from millstream.errors import ForeignStream, InvalidFunction, InvalidOption, NoTime, TimeDropped
from millstream.flow.keys import KeyExpression, read_key
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages.keyed import Keyed

if TYPE_CHECKING:
    from millstream.flow.flow import Flow


@dataclass(frozen=True, slots=True)
class Upstream:
    """The output of a stage. Each kind adds its method; `Stream` has them all.

    `schema` is None, or has types that are None, where only Spark can tell at planning. `key` is
    the column that windows and folds group by unless they are given another; `keyed_by` is it
    where it is an expression.
    """

    flow: Flow = field(repr=False, compare=False)
    name: str
    schema: Schema | None
    time: str | None
    key: str | None
    lateness: timedelta
    #: The key, where it is not a column yet.
    keyed_by: KeyExpression | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        return None if self.schema is None else self.schema.names

    def derived(self, name: str, schema: Schema | None, *, time: str | None = "") -> Self:
        """Return the stream of a stage below this one; it keeps the key that is still a column.

        Args:
            name: The stage's name.
            schema: Its columns, if they are known.
            time: Its time column; this stream's if it is left out.
        """
        key, keyed_by = self.key, self.keyed_by
        if schema is not None:
            key = key if key in schema else None
            if keyed_by is not None and not all(one in schema for one in keyed_by.columns):
                keyed_by = None
            if self.keyed_by is not None and self.keyed_by.name in schema:
                key, keyed_by = self.keyed_by.name, None
        time = self.time if time == "" else time
        return replace(self, name=name, schema=schema, time=time, key=key, keyed_by=keyed_by)

    def _site(self, name: str, noun: str = "stage") -> Site:
        return self.flow._site(name, noun)

    def _columns(self, site: Site, by: str | Sequence[str], verb: str) -> tuple[str, ...]:
        names = (by,) if isinstance(by, str) else tuple(by)
        return tuple(site.column(self.schema, name, self.name, verb=verb) for name in names)

    @property
    def _own_key(self) -> tuple[str, ...]:
        """What a stage is keyed by unless it is given something else."""
        found = self.keyed_by or self.key
        return () if found is None else (str(found),)

    def _keyed(
        self, site: Site, by: str | Sequence[str], verb: str, ending: str = "key"
    ) -> tuple[Self, tuple[str, ...]]:
        """Return the columns that a stage is keyed by, and the stream that has them all.

        For keys that are expressions, that is the stream of a stage above it, which computes them.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        read = [
            None if name == self.key else read_key(site, self.schema, name, self.name, verb)
            for name in names
        ]
        columns = tuple(
            site.column(self.schema, name, self.name, verb=verb) if key is None else key.name
            for name, key in zip(names, read, strict=True)
        )
        made = tuple((key.name, key.text) for key in read if key is not None)
        if not made:
            return self, columns
        stage = Keyed(f"{site.name}-{ending}", self.name, made, site.where)
        if self.flow.stages.get(stage.name) == stage:  # of an attempt that had a mistake further on
            return cast("Self", self.flow.stream(stage.name)), columns
        return cast("Self", self.flow.add(stage, self)), columns

    def _check_own(self, site: Site, other: object) -> None:
        if not isinstance(other, Upstream):
            fact = f"is given {type(other).__name__} where a stream should be"
            hint = "pass what source(), window() and the others return"
            raise site.mistake(InvalidOption, fact, hint=hint)
        if other.flow is not self.flow:
            fact = f'reads stream "{other.name}" of another flow, "{other.flow.name}"'
            raise site.mistake(ForeignStream, fact, hint="build both streams on one Flow")

    def _check_timed(self, site: Site, what: str, hint: str = "") -> None:
        if self.time is None:
            fact = f'is a {what}, and stream "{self.name}" has no time'
            named = 'give its source a time column: time="at"' + (f", {hint}" if hint else "")
            raise site.mistake(NoTime, fact, hint=named)

    def _check_time_kept(self, site: Site, output: Schema | None, what: str) -> None:
        if output is not None:
            site.check_columns(output)
        if self.time is not None and output is not None and self.time not in output:
            hint = f'add "{self.time} timestamp" to {what}, and to the rows'
            raise site.mistake(TimeDropped, f'drops the time column "{self.time}"', hint=hint)


def schema_of(site: Site, schema: str | Schema) -> Schema:
    """Return columns that are given as text."""
    with site.naming("schema"):
        return schema if isinstance(schema, Schema) else Schema.parse(schema)


def check_callable(site: Site, function: object, parameters: int, shape: str) -> None:
    """Refuse what cannot be called with so many arguments and return a result."""
    if not callable(function) or isinstance(function, type):
        fact = f"is given {type(function).__name__} where a function should be"
        raise site.mistake(InvalidFunction, fact, hint=f"it is called as {shape}")
    try:
        inspect.signature(function).bind(*[None] * parameters)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        fact = f'is given the function "{name}", which cannot be called as {shape}'
        hint = f"it takes {parameters} parameter{'s'[: parameters > 1]}"
        raise site.mistake(InvalidFunction, fact, hint=hint) from None
    except ValueError:
        return  # a function written in C that does not list its parameters
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        fact = f'is given "{cast("Any", function).__name__}", which does not return its result'
        raise site.mistake(InvalidFunction, fact, hint="use a plain function")
