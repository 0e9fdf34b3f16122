"""The end of groups that share a query: one call per micro-batch publishes an epoch of each, once.

    Spark      offsets n ───────────────────────────────────────────────────────▶ commit n
    member a   offsets i ─▶           ─▶ decide, publish ─▶           ─▶ commit i
    member b   offsets j ─▶ stage all ─▶ decide, publish ─▶ late rows ─▶ commit j

A member's checkpoint is what a query of its own would have written, at every moment. All members have
logged a batch before anything is staged, and all have published it before one commits it. Members wait
for the disk side by side: files of one are not the other's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import structs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from millstream.spark.failpoints import passing
from millstream.spark.io.batch_sink import BatchSink
from millstream.spark.io.checkpoint import Logged, parsed
from millstream.spark.io.control import Orders
from millstream.spark.io.sink import GroupSink
from millstream.spark.io.source import Offset, plain
from millstream.spark.io.staging import StageMany
from millstream.spark.io.targets import Epoch, StagedTarget, Target
from millstream.spark.served.borrowed import collected

_Its = TypeVar("_Its")
_Answer = TypeVar("_Answer")


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
    #: The columns of the shared frame with the rows of its targets.
    columns: Sequence[str]

    def __post_init__(self) -> None:
        self.committed = self.sink.checkpoint.committed()
        self.sink.checkpoint.adopt()

    @property
    def batch(self) -> int:
        """Its next batch."""
        return 0 if self.committed is None else self.committed.batch + 1

    def log(self, text: str, keep: int) -> Logged:
        """Log its next batch with the offsets of a shared one, unless it has."""
        checkpoint = self.sink.checkpoint
        known = checkpoint.offsets(self.batch)
        if known is None:
            before = None if self.committed is None else self.committed.offsets.values()
            first = None if before is None else next(iter(before)).first
            known = _replaced(text, first, self.orders)
            checkpoint.log(self.batch, known, keep)
        return parsed(checkpoint.group, self.batch, known)

    def mark_read(self) -> None:
        """Note in the journal how far it has committed."""
        if self.committed is not None:
            self.sink.mark_read(self.committed)

    def commit(self, logged: Logged) -> None:
        """Commit a batch that is published."""
        self.sink.checkpoint.commit(logged.batch, logged.watermark_ms)
        self.committed = logged


def _log(member: Member, text: str, keep: int) -> Logged:
    passing("member-logs")
    return member.log(text, keep)


def _commit(its: tuple[Member, Logged]) -> None:
    passing("member-commits")  # others may have, and some may be left: in any order
    member, logged = its
    member.commit(logged)


def _together(work: Callable[[_Its], _Answer], members: Sequence[_Its]) -> list[_Answer]:
    """Do the same for all members at once; return when all are done, or raise what one of them raised."""
    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(work, members))


@dataclass
class _Part:
    """What a target of a member gets of a batch."""

    member: Member
    target: Target
    column: str
    epoch: Epoch
    found: list[Row] | None = None


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

    @property
    def title(self) -> str:
        return f'shared query "{self.name}"'

    def publish(self, frame: DataFrame, batch: int) -> None:
        text = (self.location / "offsets" / str(batch)).read_text()
        place = place_of(parsed(self.name, batch, text))
        todo = [one for one in self.members if place_of(one.committed) != place]
        if not todo:
            return  # all have it, or it has no rows
        logged = list(
            zip(todo, _together(lambda one: _log(one, text, self.keep), todo), strict=True)
        )
        passing("logged")
        _together(Member.mark_read, todo)
        parts = [part for pair in logged for part in self._parts(*pair)]
        with _kept(frame, parts):
            self._stage(frame, parts)
            for one in todo:
                mine = [part for part in parts if part.member is one]
                one.sink.rows_out += max(self._write(frame, part) for part in mine)
        self.clock.passed("written")
        first, its = logged[0]
        first.sink.record_late(first.committed, its)
        passing("before-commit")
        _together(_commit, logged)

    def _parts(self, member: Member, logged: Logged) -> Iterator[_Part]:
        sink = member.sink
        key = self.job, sink.checkpoint.group, sink.checkpoint.id, logged.batch
        epoch = Epoch(*key, sink.floor(logged))
        for target, column in zip(sink.targets, member.columns, strict=True):
            yield _Part(member, target, column, epoch)

    def _stage(self, frame: DataFrame, parts: Sequence[_Part]) -> None:
        """Let one job stage what is to be staged for all members."""
        works = []
        for part in parts:
            work = part.target.work(part.epoch) if isinstance(part.target, StagedTarget) else None
            if work is not None:
                part.found = []
                works.append((part, work))
        if works:
            columns = [part.column for part, _ in works]
            rows = frame if columns == frame.columns else frame.select(*columns)
            for row in collected(rows, StageMany(tuple(work for _, work in works))):
                found = works[row.sink][0].found
                assert found is not None
                found.append(row)

    def _write(self, frame: DataFrame, part: _Part) -> int:
        if isinstance(part.target, StagedTarget):
            return part.target.publish(part.found, part.epoch)
        rows = frame.where(F.col(part.column).isNotNull()).select(f"{part.column}.*")
        return part.target.write(rows, part.epoch)


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
