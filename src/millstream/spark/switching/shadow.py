"""A shadow that runs: the results of two versions are recorded, read back and compared.

    old query ──▶ its sinks, as always
              └─▶ shadow/<group>.old ──┐
    new query ──▶ shadow/<group>.new ──┴─▶ pairing ──▶ how they compare

Both sides are recorded by the same means (`recorder.py`), in the batch that publishes, so what a
version has committed is here. How far a version has got is asked first, then all that is here is
read: so nothing that was complete is missed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.clock import moment_of
from millstream.flow.flow import Flow
from millstream.journal import journal_at
from millstream.journal.align import FOREVER_US
from millstream.plan.groups import Group
from millstream.spark.io.recorder import START, Recorder
from millstream.spark.run.query import GroupQuery
from millstream.spark.run.version import FlowVersion
from millstream.spark.switching.reading import positions
from millstream.switch.changes import Change
from millstream.switch.comparison import Compared, Comparison
from millstream.switch.pairing import Pairing, Side
from millstream.switch.plan import SwitchPlan
from millstream.switch.shadow import Shadowed, begins_at, settled_until

#: The most results of one side of an output that are read at once: others want their turn too.
CHUNK: Final = 20_000
#: How many of these are read at the end: the driver cannot compare without a limit.
LAST_CHUNKS: Final = 25
#: So many results may wait for their partners: more than that, and one version is too far behind.
MOST_WAITING: Final = 1_000_000


@dataclass
class _Output:
    """The results of an output in both versions, or in the new one if it is new."""

    group: str
    pairing: Pairing
    horizon_us: int
    queries: dict[Side, GroupQuery]
    recorders: dict[Side, Recorder]
    read: dict[Side, int] = field(default_factory=lambda: {"old": 0, "new": 0})
    until_us: int | None = None

    def reached(self) -> list[int | None]:
        logged = [(query, query.checkpoint.committed()) for query in self.queries.values()]
        return [None if one is None else query.sink.reached(one) for query, one in logged]


class Shadow:
    """The comparison of a version with the one in whose shadow it runs."""

    def __init__(
        self, folder: Path, old: FlowVersion, new: FlowVersion, plan: SwitchPlan, found: Shadowed
    ) -> None:
        self.folder = folder
        self.found = found
        self._old, self._new, self._plan = old, new, plan
        self._outputs: list[_Output] = []
        self._since_us: int | None = None
        self._recorders: dict[tuple[str, Side], Recorder] = {}

    @property
    def letters(self) -> Path:
        """Where the dead letters of the new version go."""
        return self.folder / "letters"

    @property
    def groups(self) -> frozenset[str]:
        """The groups of the new version whose results are compared, and go nowhere else."""
        return frozenset(group.name for group in self._new.plan.groups if self._outer(group))

    def _outer(self, group: Group) -> bool:
        return group.name in self.found.groups and group.journal not in self.found.inner

    # beginning

    def record(self, side: Side, query: GroupQuery) -> None:
        """Record what a query emits from its next batch on."""
        name = query.group.name
        if name in self.groups:
            version = self._old if side == "old" else self._new
            schema = version.analysis.schemas[query.group.output]
            recorder = Recorder(self.folder / f"{name}.{side}", schema)
            self._recorders[name, side] = query.sink.recorder = recorder

    def begin(self) -> int:
        """Record what the old version emits, and return T, above all that it has handed out."""
        for query in self._old.queries.values():
            self.record("old", query)
        # Not before: a batch that is logged later than this is recorded.
        self._since_us = begins_at(self._handed_out(), self.found.step_us)
        for recorder in self._recorders.values():
            recorder.since_us = self._since_us
        self._outputs = [
            self._output(query)
            for query in self._new.queries.values()
            if query.group.name in self.groups
        ]
        return self._since_us

    def _handed_out(self) -> Iterator[int | None]:
        """Yield the highest moments that the old version has read of what the new one will read."""
        read = {name for query in self._new.queries.values() for name in query.sink.inputs}
        for query in self._old.queries.values():
            last = query.checkpoint.last("offsets")
            logged = None if last is None else query.checkpoint.logged(last)
            if logged is None or not (
                query.group.name in self.found.groups or read & query.sink.inputs.keys()
            ):
                continue
            for offset in logged.offsets.values():
                # What completes at the floor may start, where a window's end is taken for its
                # start, after all rows.
                yield None if offset.floor is None else offset.floor - 1
                yield from (view.state_at(at).running_max for view, at in positions(query, offset))

    def _output(self, query: GroupQuery) -> _Output:
        name = query.group.name
        change = next(one.change for one in self._plan.groups if one.name == name)
        queries: dict[Side, GroupQuery] = {"new": query}
        if change is Change.REPLACED:
            queries["old"] = self._old.queries[name]
        recorders = {side: self._recorders[name, side] for side in queries}
        columns = [
            one
            for one in recorders["new"].columns
            if all(one in r.columns for r in recorders.values())
        ]
        by = _identity(query.flow, query.group.output, recorders["new"].schema, columns)
        start = query.sink.start if query.sink.start in columns else None
        pairing = Pairing(_title(query.group), tuple(columns), by, change, start)
        return _Output(name, pairing, self.found.horizon_us(name), queries, recorders)

    # going on

    def poll(self) -> None:
        """Compare what has come."""
        for output in self._outputs:
            reached = output.reached()
            caught_up = [self._read(output, side) for side in output.queries]
            if all(caught_up):
                self._settle(output, reached)

    def finish(self) -> str | None:
        """Compare what is here, if it is not far too much; return what is wrong, if anything is."""
        try:
            for output in self._outputs:
                self._finish(output)
        except Exception as error:  # noqa: BLE001 (whatever it is, the old version goes on)
            return str(error)
        return None

    def _finish(self, output: _Output) -> None:
        reached = output.reached()
        for _ in range(LAST_CHUNKS):
            caught_up = [self._read(output, side) for side in output.queries]
            if all(caught_up):
                self._settle(output, reached)
                return

    def _read(self, output: _Output, side: Side) -> bool:
        """Read on; tell whether all was read that was there."""
        view = output.recorders[side].reader.partition(0)
        begin, end = output.read[side], view.end
        stop = min(end, begin + CHUNK)
        for part in view.read(begin, stop):
            if part.batch is not None:
                self._feed(output, side, part.batch)
        output.read[side] = stop
        return stop == end

    def _feed(self, output: _Output, side: Side, batch: pa.RecordBatch) -> None:
        assert self._since_us is not None
        values = [batch.column(name).to_pylist() for name in output.pairing.columns]
        for start, *row in zip(batch.column(START).to_pylist(), *values, strict=True):
            if start is not None and start >= self._since_us:
                output.pairing.feed(side, start, row)

    def _settle(self, output: _Output, reached: list[int | None]) -> None:
        until = settled_until(reached, output.horizon_us, self.found.step_us)
        if until is not None and (output.until_us is None or until > output.until_us):
            output.until_us = until
            output.pairing.settle(until)

    @property
    def complete(self) -> bool:
        """Whether nothing more can come in either version."""
        return bool(self._outputs) and all(one.until_us == FOREVER_US for one in self._outputs)

    @property
    def trouble(self) -> str | None:
        """What makes it useless to go on, if anything does."""
        errors = [
            (name, one.error) for (name, _), one in self._recorders.items() if one.error is not None
        ]
        if errors:
            return f'the results of "{errors[0][0]}" could not be recorded: {errors[0][1]}'
        if sum(one.pairing.waiting for one in self._outputs) > MOST_WAITING:
            return f"more than {MOST_WAITING:,} results wait for the other version's: one is too far behind"
        return None

    # what is reported

    def comparison(self) -> Comparison:
        """Return how the versions compare so far."""
        if self._since_us is None:
            return Comparison(left_out=self.found.left_out)
        known = [
            one.until_us
            for one in self._outputs
            if one.until_us is not None and one.until_us > self._since_us
        ]
        whole = len(known) == len(self._outputs) and known
        until = None if not whole or min(known) == FOREVER_US else _iso(min(known))
        gone = [
            one.name
            for one in self._plan.groups
            if one.change is Change.REMOVED and one.name in self.found.groups
        ]
        return Comparison(
            _iso(self._since_us),
            until,
            (
                *(_compared(one) for one in self._outputs),
                *(Compared(name, Change.REMOVED) for name in gone),
            ),
            self.found.left_out,
            sum(journal_at(self.letters).dead_counts().values()) if self.letters.exists() else 0,
        )

    # ending

    def end(self) -> None:
        """Let the old version's results be as they were, and remove all that was recorded."""
        for query in self._old.queries.values():
            query.sink.recorder = None
        for recorder in self._recorders.values():
            recorder.close()
        remove(self.folder)


def remove(folder: Path) -> None:
    """Remove what a shadow has recorded; may be repeated."""
    shutil.rmtree(folder, ignore_errors=True)


def _title(group: Group) -> str:
    return ", ".join(group.sinks) if group.journal is None else group.journal


def _compared(output: _Output) -> Compared:
    columns: Mapping[Side, tuple[str, ...]] = {
        side: one.columns for side, one in output.recorders.items()
    }
    old, new = columns.get("old", columns["new"]), columns["new"]
    return output.pairing.compared(
        [n for n in old if n not in new], [n for n in new if n not in old]
    )


def _identity(flow: Flow, output: str, schema: pa.Schema, columns: list[str]) -> tuple[str, ...]:
    """Return the columns that tell, beside its start, which result a row is."""
    stage, key = flow.stages[output], flow.stream(output).key
    if stage.start is not None and stage.grouped_by is not None:
        return tuple(name for name in stage.grouped_by if name in columns)
    if key is not None and key in columns:
        return (key,)
    return tuple(name for name in columns if not _floating(schema.field(name).type))


def _floating(kind: pa.DataType) -> bool:
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(map(_floating, inner))


def _iso(us: int) -> str:
    return moment_of(us).isoformat().replace("+00:00", "Z")
