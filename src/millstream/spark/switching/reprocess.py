"""Processing again from a moment in the past: whether it can be done, and taking results back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from millstream.clock import EPOCH, MICROSECOND, micros, moment_of
from millstream.journal import journal_at
from millstream.spark.failpoints import passing
from millstream.spark.io.targets import Withdrawing
from millstream.spark.run.version import FlowVersion
from millstream.switch import cut as cuts
from millstream.switch.again import outputs, utc_text
from millstream.switch.obstacle import Obstacle
from millstream.switch.plan import SwitchPlan
from millstream.switch.starts import start_of
from millstream.switch.units import Unit


def unready(old: FlowVersion, new: FlowVersion, plan: SwitchPlan) -> Iterator[Obstacle]:
    """Yield why a flow cannot be processed again from where the plan says, for now."""
    if plan.since is not None:
        for unit in plan.units:
            yield from _behind(old, unit, plan.since)
        yield from trimmed(old, new, plan)


def _behind(old: FlowVersion, unit: Unit, since: datetime) -> Iterator[Obstacle]:
    """Yield the groups that may still emit something that starts before the moment."""
    if unit.horizon is None or unit.moved:
        return  # refused for that already
    for name in unit.groups:
        query = old.queries.get(name)
        committed = None if query is None else query.checkpoint.committed()
        reached = None if query is None or committed is None else query.sink.reached(committed)
        if query is not None and not cuts.drained(
            reached, micros(since), unit.horizon // MICROSECOND
        ):
            far = "nowhere yet" if reached is None else f"to {utc_text(moment_of(reached))}"
            fact = f'group "{name}" has come {far}, and what starts before {utc_text(since)} is not all out'
            yield Obstacle(fact, "give an earlier time, wait, or switch without --from")


def trimmed(old: FlowVersion, new: FlowVersion, plan: SwitchPlan) -> Iterator[Obstacle]:
    """Yield the journals that do not go back far enough any more."""
    assert plan.since is not None
    for unit in plan.units:
        back = timedelta(0) if unit.look_back is None else unit.look_back
        for journal in dict.fromkeys(_read(new, unit)):
            kept = _kept_since(old, journal)
            if kept is not None and (
                unit.look_back is None
                or kept > cuts.reads_from(micros(plan.since), back // MICROSECOND)
            ):
                fact = f'"{journal}" is kept since {utc_text(moment_of(kept))}, and {unit.name} would have to read more of it'
                yield Obstacle(
                    fact, f"give {utc_text(_cut_from(moment_of(kept) + back, plan.step))}, or later"
                )


def _cut_from(moment: datetime, step: timedelta) -> datetime:
    """Return the first place for a cut from a moment on."""
    return moment + (EPOCH - moment) % step


def _read(version: FlowVersion, unit: Unit) -> Iterator[str]:
    """Yield the journals that the groups of a unit read and do not write themselves."""
    for group in version.plan.groups:
        if group.name in unit.groups:
            yield from (name for name in group.inputs if name not in unit.private)


def _kept_since(version: FlowVersion, journal: str) -> int | None:
    """Return from when on a journal has all its rows; None if nothing is gone."""
    path = version.journal(journal)
    if not path.exists():
        return None
    reader = journal_at(path).reader()
    views = [reader.partition(number) for number in range(reader.description.partitions)]
    gone = [view.state_at(view.begin).running_max for view in views if view.begin > 0]
    return max((one + 1 for one in gone if one is not None), default=None)


def withdraw(old: FlowVersion, plan: SwitchPlan, since_us: int) -> None:
    """Take back the old version's results from a moment on from its sinks; may be repeated.

    Nobody may write to them meanwhile.
    """
    taken = outputs(plan.old, plan.new, plan.groups).taken_back
    for group in old.plan.groups:
        for name in group.sinks:
            alike = group.name not in plan.unlike
            start = start_of(old.flow, group.stages, group.output, by_time=True, alike=alike)
            if name in taken and start is not None:
                target = old.sink_target(group, name)
                assert isinstance(target, Withdrawing)
                target.recover()
                target.withdraw(start.column, since_us)
                passing("switch-withdrawn")
