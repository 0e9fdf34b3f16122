"""Parts that the written forms of several kinds share: YAML entries and labels."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

from millstream.flow import durations
from millstream.flow.stages.stage import Stage, Tree


def changed(stage: Stage, *names: str) -> Tree:
    """Return the fields of a stage that are not as they are by default, for an entry."""
    defaults = {one.name: one.default for one in fields(stage)}
    values = {name: getattr(stage, name) for name in names}
    return {name: _plain(value) for name, value in values.items() if value != defaults[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return durations.format(value)
    if isinstance(value, tuple):
        return dict(value) if value and isinstance(value[0], tuple) else list(value)
    return value


def given(tree: Tree) -> Tree:
    """Return an entry without what was left out."""
    return {key: value for key, value in tree.items() if value is not None}


def columns(names: tuple[str, ...]) -> str | list[str]:
    """Return a column, or a list of several."""
    return names[0] if len(names) == 1 else list(names)


def end_of(path: str) -> str:
    """Return the last part of a path, which a picture has room for."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return name if len(name) <= 28 else name[:25] + "..."
