"""A flow that has ended, noted: a run with nothing to do need not start Spark to find that out.

    .millstream/<flow>/ended.json

It is written once all groups have finished, when everything is published. It counts as long as the
sources and sinks of the flow are the same, its groups have the same checkpoints, and its journals
hold the same and have ended. Otherwise Spark starts, and finds out.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec

from millstream.errors import MillstreamError
from millstream.flow.flow import Flow
from millstream.flow.stages import Source
from millstream.journal import journal_at
from millstream.plan.groups import Plan
from millstream.spark.flow_run import RunStatistics
from millstream.spark.io.checkpoint import recorded
from millstream.spark.run.end_note import FILE
from millstream.spark.switching.switch_log import SwitchLog
from millstream.storage import Folder


class EndNote(msgspec.Struct, frozen=True):
    """What there was when a flow ended; groups by their checkpoints, journals by their ends."""

    version: str
    edges: str
    groups: dict[str, str]
    ends: dict[str, list[int]]
    numbers: RunStatistics


def note_end(planned: Plan, folder: Path, numbers: RunStatistics, version: str) -> None:
    """Note that a flow has ended, with this version of Millstream, unless something goes on."""
    found = _now(planned, folder, numbers, version)
    if found is not None:
        Folder(folder).put(FILE, msgspec.json.encode(found))


def ended_before(planned: Plan, folder: Path, version: str) -> RunStatistics | None:
    """Return the numbers of a run that has nothing to do, None if that is not certain."""
    raw = Folder(folder).read(FILE)
    if raw is None:
        return None
    try:
        note = msgspec.json.decode(raw, type=EndNote)
    except msgspec.MsgspecError:
        return None
    if note != _now(planned, folder, note.numbers, version):
        return None
    return _of_this_run(note.numbers)


def _now(planned: Plan, folder: Path, numbers: RunStatistics, version: str) -> EndNote | None:
    """Return what would be noted now; None if the flow goes on, or may."""
    # The record of a switch says which version is meant, and an outbox may not have ended its
    # source there.
    ending = any(getattr(sink.target, "end", False) for sink in planned.flow.sinks.values())
    if ending or SwitchLog(folder / "switch").read() is not None:
        return None
    groups = {one.name: recorded(folder.resolve() / "groups" / one.name) for one in planned.groups}
    ends = {name: _ends(folder / "journals" / name) for name in planned.journals}
    if not all(groups.values()) or not all(ends.values()):
        return None
    return EndNote(
        version,
        _edges(planned.flow),
        {name: record["checkpoint"] for name, record in groups.items() if record is not None},
        {name: found for name, found in ends.items() if found is not None},
        numbers,
    )


def _ends(path: Path) -> list[int] | None:
    """Return where the partitions of a journal end; None if one of them has not ended."""
    with contextlib.suppress(MillstreamError):
        reader = journal_at(path).reader()
        parts = [reader.partition(number) for number in range(reader.description.partitions)]
        if all(part.state_at(part.end).ended for part in parts):
            return [part.end for part in parts]
    return None


def _edges(flow: Flow) -> str:
    """Return what changes with the sources and sinks; groups have fingerprints of their own."""
    sources = [repr(stage) for stage in flow.stages.values() if isinstance(stage, Source)]
    sinks = [f"{name} {sink.target!r}" for name, sink in flow.sinks.items()]
    return hashlib.sha256("\n".join([*sources, *sinks]).encode()).hexdigest()


def _of_this_run(numbers: RunStatistics) -> RunStatistics:
    """Return the numbers at the end of an earlier run as those of one that did nothing."""
    groups = tuple(
        replace(one, rows_in=0, rows_out=0, batch_seconds=0.0, state_rows=0)
        for one in numbers.groups
    )
    sources = {
        name: replace(one, rows=0, refused=0, bytes=0) for name, one in numbers.sources.items()
    }
    return replace(numbers, groups=groups, sources=sources)
