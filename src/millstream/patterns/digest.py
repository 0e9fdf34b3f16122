"""The digest of a compiled pattern: where it is equal, runs mean the same."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

from millstream.flow.schema import Schema
from millstream.patterns.automaton import Automaton
from millstream.patterns.conditions import Asked
from millstream.patterns.pattern import Pattern
from millstream.patterns.recipe import described

#: To be raised when runs of a pattern that looks the same come to mean something else.
VERSION = 1
#: Parts of an automaton that say nothing of what runs mean.
_APART = ("warnings", "renumbered", "unfinished", "empty", "empty_at_first", "searched", "or_fail")


def digest(
    pattern: Pattern,
    automaton: Automaton,
    schema: Schema | None,
    time: str,
    keys: Sequence[str],
) -> str:
    """Return the digest of a pattern over events with these columns."""
    columns = None if schema is None else [[field.name, field.type] for field in schema]
    found = [VERSION, described(pattern), _plain(automaton), columns, time, list(keys)]
    text = json.dumps(found, sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    """Return a part of an automaton as JSON has it, the same in every process."""
    if isinstance(value, Asked):
        return _source(value.function)
    if is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in fields(value)
            if field.name not in _APART
        }
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _source(function: Callable[..., object]) -> str:
    """Return the text of a function, so that two that differ are not taken for one."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return getattr(function, "__qualname__", type(function).__qualname__)
