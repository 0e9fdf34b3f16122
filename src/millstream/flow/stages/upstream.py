"""A stream as the stages below it see it: what the methods of all kinds build on."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from millstream.errors import ForeignStream, InvalidFunction, InvalidOption, NoTime, TimeDropped
from millstream.flow.schema import Schema
from millstream.flow.site import Site

if TYPE_CHECKING:
    from millstream.flow.flow import Flow


@dataclass(frozen=True, slots=True)
class Upstream:
    """The output of a stage. Each kind adds its method; `Stream` has them all.

    `schema` is None, or has types that are None, where only Spark can tell at planning. `key` is
    the column that windows and folds group by unless they are given another.
    """

    flow: Flow = field(repr=False, compare=False)
    name: str
    schema: Schema | None
    time: str | None
    key: str | None
    lateness: timedelta

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
        key = self.key if schema is None or (self.key is not None and self.key in schema) else None
        time = self.time if time == "" else time
        return replace(self, name=name, schema=schema, time=time, key=key)

    def _site(self, name: str, noun: str = "stage") -> Site:
        return self.flow._site(name, noun)

    def _columns(self, site: Site, by: str | Sequence[str], verb: str) -> tuple[str, ...]:
        names = (by,) if isinstance(by, str) else tuple(by)
        return tuple(site.column(self.schema, name, self.name, verb=verb) for name in names)

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
