"""A flow under test."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.clock import micros
from millstream.connectors.inbox import Inbox
from millstream.connectors.memory import Memory
from millstream.errors import IngestError, RunError, UnknownStream
from millstream.flow.flow import Flow
from millstream.flow.load import load
from millstream.flow.rewire import rewired
from millstream.flow.stages import Sink, Source
from millstream.journal import Kind, journal_at
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.session.session import session


class Results(list[dict[str, Any]]):
    """The rows of a sink; `results["column"]` is a column of them."""

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, str):
            return [row[place] for row in self]
        return super().__getitem__(place)


class FlowTest:
    """Runs a flow for a test: `with FlowTest(flow) as t`."""

    def __init__(
        self, flow: Flow | str | Path, *, stages: Sequence[str] = (), timeout: float = 300.0
    ) -> None:
        self._root = Path() if isinstance(flow, Flow) else Path(flow).resolve().parent
        self.flow = under_test(flow if isinstance(flow, Flow) else load(Path(flow)), stages)
        self._timeout = timeout
        self._sent = 0

    def __enter__(self) -> FlowTest:
        self._data = Path(tempfile.mkdtemp(prefix="millstream-test-"))
        log = Path(tempfile.gettempdir()) / f"millstream-tests-{os.getuid()}.log"
        self._run = FlowRun(
            session(self.flow.name, log=log), self.flow, Options(self._data, self._root, log=log)
        )
        try:
            self._run.start()
        except BaseException:
            shutil.rmtree(self._data, ignore_errors=True)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._run.stop()
        shutil.rmtree(self._data, ignore_errors=True)

    def send(self, source: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Send rows to a source, as a program would; times may be datetimes or text, in UTC."""
        stage = self._source(source)
        batch = batch_of(rows, stage)
        if batch.num_rows:
            self._run.host.inbox(source).enqueue(self._sender(), range(batch.num_rows), batch)

    def advance_to(self, moment: str | datetime, *sources: str) -> None:
        """Declare that nothing before `moment` will come, in these or all sources."""
        floor = micros(moment)
        for name in sources or tuple(self._sources()):
            if self._source(name).time is not None:
                self._run.host.inbox(name).instruct_nowait(
                    self._sender(), 0, Kind.WATERMARK, floor
                ).result()

    def end(self, *sources: str) -> None:
        """End these or all sources: every window closes."""
        for name in sources or tuple(self._sources()):
            self._run.host.inbox(name).instruct_nowait(
                self._sender(), 0, Kind.END_OF_STREAM
            ).result()

    def _sender(self) -> str:
        """Return a new name, so that rows which a test sends twice are stored twice."""
        self._sent += 1
        return f"test-{self._sent}"

    def results(self, name: str) -> Results:
        """Process everything sent so far; return all rows of a sink, or of one of the `stages`."""
        self._settle()
        for sink in (name, _of_stage(name)):
            if sink in self._run.memory:
                return Results(self._run.memory[sink].rows())
        raise UnknownStream(
            f'flow "{self.flow.name}" has no sink "{name}"',
            hint=f"its sinks are {', '.join(self._run.memory)}; "
            f'for a stage: flow_test(flow, stages=["{name}"])',
        )

    def dead_letters(self, journal: str) -> Results:
        """Return the dead letters of a source or a journal, with reason and record."""
        self._settle()
        if journal not in self._run.plan.journals:
            hint = f"one of {list(self._run.plan.journals)}"
            raise UnknownStream(f'flow "{self.flow.name}" has no journal "{journal}"', hint=hint)
        letters = journal_at(self._run.journal(journal)).dead_journal()
        if not letters.exists():
            return Results()
        view = letters.cached_reader().partition(0)
        return Results(
            row
            for part in view.read(view.begin, view.end)
            if part.batch
            for row in part.batch.to_pylist()
        )

    def wait(self) -> bool:
        """Wait until the flow has ended; return False if it does not in time."""
        return self._run.wait(timeout=self._timeout)

    def _settle(self) -> None:
        deadline = time.monotonic() + self._timeout
        still = 0
        # Twice in a row: a group that has caught up may run another batch because the
        # watermark has advanced.
        while still < 2:
            if time.monotonic() > deadline:
                raise RunError(f'flow "{self.flow.name}" was not done after {self._timeout:g} s')
            still = still + 1 if self._run.caught_up() and self._idle() else 0
            time.sleep(0.15)

    def _idle(self) -> bool:
        for query in self._run.queries.values():
            if query.finished:
                continue
            status: Any = query.query.status if query.query is not None else {}
            if status.get("isDataAvailable") or query.checkpoint.last(
                "offsets"
            ) != query.checkpoint.last("commits"):
                return False
        return True

    def _sources(self) -> list[str]:
        return [name for name, stage in self.flow.stages.items() if isinstance(stage, Source)]

    def _source(self, name: str) -> Source:
        stage = self.flow.stages.get(name)
        if not isinstance(stage, Source):
            hint = f"one of {self._sources()}"
            raise UnknownStream(f'flow "{self.flow.name}" has no source "{name}"', hint=hint)
        return stage


def under_test(flow: Flow, stages: Sequence[str] = ()) -> Flow:
    """Return the flow with inboxes as sources and sinks in memory, also for `stages`."""
    for name in stages:
        flow.stream(name)
    return rewired(
        flow,
        source=lambda stage: replace(stage, origin=Inbox(stage.schema), partitions=1),
        sink=lambda sink: replace(sink, target=Memory()),
        more=[Sink(_of_stage(name), name, Memory()) for name in stages],
    )


def _of_stage(name: str) -> str:
    return f"{name}.rows"


def batch_of(rows: Iterable[Mapping[str, Any]], stage: Source) -> pa.RecordBatch:
    """Turn a test's rows into a batch of the source's schema."""
    schema = stage.schema.arrow()
    plain = [_readable(row, schema, stage.name) for row in rows]
    columns = [pa.array([row.get(field.name) for row in plain], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _readable(row: Mapping[str, Any], schema: pa.Schema, source: str) -> dict[str, Any]:
    unknown = [name for name in row if name not in schema.names]
    if unknown:
        hint = f"one of {schema.names}"
        raise IngestError(f'source "{source}" has no column "{unknown[0]}"', hint=hint)
    readable = dict(row)
    for field in schema:
        value = readable.get(field.name)
        if pa.types.is_timestamp(field.type) and isinstance(value, str | datetime):
            readable[field.name] = micros(value)
    return readable


def flow_test(
    flow: Flow | str | Path, *, stages: Sequence[str] = (), timeout: float = 300.0
) -> FlowTest:
    """Return a flow under test, to be used with `with`.

    Args:
        flow: The flow, or the path of its file.
        stages: Stages whose rows `results` can return too.
        timeout: How many seconds to wait for results.
    """
    return FlowTest(flow, stages=stages, timeout=timeout)
