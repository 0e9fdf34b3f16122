"""How far results reach: the horizon and the look-back of every stage.

A switch of versions is cut at a moment T, a multiple of the flow's switch interval. A result
belongs to the old version if it starts before T, to the new one otherwise. The *horizon* of a stage
says how far past T a result that starts before T may read; the *look-back* how far before T a
result that starts at or after it may read. None means that no bound is known. Along a chain both
add up. Where a stage groups by the time of a window (its end), the window's size is added to the
look-back: such a row was begun that long before its time. So it is with pairs of an inner join,
which are timed by their left row and may have begun with the right one.

| stage | horizon | look-back |
| --- | --- | --- |
| rows, apply, sql, merge, lookup | 0 | 0 |
| tumbling window | 0 where every T is one of its boundaries, else its size | 0 |
| sliding window | its size | 0 |
| session window | `longest`, or open | the gap and `longest`, or open |
| join of streams | the bound | the bound; 0 for an inner one |
| match | the pattern's `within`, or open: in a switch it is handed over | 0 |
| distinct, fold, match that skips or is a singleton | handed over: their state moves by name | |

`behind` is how far the time of a row that is still to come may lie behind the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from millstream.flow.flow import Flow
from millstream.flow.stages.stage import ZERO, Reach, Stage


@dataclass(frozen=True, slots=True)
class _Chain:
    """What a stream has gathered on its way, with the size of the window whose end is its time."""

    reach: Reach
    pending: timedelta | None = ZERO


def chain_reach(
    flow: Flow, stages: tuple[str, ...], output: str, *, switched: bool = False
) -> Reach:
    """Return how far the results of a chain of stages, in topological order, reach together.

    If it is `switched`, state that can be handed over at the cut does not reach beyond it.
    """
    return _chains(flow, stages, switched=switched)[output].reach


def switched_reach(stage: Stage, service_window: timedelta) -> Reach:
    """Return how far a stage reaches in a switch: one without a limit hands its state over."""
    own = stage.reach(service_window)
    endless = own.horizon is None and stage.carried_at_cut
    return replace(own, horizon=ZERO, handed_over=True) if endless else own


def begun_before(flow: Flow, stages: tuple[str, ...], output: str) -> timedelta | None:
    """Return how long before its time a row of `output` may have begun."""
    return _chains(flow, stages)[output].pending


def _chains(flow: Flow, stages: tuple[str, ...], *, switched: bool = False) -> dict[str, _Chain]:
    chains: dict[str, _Chain] = {}
    for name in stages:
        stage = flow.stages[name]
        above = [chains[source] for source in stage.inputs if source in chains]
        window = flow.switch_every
        own = switched_reach(stage, window) if switched else stage.reach(window)
        chains[name] = _extended(stage, own, above, window)
    return chains


def _extended(stage: Stage, own: Reach, above: list[_Chain], service_window: timedelta) -> _Chain:
    inputs = [chain.reach for chain in above]
    pending = _longest([chain.pending for chain in above])
    look_backs = own.look_back, _longest([one.look_back for one in inputs])
    total = Reach(
        horizon=_sum(own.horizon, _longest([one.horizon for one in inputs])),
        look_back=_sum(*look_backs, pending if stage.state else ZERO),
        handed_over=own.handed_over or any(one.handed_over for one in inputs),
        behind=own.behind + max((one.behind for one in inputs), default=ZERO),
    )
    return _Chain(total, stage.begun_before(pending, service_window))


def _sum(*lengths: timedelta | None) -> timedelta | None:
    known = [length for length in lengths if length is not None]
    return sum(known, ZERO) if len(known) == len(lengths) else None


def _longest(lengths: list[timedelta | None]) -> timedelta | None:
    known = [length for length in lengths if length is not None]
    return max(known, default=ZERO) if len(known) == len(lengths) else None
