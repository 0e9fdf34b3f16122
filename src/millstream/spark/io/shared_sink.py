"""The end of groups that share a query: one call per micro-batch publishes an epoch of each, once.

    Spark      offsets n ───────────────────────────────────────────────────────▶ commit n
    member a   offsets i ─▶           ─▶ decide, publish ─▶           ─▶ commit i
    member b   offsets j ─▶ stage all ─▶ decide, publish ─▶ late rows ─▶ commit j

A member's checkpoint is what a query of its own would have written, at every moment. All members have
logged a batch before anything is staged, and all have published it before one commits it. Each of these
writes is one step for all: what they log and commit is the same, so it is one file with a name in each
checkpoint, and they wait for the disk together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row

from millstream.spark.failpoints import passing
from millstream.spark.io.batch_sink import BatchSink
from millstream.spark.io.checkpoint import Logged, parsed
from millstream.spark.io.control import Orders
from millstream.spark.io.sink import GroupSink
from millstream.spark.io.sink_rows import SinkRows, rows_of
from millstream.spark.io.source import Offset, plain
from millstream.spark.io.staging import StageMany, rows_in
from millstream.spark.io.targets import Epoch, StagedTarget, Target
from millstream.spark.served.borrowed import collected
from millstream.storage import put_together

#: How often journals learn how far members have read, which only lets them trim.
MARK_EVERY_S: Final = 1.0


def place_of(logged: Logged | None) -> Offset | None:
    """Return how far a batch has read the one journal of its group, whoever reads it."""
    if logged is None:
        return None
    (offset,) = logged.offsets.values()
    return structs.replace(offset, starts=0, first=None, owns=None, owned_by=None)


def common_text(text: str) -> str:
    """Return what Spark logged for a batch without what is one reader's alone."""
    return _replaced(text, None, Orders())


def _replaced(text: str, first: tuple[int, ...] | None, orders: Orders) -> str:
    version, metadata, line = text.strip().split("\n")
    offset = msgspec.json.decode(line, type=Offset)
    mine = structs.replace(offset, first=first, owns=orders.owns, owned_by=orders.starts or None)
    return "\n".join((version, metadata, line if mine == offset else json.dumps(plain(mine))))


@dataclass
class Member:
    """A group that shares a query: how far it has committed, and what its orders say."""

    sink: GroupSink
    orders: Orders
    #: Where the rows of its targets are in the shared frame.
    rows: Sequence[SinkRows]

    def __post_init__(self) -> None:
        self.committed = self.sink.checkpoint.committed()
        self.sink.checkpoint.adopt()

    @property
    def batch(self) -> int:
        """Its next batch."""
        return 0 if self.committed is None else self.committed.batch + 1

    def offsets(self, text: str) -> tuple[str, bool]:
        """Return what it logs for its next batch, with the offsets of a shared one, and whether it has."""
        known = self.sink.checkpoint.offsets(self.batch)
        if known is not None:
            return known, True
        before = None if self.committed is None else self.committed.offsets.values()
        first = None if before is None else next(iter(before)).first
        return _replaced(text, first, self.orders), False


def log(members: Sequence[Member], text: str, keep: int) -> list[Logged]:
    """Log the next batch of members, unless they have; what is `keep` batches older is removed."""
    logged, files = [], []
    for one in members:
        checkpoint, batch = one.sink.checkpoint, one.batch
        offsets, done = one.offsets(text)
        if not done:
            files.append(checkpoint.offsets_file(batch, offsets))
            checkpoint.forget(batch - keep)
        logged.append(parsed(checkpoint.group, batch, offsets))
    put_together(files, partial(passing, "member-logs"))
    return logged


def commit(members: Sequence[Member], logged: Sequence[Logged]) -> None:
    """Commit a batch of members that all have published."""
    pairs = list(zip(members, logged, strict=True))
    files = [one.sink.checkpoint.commit_file(its.batch, its.watermark_ms) for one, its in pairs]
    put_together(files, partial(passing, "member-commits"))
    for one, its in pairs:
        one.committed = its


@dataclass
class _Part:
    """What a target of a member gets of a batch."""

    member: Member
    target: Target
    rows: SinkRows
    epoch: Epoch
    #: What tasks have answered; None if it is decided already, or stages nothing.
    found: list[Row] | None = None
    written: int = 0


@dataclass
class SharedSink(BatchSink):
    """Publishes the epochs of all members; Spark calls it with every micro-batch."""

    name: str
    job: str
    #: Where Spark keeps its files.
    location: Path
    members: Sequence[Member]
    #: How many batches stay in the logs of members.
    keep: int
    _marked_at: float = 0.0

    @property
    def title(self) -> str:
        return f'shared query "{self.name}"'

    def publish(self, frame: DataFrame, batch: int) -> None:
        text = (self.location / "offsets" / str(batch)).read_text()
        place = place_of(parsed(self.name, batch, text))
        todo = [one for one in self.members if place_of(one.committed) != place]
        if not todo:
            return  # all have it, or it has no rows
        logged = log(todo, text, self.keep)
        passing("logged")
        self.mark_read(todo)
        parts = [
            part for one, its in zip(todo, logged, strict=True) for part in self._parts(one, its)
        ]
        with _kept(frame, parts):
            self._stage(frame, parts)
            self._publish(frame, parts)
        for one in todo:
            one.sink.rows_out += max(part.written for part in parts if part.member is one)
        self.clock.passed("written")
        todo[0].sink.record_late(todo[0].committed, logged[0])
        passing("before-commit")
        commit(todo, logged)

    def mark_read(self, members: Sequence[Member]) -> None:
        """Note in the journal how far members have committed, now and then; a stop does it, too."""
        if time.monotonic() < self._marked_at + MARK_EVERY_S:
            return
        self._marked_at = time.monotonic()
        for one in members:
            if one.committed is not None:
                one.sink.mark_read(one.committed)

    def _parts(self, member: Member, logged: Logged) -> Iterator[_Part]:
        sink = member.sink
        key = self.job, sink.checkpoint.group, sink.checkpoint.id, logged.batch
        epoch = Epoch(*key, sink.floor(logged))
        for target, rows in zip(sink.targets, member.rows, strict=True):
            yield _Part(member, target, rows, epoch)

    def _stage(self, frame: DataFrame, parts: Sequence[_Part]) -> None:
        """Let one job stage what is to be staged for all members."""
        works = []
        for part in parts:
            work = part.target.work(part.epoch) if isinstance(part.target, StagedTarget) else None
            if work is not None:
                part.found = []
                works.append((part, work))
        if works:
            sinks = tuple(part.rows for part, _ in works)
            columns = {name for one in sinks for name in (one.flags, *one.columns)}
            rows = frame if columns == {*frame.columns} else frame.select(*sorted(columns))
            for row in collected(rows, StageMany(sinks, tuple(work for _, work in works))):
                found = works[row.sink][0].found
                assert found is not None
                found.append(row)
            for part, _ in works:
                part.written = rows_in(part.found or ())

    def _publish(self, frame: DataFrame, parts: Sequence[_Part]) -> None:
        """Decide and publish what tasks have staged, and write to the targets that stage nothing."""
        staged = [(part.target, part) for part in parts if isinstance(part.target, StagedTarget)]
        passing("staged")
        made = (
            target.decision(part.found, part.epoch)
            for target, part in staged
            if part.found is not None
        )
        put_together([one for one in made if one is not None], partial(passing, "decided"))
        for target, part in staged:
            target.publish(part.epoch)
            passing("published")
        for target, part in staged:
            target.settle(part.epoch)
        for part in parts:
            if not isinstance(part.target, StagedTarget):
                part.written = part.target.write(rows_of(frame, part.rows), part.epoch)


@contextmanager
def _kept(frame: DataFrame, parts: Sequence[_Part]) -> Iterator[None]:
    """Compute rows once, if several jobs need them."""
    jobs = [part for part in parts if not isinstance(part.target, StagedTarget)]
    several = len(jobs) + (len(jobs) < len(parts)) > 1
    if several:
        frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield
    finally:
        if several:
            frame.unpersist()
