"""Several states of a fold, each with a name and columns: what each is declared to hold, and begins with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream.errors import InvalidOption
from millstream.flow.kept import Kept, check_of, conformed
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages.upstream import schema_of

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HINT: Final = "text, numbers, booleans, binary, timestamps and arrays of these can be kept"


@dataclass(frozen=True, slots=True)
class NamedState:
    """A state of a fold: its name, and the columns that it has for each key."""

    name: str
    columns: Schema

    def __str__(self) -> str:
        return f"{self.name} ({self.columns.ddl})"


def declared(site: Site, states: Mapping[str, str | Schema]) -> tuple[NamedState, ...]:
    """Return the states that a fold declares, checked."""
    if not isinstance(states, Mapping) or not states:
        hint = 'name at least one: states={"sums": "total double, n bigint"}'
        raise site.mistake(InvalidOption, "declares no states", hint=hint)
    found = []
    for name, columns in states.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            hint = "use letters, digits and _"
            raise site.mistake(InvalidOption, f'has a state "{name}", which is no name', hint=hint)
        state = NamedState(name, schema_of(site, columns))
        for field in state.columns:
            if check_of(field.type or "") is None:
                fact = f'keeps "{name}.{field.name}" of type {field.type}'
                raise site.mistake(InvalidOption, fact, hint=_HINT)
        found.append(state)
    return tuple(found)


def initial_of(site: Site, states: tuple[NamedState, ...], given: Any) -> dict[str, Any]:
    """Return the states of a new key: what is given, and None in the other columns."""
    begin = {} if given is None else given
    if not isinstance(begin, Mapping):
        hint = 'name columns: initial={"sums": {"n": 0}}'
        fact = "declares states, and begins with something else than values of their columns"
        raise site.mistake(InvalidOption, fact, hint=hint)
    empty: dict[str, Any] = {state.name: {} for state in states}
    try:
        return conformed(kept(states), {**empty, **begin})
    except ValueError as error:
        raise site.mistake(InvalidOption, f"cannot begin like that: {error}") from None


def kept(states: tuple[NamedState, ...]) -> Kept:
    """Return states as executors get them."""
    return tuple(
        (state.name, tuple((field.name, field.type or "") for field in state.columns))
        for state in states
    )
