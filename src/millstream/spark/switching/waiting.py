"""What an overlap waits for: how far the sources must come until the version that leaves is done.

Event time advances with events. A switch whose sources are silent would stay open, so it says which
floors it needs; whoever writes the sources may lift those that are idle.
"""

from __future__ import annotations

from typing import Final

from millstream.clock import MICROSECOND, moment_of
from millstream.journal import align, journal_at
from millstream.spark.run.version import FlowVersion
from millstream.spark.switching.pair import VersionPair
from millstream.switch.again import utc_text
from millstream.switch.phases import Overlapping

#: The watermark of some groups stays this much below the floor: see `source.watermark_ms`.
SLACK_US: Final = 1000


def needed_floors(pair: VersionPair) -> dict[str, int]:
    """Return the floor that each source needs, where the version that leaves has more to read."""
    found: dict[str, int] = {}
    if isinstance(pair.state, Overlapping) and pair.next is not None:
        for unit in [unit for unit in pair.units if not unit.moved]:
            until = pair.cut_us + pair.reach_us(unit)
            for name in unit.groups:
                query = pair.leaving.queries.get(name)
                for journal in () if query is None else query.sink.inputs:
                    _need(pair.leaving, journal, until, found, frozenset())
    return found


def _need(
    version: FlowVersion, journal: str, floor: int, found: dict[str, int], seen: frozenset[str]
) -> None:
    """Note what the sources behind a journal need, so that it comes to a floor."""
    use = version.plan.journals[journal]
    if use.kind == "source":
        found[journal] = max(floor, found.get(journal, floor))
    elif journal not in seen:
        writer = version.plan.group(use.writer)
        above = floor + writer.behind // MICROSECOND + SLACK_US
        for name in writer.inputs:
            _need(version, name, above, found, seen | {journal})


def awaited(pair: VersionPair) -> str | None:
    """Return which source must have events before the overlap can end; None if all have."""
    for name, needed in needed_floors(pair).items():
        lateness = pair.leaving.lateness[name]
        reader = journal_at(pair.leaving.journal(name)).cached_reader()
        views = [reader.partition(number) for number in range(reader.description.partitions)]
        floor = align.floor_at(views, [view.end for view in views], lateness)
        if floor is None or floor < needed:
            so_far = "it has none" if floor is None else f"it is at {_text(floor + lateness)}"
            return f'events of source "{name}" from {_text(needed + lateness)} on; {so_far}'
    return None


def _text(moment_us: int) -> str:
    return utc_text(moment_of(moment_us))
