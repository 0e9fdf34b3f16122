"""Where a result's start is found: the column by which results are owned.

A window's rows say when it started. Those of a pattern or of a join that go out as they are carry a
start in a hidden column: the time of the first event, or of the earlier row of a pair, so that no
pair depends on which side is called left. Further down that column may be gone, or be the user's
own; there the stream's time takes its place. A window's time is its end and a pair's is its left
row's, so a result that is timed after the cut may have read rows from before it: such ownership
looks further back, and nothing else changes. Where the results of two versions start in different
ways, both are owned by the stream's time, which both have: a result that is before the cut for one
and after it for the other would be there twice, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millstream.flow.flow import Flow
from millstream.flow.stages.stage import ZERO, Stage
from millstream.plan.horizon import begun_before

HIDDEN_START = "__start"


@dataclass(frozen=True, slots=True)
class Start:
    """The column that says when a result started, and how much further back its version must read.

    None is open-ended.
    """

    column: str
    look_back: timedelta | None = ZERO


def start_of(
    flow: Flow, stages: tuple[str, ...], output: str, *, by_time: bool = False, alike: bool = True
) -> Start | None:
    """Return by what the results of `output` are owned; None if they have no time.

    Args:
        flow: The flow.
        stages: Those of the group.
        output: The last of them.
        by_time: By a column that they carry, so that it can be looked for where they are.
        alike: The other version has such a start too; else both go by the stream's time.
    """
    stage = flow.stages[output]
    if stage.start is not None and alike:
        return Start(stage.start)
    if stage.hidden_start and alike and not by_time:
        return Start(HIDDEN_START)
    time = flow.stream(output).time
    if time is None:
        return None
    return Start(time, begun_before(flow, stages, output))


def start_before(
    flow: Flow, stages: tuple[str, ...], output: str, *, by_time: bool = False
) -> Start | None:
    """Return by what results are owned at cuts that do not say it.

    Releases that did not say it owned the pairs of a join by their left row.
    """
    by_column = not flow.stages[output].older_cuts_by_time
    return start_of(flow, stages, output, by_time=by_time, alike=by_column)


def alike(old: Stage, new: Stage) -> bool:
    """Tell whether the results of two stages begin in the same way, so that one cut fits both."""
    hidden = [stage.kind for stage in (old, new) if stage.hidden_start]
    return old.start == new.start and (not hidden or hidden == [old.kind] * 2)
