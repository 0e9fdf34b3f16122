"""By which column the results of a group are shared out between two versions."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.flow import expressions
from millstream.flow.flow import Flow
from millstream.plan.groups import Group


def key_of(flow: Flow, output: str) -> str | None:
    """Return the column whose value says whose a result of a stage is; None if there is none.

    It is the stream's key. A window has one result for all rows of what it groups by, so there it
    is one of those columns.
    """
    return flow.stages[output].result_key(flow.stream(output).key)


def key_meaning(flow: Flow, group: Group, key: str) -> str:
    """Return a key with what it is computed by, if a stage of the group computes it."""
    for name in reversed(group.stages):
        text = flow.stages[name].key_expressions.get(key)
        if text is not None:
            return f"{key} = {expressions.normal(text)}"
    return key


def grouped_otherwise(flow: Flow, group: Group, key: str) -> Iterator[str]:
    """Yield the stages of a group that make one result of rows of several keys."""
    for name in group.stages:
        by = flow.stages[name].grouped_by
        if by is not None and key not in by:
            yield name
