"""Where a result's start is found: the column by which results are owned.

A window's rows say when it started, and those of a pattern that goes out as it is carry the time of
their first event in a hidden column. Further down that column may be gone, or be the user's own;
there the stream's time takes its place. A window's time is its end and a join's is its left row's,
so a result that is timed after the cut may have read rows from before it: such ownership looks
further back, and nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millstream.flow.flow import Flow
from millstream.flow.stages.stage import ZERO
from millstream.plan.horizon import begun_before, chain_reach

MATCH_START = "__start"


@dataclass(frozen=True, slots=True)
class Start:
    """The column that says when a result started, and how much further back its version must read.

    None is open-ended.
    """

    column: str
    look_back: timedelta | None = ZERO


def start_of(
    flow: Flow, stages: tuple[str, ...], output: str, *, by_time: bool = False
) -> Start | None:
    """Return by what the results of `output` are owned; None if they have no time.

    `by_time`: by a column that they carry, so that it can be looked for where they are.
    """
    stage = flow.stages[output]
    if stage.start is not None:
        return Start(stage.start)
    if stage.hidden_start and not by_time:
        return Start(MATCH_START)
    time = flow.stream(output).time
    if time is None:
        return None
    begun, joined = begun_before(flow, stages, output), chain_reach(flow, stages, output).behind
    return Start(time, None if begun is None else begun + joined)
