"""What differs between two checkpoints, or between two batches of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final

import msgspec

from millstream.clock import moment_of
from millstream.plan import fingerprint
from millstream.spark.inspection.opened import Opened
from millstream.spark.inspection.report import CheckpointReport
from millstream.spark.io.source import Offset


class Difference(msgspec.Struct, frozen=True):
    """Something that two checkpoints do not have in common."""

    what: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.what}: {_shown(self.before)} -> {_shown(self.after)}"


#: What lies beyond it is no time: a source has ended.
ENDED_US: Final = 7_000_000_000_000_000


def moment(us: int) -> str:
    """Return a time as text."""
    return "ended" if us > ENDED_US else moment_of(us).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _shown(value: str | None) -> str:
    return "none" if value is None else value


def differences(before: CheckpointReport, after: CheckpointReport) -> list[Difference]:
    """Return what differs, by the name of each thing; nothing if the two are equal."""
    old, new = dict(_facts(before)), dict(_facts(after))
    return [
        Difference(what, old.get(what), new.get(what))
        for what in dict.fromkeys((*old, *new))
        if old.get(what) != new.get(what)
    ]


def meanings(before: Opened, after: Opened) -> list[str]:
    """Return what differs in the meaning of two groups, a line for each change."""
    descriptions = (dict(one.checkpoint.description) for one in (before, after))
    return fingerprint.difference(*descriptions)


def _facts(one: CheckpointReport) -> Iterator[tuple[str, str]]:
    """Yield everything in a checkpoint that can differ, as text."""
    numbers: Mapping[str, int | None] = {
        "batch": one.batch,
        "generation": one.generation,
        "watermark": one.watermark_ms,
    }
    yield "checkpoint", one.checkpoint
    yield "fingerprint", one.fingerprint[:12]
    for what, number in numbers.items():
        if number is not None:
            yield what, moment(number * 1000) if what == "watermark" else str(number)
    for name, offset in one.inputs.items():
        yield from _input(name, offset)
    for output in one.published:
        yield f'output "{output.name}"', f"epoch {output.epoch}"
    for state in one.state:
        what = f'state of "{state.stage}"' if state.stage else f"state of operator {state.operator}"
        yield what, f"version {state.version}, {state.bytes:,} B in {state.files} files"


def _input(name: str, offset: Offset) -> Iterator[tuple[str, str]]:
    for partition, position in enumerate(offset.positions):
        yield f'input "{name}", partition {partition}', f"{position:,}"
    if offset.floor is not None:
        yield f'input "{name}", floor', moment(offset.floor)


def read_between(before: CheckpointReport, after: CheckpointReport) -> dict[str, int]:
    """Return, by journal, how many positions lie between two checkpoints of one group."""
    found = {}
    for name, offset in after.inputs.items():
        earlier = before.inputs.get(name)
        starts = () if earlier is None else earlier.positions
        pairs = zip_longest(starts, offset.positions, fillvalue=0)
        found[name] = sum(end - start for start, end in pairs)
    return found
