"""The executors' part of `action`: rows through a program in any language, and back to columns.

One program runs in each of Spark's Python workers and is kept between tasks. Rows of an Arrow batch
go to it as frames in bulk, and its answers are matched by order:

    batch ── encoded ──▶ payloads ──▶ program ──▶ answers ── decoded ──▶ rows with their answers
                                        │
               failed messages, and answers that do not fit `output` ──▶ dead letters

A dead letter is written by the worker, under the row's place in its journal, so a batch that is run
again adds nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.accumulators import Accumulator

from millstream.actions.program import Program
from millstream.actions.worker import Answered, Failed, Patience, Worker
from millstream.errors import RunError
from millstream.flow.schema import Schema
from millstream.ingest import parse_rows
from millstream.journal import DeadLetter, plain
from millstream.spark.io.source import PLACE, place_of
from millstream.spark.served.borrowed import Letters, put_letters
from millstream.spark.task_time import Programs, ProgramSeen

ROW: Final = "_row"
_UNFIT: Final = "its answer is not what output= says"
_MOST_PROGRAMS: Final = 8


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file that executors get: its name there, and how it is called beside the program."""

    stored: str
    name: str
    executable: bool


@dataclass(frozen=True, slots=True)
class ActionWork:
    """What a worker does with the batches of a task: called by Spark with an iterator of them."""

    flow: str
    stage: str
    program: Program
    format: str
    columns: tuple[str, ...]
    kept: tuple[str, ...]
    output: Schema
    files: tuple[Shipped, ...]
    patience: Patience
    letters: Letters | None
    #: What it reports its program to, if somebody wants to know.
    programs: Accumulator[Programs] | None = field(default=None, compare=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = _worker_of(self)
        try:
            for batch in batches:
                if batch.num_rows:
                    yield self.answered(worker, batch)
        finally:
            if self.programs is not None:
                self.programs.add(_seen(self.stage, worker))

    def answered(self, worker: Worker, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have an answer, each with it."""
        given = batch.select(list(self.columns))
        codec = _CODECS[self.format](given, self.output)
        result = codec.run(worker)
        if result.failed:
            self._bury(batch, given, result.failed)
        rows = batch.select(list(self.kept))
        if not _all_in_order(result.inputs, batch.num_rows):
            rows = rows.take(pa.array(result.inputs, pa.int64()))
        arrays = [*rows.columns, *(result.columns[name] for name in self.output.names)]
        return pa.RecordBatch.from_arrays(arrays, names=[*self.kept, *self.output.names])

    def _bury(
        self, batch: pa.RecordBatch, given: pa.RecordBatch, failed: tuple[Failed, ...]
    ) -> None:
        if self.letters is None:
            raise RunError(f'stage "{self.stage}" of flow "{self.flow}" failed: {failed[0].reason}')
        found = []
        for one in failed:
            record = plain.records(given.slice(one.index, 1))[0]
            partition, position = _place(batch, one.index, record)
            sender, reason = f"action:{self.stage}", f'action "{self.stage}": {one.reason}'
            found.append(DeadLetter(sender, position, reason, record, partition))
        put_letters(self.letters, found)


def _all_in_order(inputs: Any, count: int) -> bool:
    """Tell whether each row has one answer: then there is nothing to pick, and nothing to copy."""
    return len(inputs) == count and bool((inputs == np.arange(count)).all())


def _place(batch: pa.RecordBatch, index: int, record: str) -> tuple[int, int]:
    place = batch.column(PLACE)[index].as_py() if PLACE in batch.schema.names else None
    return place_of(place, record)


def _seen(stage: str, worker: Worker) -> Programs:
    host, own = socket.gethostname(), os.getpid()
    counts = worker.starts, worker.given, worker.failed
    return {(stage, host, own): ProgramSeen(stage, host, own, worker.pid, *counts, time.time())}


# programs, kept between tasks

_workers: OrderedDict[tuple[int, ActionWork], Worker] = OrderedDict()


def _worker_of(work: ActionWork) -> Worker:
    """Return the program of a stage in this process."""
    key = (os.getpid(), work)
    if key not in _workers:
        while len(_workers) >= _MOST_PROGRAMS:
            _workers.popitem(last=False)[1].close()
        _workers[key] = Worker(work.program, _unpacked(work.files), _log(work), work.patience)
    _workers.move_to_end(key)
    return _workers[key]


def _unpacked(files: tuple[Shipped, ...]) -> Path:
    """Return a working directory of its own for a program, with the files that were shipped."""
    # Spark removes this folder with its executor, also if a worker is killed.
    root = Path(SparkFiles.getRootDirectory()).resolve()  # "." on a cluster
    folder = Path(tempfile.mkdtemp(prefix="action-", dir=root))
    folder.chmod(0o755)
    for file in files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SparkFiles.get(file.stored), target)
        target.chmod(0o755 if file.executable else 0o644)
    return folder


def _log(work: ActionWork) -> Callable[[str], None]:
    """Return what passes a line on to the job's log, which is the worker's standard error."""

    def write(line: str) -> None:
        context = TaskContext.get()
        task = "" if context is None else f" partition {context.partitionId()}"
        sys.stderr.write(f"{work.flow}.{work.stage}{task} worker {os.getpid()}: {line}\n")
        sys.stderr.flush()

    return write


# formats


@dataclass(frozen=True, slots=True)
class Decoded:
    """Which row of the batch each answer is of, the answers' columns, and the rows that failed."""

    inputs: Any  # a numpy array
    columns: dict[str, pa.Array]
    failed: tuple[Failed, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """A frame for each row; `text` makes a line of JSON of an answer."""

    encode: Callable[[Any], bytes]
    text: Callable[[bytes], bytes]
    given: pa.RecordBatch
    output: Schema

    def run(self, worker: Worker) -> Decoded:
        payloads = [self.encode(row) for row in self.given.to_pylist(maps_as_pydicts="strict")]
        answered = worker.answer(pa.array(payloads, pa.binary()))
        rows = parse_rows(map(self.text, answered.outputs.to_pylist()), self.output.arrow())
        refused = [
            Failed(int(answered.inputs[one.number]), f"{_UNFIT}: {one.reason}")
            for one in rows.refused
        ]
        columns = dict(zip(rows.batch.schema.names, rows.batch.columns, strict=True))
        inputs = answered.inputs[rows.numbers] if len(rows) else np.empty(0, np.int64)
        return Decoded(inputs, columns, (*answered.failed, *refused))


def _line(payload: bytes) -> bytes:
    return payload.replace(b"\n", b" ")


def _as_json(payload: bytes) -> bytes:
    """Return MessagePack as JSON, so that the same rules read both, and refuse what is neither."""
    try:
        return msgspec.json.encode(msgspec.msgpack.decode(payload))
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, RecursionError):
        return b"no MessagePack: " + payload[:40].hex().encode()


class _Raw:
    """One column of bytes or text, as it is."""

    def __init__(self, given: pa.RecordBatch, output: Schema) -> None:
        self._given = given
        self._field = output.arrow().field(0)

    def run(self, worker: Worker) -> Decoded:
        answered = worker.answer(_bytes(self._given.column(0)))
        try:
            values = answered.outputs.cast(self._field.type)
        except pa.ArrowInvalid:
            return self._texts(answered)
        return Decoded(answered.inputs, {self._field.name: values}, answered.failed)

    def _texts(self, answered: Answered) -> Decoded:
        """Put aside the answers that are no text."""
        good, failed = [], list(answered.failed)
        for number, payload in enumerate(answered.outputs.to_pylist()):
            try:
                payload.decode()
            except UnicodeDecodeError:
                failed.append(Failed(int(answered.inputs[number]), "its answer is not text"))
            else:
                good.append(number)
        values = answered.outputs.take(pa.array(good, pa.int64())).cast(self._field.type)
        inputs = answered.inputs[np.array(good, np.int64)]
        return Decoded(inputs, {self._field.name: values}, tuple(failed))


def _bytes(column: pa.Array) -> pa.Array:
    """Return text or bytes as bytes, in offsets of the width that they have: nothing is copied."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.large_binary() if wide else pa.binary())


class _Arrow:
    """A frame for the whole batch: Arrow IPC each way, row for row, or by a column `_row`."""

    def __init__(self, given: pa.RecordBatch, output: Schema) -> None:
        self._given = given
        self._output = output.arrow()

    def run(self, worker: Worker) -> Decoded:
        parts = list(self._halving(worker, 0, self._given.num_rows))
        failed = tuple(one for part in parts for one in part.failed)
        inputs = np.concatenate([part.inputs for part in parts])
        names = self._output.names
        columns = {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in names}
        return Decoded(inputs, columns, failed)

    def _halving(self, worker: Worker, begin: int, count: int) -> Iterator[Decoded]:
        """Yield what becomes of the batch.

        One that fails is tried again in halves, so that only the bad rows fail.
        """
        answered = worker.answer(pa.array([_ipc(self._given.slice(begin, count))], pa.binary()))
        reason = answered.failed[0].reason if answered.failed else None
        if reason is None:
            if not len(answered.outputs):
                yield self._nothing(())
                return
            try:
                yield self._read(answered.outputs[0].as_py(), begin, count)
                return
            except (pa.ArrowException, ValueError) as error:
                reason = f"{_UNFIT}: {error}"
        if count > 1:
            yield from self._halving(worker, begin, count // 2)
            yield from self._halving(worker, begin + count // 2, count - count // 2)
        else:
            yield self._nothing((Failed(begin, reason),))

    def _nothing(self, failed: tuple[Failed, ...]) -> Decoded:
        empty = {field.name: pa.array([], field.type) for field in self._output}
        return Decoded(np.empty(0, np.int64), empty, failed)

    def _read(self, data: bytes, begin: int, count: int) -> Decoded:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all().combine_chunks()
        if ROW in table.column_names:
            rows = table.column(ROW).to_numpy().astype(np.int64)
            if len(rows) and (rows.min() < 0 or rows.max() >= count or (np.diff(rows) < 0).any()):
                raise ValueError(f'"{ROW}" does not grow from 0 to {count - 1}')
        elif table.num_rows != count:
            raise ValueError(f"{table.num_rows} rows for {count}")
        else:
            rows = np.arange(count)
        columns = {}
        for one in self._output:
            column = table.column(one.name).cast(one.type)
            columns[one.name] = pa.concat_arrays([pa.array([], one.type), *column.chunks])
        return Decoded(rows + begin, columns, ())


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


_CODECS: Final[dict[str, Callable[[pa.RecordBatch, Schema], Any]]] = {
    "json": partial(_Rows, msgspec.json.encode, _line),
    "msgpack": partial(_Rows, msgspec.msgpack.encode, _as_json),
    "raw": _Raw,
    "arrow": _Arrow,
}
