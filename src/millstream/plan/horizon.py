"""How far results reach: the horizon and the look-back of every stage.

A switch of versions is cut at a moment T, a multiple of the flow's service window. A result belongs
to the old version if it starts before T, to the new one otherwise. The *horizon* of a stage says
how far past T a result that starts before T may read; the *look-back* how far before T a result
that starts at or after it may read. None means that no bound is known. Along a chain both add up.
Where a stage groups by the time of a window (its end), the window's size is added to the look-back:
such a row was begun that long before its time.

| stage | horizon | look-back |
| --- | --- | --- |
| rows, apply, sql, merge, lookup | 0 | 0 |
| tumbling window | 0 where every T is one of its boundaries, else its size | 0 |
| sliding window | its size | 0 |
| session window | `longest`, or open | the gap and `longest`, or open |
| join of streams | the bound | the bound; 0 for an inner one |
| match | the pattern's `within`, or open | 0 |
| distinct, fold, match that skips or is a singleton | handed over: their state moves by name | |

`behind` is how far the time of a row that is still to come may lie behind the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millstream.flow.flow import Flow
from millstream.flow.stages import Distinct, Fold, Join, Match, Stage, Window

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the results of a stage, or of a chain of them, reach; None is open-ended."""

    horizon: timedelta | None = ZERO
    look_back: timedelta | None = ZERO
    handed_over: bool = False
    behind: timedelta = ZERO


@dataclass(frozen=True, slots=True)
class _Chain:
    """What a stream has gathered on its way, with the size of the window whose end is its time."""

    reach: Reach
    pending: timedelta | None = ZERO


def reach(stage: Stage, service_window: timedelta) -> Reach:
    """Return how far the results of one stage reach, by themselves."""
    match stage:
        case Window():
            return Reach(*_window(stage, service_window))
        case Join():
            return Reach(
                stage.within, ZERO if stage.how == "inner" else stage.within, behind=stage.within
            )
        case Distinct() | Fold():
            return Reach(handed_over=True)
        case Match():
            return (
                Reach(stage.pattern.reach) if stage.pattern.independent else Reach(handed_over=True)
            )
    return Reach()


def _window(stage: Window, service_window: timedelta) -> tuple[timedelta | None, timedelta | None]:
    match stage.kind:
        case "session":
            assert stage.gap is not None
            return stage.longest, None if stage.longest is None else stage.gap + stage.longest
        case "sliding":
            return stage.size, ZERO
        case "tumbling":
            return ZERO if _aligned(stage, service_window) else stage.size, ZERO


def _aligned(stage: Window, service_window: timedelta) -> bool:
    """Tell whether every multiple of the service window is a boundary of a tumbling window."""
    return stage.kind == "tumbling" and stage.size is not None and not service_window % stage.size


def chain_reach(flow: Flow, stages: tuple[str, ...], output: str) -> Reach:
    """Return how far the results of a chain of stages, in topological order, reach together."""
    return _chains(flow, stages)[output].reach


def begun_before(flow: Flow, stages: tuple[str, ...], output: str) -> timedelta | None:
    """Return how long before its time a row of `output` may have been begun, where its time is a window's end."""
    return _chains(flow, stages)[output].pending


def _chains(flow: Flow, stages: tuple[str, ...]) -> dict[str, _Chain]:
    chains: dict[str, _Chain] = {}
    for name in stages:
        stage = flow.stages[name]
        above = [chains[source] for source in stage.inputs if source in chains]
        chains[name] = _extended(stage, above, flow.window)
    return chains


def _extended(stage: Stage, above: list[_Chain], service_window: timedelta) -> _Chain:
    own = reach(stage, service_window)
    inputs = [chain.reach for chain in above]
    pending = _longest([chain.pending for chain in above])
    grouped = isinstance(stage, Window | Join | Distinct | Fold | Match)
    look_back = _sum(
        own.look_back, _longest([one.look_back for one in inputs]), pending if grouped else ZERO
    )
    total = Reach(
        horizon=_sum(own.horizon, _longest([one.horizon for one in inputs])),
        look_back=look_back,
        handed_over=own.handed_over or any(one.handed_over for one in inputs),
        behind=own.behind + max((one.behind for one in inputs), default=ZERO),
    )
    if isinstance(stage, Window):
        return _Chain(total, _begun_before(stage, service_window))
    if isinstance(stage, Match):
        return _Chain(total, stage.pattern.reach)
    return _Chain(total, ZERO if grouped and not isinstance(stage, Join) else pending)


def _begun_before(stage: Window, service_window: timedelta) -> timedelta | None:
    """Return how long before its time a window that ends after a cut may have begun before the cut."""
    if _aligned(stage, service_window):
        return ZERO
    return stage.longest if stage.kind == "session" else stage.size


def _sum(*lengths: timedelta | None) -> timedelta | None:
    known = [length for length in lengths if length is not None]
    return sum(known, ZERO) if len(known) == len(lengths) else None


def _longest(lengths: list[timedelta | None]) -> timedelta | None:
    known = [length for length in lengths if length is not None]
    return max(known, default=ZERO) if len(known) == len(lengths) else None
