"""By which column the results of a group are shared out between two versions."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.flow.flow import Flow
from millstream.flow.stages import Distinct, Stage, Window
from millstream.plan.groups import Group


def key_of(flow: Flow, output: str) -> str | None:
    """Return the column whose value says whose a result of a stage is; None if there is none.

    It is the stream's key. A window has one result for all rows of what it groups by, so there it
    is one of those columns.
    """
    stage, key = flow.stages[output], flow.stream(output).key
    if not isinstance(stage, Window | Distinct):
        return key
    by = grouped_by(stage) or []
    return key if key in by else next(iter(by), None)


def grouped_otherwise(flow: Flow, group: Group, key: str) -> Iterator[str]:
    """Yield the stages of a group that make one result of rows of several keys: whose it is would depend on the rows."""
    for name in group.stages:
        by = grouped_by(flow.stages[name])
        if by is not None and key not in by:
            yield name


def grouped_by(stage: Stage) -> list[str] | None:
    """Return the columns that a stage groups by; None if it does not group."""
    by: tuple[str | tuple[str, str], ...] | None = getattr(stage, "by", None)
    return None if by is None else [one if isinstance(one, str) else one[0] for one in by]
