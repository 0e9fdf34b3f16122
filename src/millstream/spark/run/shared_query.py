"""Groups that share a Spark query; each has its own checkpoint, and can go on by itself at any moment.

    .millstream/<flow>/shared/<group>/          Spark's files for this run, removed at every start
    .millstream/<flow>/shared/<group>.orders    the orders for its source

Members that stand at different places are brought to one first: a query of those that are behind runs
the one batch that is missing. See `io/shared_sink.py` for the order of writes.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from millstream.journal import journal_at
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.control import Control, Orders
from millstream.spark.io.owned import owned
from millstream.spark.io.shared_sink import Member, SharedSink, common_text, place_of
from millstream.spark.io.sink_rows import SinkRows, chosen
from millstream.spark.io.source import PLACE, Offset, padded
from millstream.spark.io.targets import StagedTarget, Target
from millstream.spark.run.query import STOP_S, GroupQuery
from millstream.spark.served.serving import serving
from millstream.spark.session.ending import ending
from millstream.spark.session.session import cores
from millstream.spark.stages.analyse import entry_schema
from millstream.spark.stages.build import Builder
from millstream.spark.stages.composed import Branch, branch_of, composed
from millstream.spark.stages.marked_rows import timed
from millstream.spark.task_time import TaskReports
from millstream.switch.starts import HIDDEN_START

_log = logging.getLogger(__name__)

#: How long members that are behind may take to come to the place of the others.
STEP_S: Final = 120.0
#: How long an end waits for what Spark reports of the last batch.
REPORT_S: Final = 5.0


class Standing(NamedTuple):
    """Where a group stands: the place that it has committed, and the one that it has logged after it."""

    committed: Offset | None
    logged: Offset | None

    @property
    def furthest(self) -> Offset | None:
        return self.logged or self.committed


def standing_of(checkpoint: Checkpoint) -> Standing:
    """Return where a group stands."""
    committed, last = checkpoint.committed(), checkpoint.last("offsets")
    ahead = last is not None and (committed is None or last > committed.batch)
    logged = checkpoint.logged(last) if ahead and last is not None else None
    return Standing(place_of(committed), place_of(logged))


def may_share(query: GroupQuery) -> bool:
    """Tell whether a group can share a query now, wherever it stands."""
    orders = query.control.orders()
    plain = orders.since_us is None and orders.until_us is None and orders.close_us is None
    # A version that has not begun would jump to its beginning.
    committed = query.checkpoint.committed()
    places = {} if committed is None else committed.offsets
    begun = all(name in places and places[name].first is not None for name in orders.first)
    alone = query.paired or query.careful or query.sink.log is not None
    local = query.checkpoint.address is None and serving(query.spark) is None
    return plain and begun and local and not alone and not orders.held and orders.question is None


def share(folder: Path, queries: Sequence[GroupQuery]) -> None:
    """Start queries that groups share which begin with the same entry point.

    Those that cannot share are left as they are, for the caller to start.
    """
    able = [query for query in queries if may_share(query) and query.ready()]
    by_lateness: dict[str, list[GroupQuery]] = {}
    for query in able:
        by_lateness.setdefault(repr(query.control.orders().lateness), []).append(query)
    for some in by_lateness.values():
        SharedQuery(folder, some).begin()


class SharedQuery:
    """One Spark query of several groups."""

    def __init__(self, folder: Path, queries: Sequence[GroupQuery]) -> None:
        self.name = queries[0].group.name
        self.queries = list(queries)
        self._folder = folder
        self._location = folder / self.name
        self._branches: dict[str, Branch] = {}
        self._sink: SharedSink | None = None
        self._query: StreamingQuery | None = None
        self._stopping = threading.Lock()
        self._tasks = TaskReports.begin(queries[0].spark, cores(queries[0].spark))

    @property
    def finished(self) -> bool:
        """Whether all members have ended."""
        return all(query.finished for query in self.queries)

    # starting

    def begin(self) -> None:
        """Start the query of those that can share it, if there are several."""
        self._compose()
        if len(self.queries) > 1:
            self._level()
        if len(self.queries) > 1:
            self._start(self.queries, self.queries[0].checkpoint)
            self.queries[0].wait_for_sources()

    def _compose(self) -> None:
        """Build the rows of each sink once, and leave groups out whose rows Spark does not compose."""
        first = self.queries[0]
        entry = first.group.stages[0]
        needed = {
            column
            for query in self.queries
            for column in query.analysis.columns[query.group.name, entry]
        }
        whole = entry_schema(first.flow, entry, first.analysis.schemas).fieldNames()
        columns = tuple(column for column in whole if column in needed)
        rows = first.entries.read(entry, columns, self._location)
        base = timed(rows, entry, first.flow.stream(entry).time)
        # They choose rows without state, so it does not matter whose builder it is.
        builder = first.builder({entry: base}, self._tasks)
        below = None
        for query in list(self.queries):
            found = branch_of(_rows(query, builder))
            if found is None or not found.below.equals(below or found.below):
                self.queries.remove(query)
                continue
            below = found.below
            self._branches[query.group.name] = found

    def _level(self) -> None:
        """Bring all members to the place of the one that is furthest, by one batch each."""
        places = [standing_of(query.checkpoint).furthest for query in self.queries]
        goal = max(filter(None, places), key=lambda one: sum(one.positions), default=None)
        while True:
            known = {query.group.name: standing_of(query.checkpoint) for query in self.queries}
            behind = [
                query for query in self.queries if known[query.group.name] != Standing(goal, None)
            ]
            if not behind:
                return
            start = known[behind[0].group.name].committed
            same = [query for query in behind if known[query.group.name].committed == start]
            logged = [one for query in same if (one := known[query.group.name].logged) is not None]
            end = logged[0] if logged else goal
            assert end is not None
            step = [query for query in same if known[query.group.name].logged in (None, end)]
            if not (logged or self._near(start, end)) or not self._stepped(step, end):
                self.queries = [query for query in self.queries if query not in step]

    def _near(self, start: Offset | None, end: Offset) -> bool:
        """Tell whether a batch can lead from a place to another."""
        query = self.queries[0]
        reader = journal_at(query.sink.inputs[end.journal].path).cached_reader()
        views = [reader.partition(number) for number in range(len(end.positions))]
        begun = (
            [view.begin for view in views]
            if start is None
            else padded(start.positions, len(views))[: len(views)]
        )
        pairs = [*zip(views, begun, end.positions, strict=True)]
        forward = all(a <= z for _, a, z in pairs)
        if start is not None:
            forward &= len(start.positions) <= len(views)
            forward &= start.floor is None or (end.floor is not None and start.floor <= end.floor)
        return forward and sum(view.rows(a, z) for view, a, z in pairs) <= query.limit

    def _stepped(self, step: Sequence[GroupQuery], end: Offset) -> bool:
        """Let members run the one batch up to a place; return whether they have."""
        texts = [text for query in self.queries if (text := _text_at(query.checkpoint, end))]
        self._start(step, step[0].checkpoint, common_text(texts[0]))
        deadline = time.monotonic() + STEP_S
        while not (done := all(standing_of(one.checkpoint) == (end, None) for one in step)):
            if self._query is None or not self._query.isActive or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self._end()
        for query in step:
            query.query = query.shared = None
        return done

    def _start(
        self, queries: Sequence[GroupQuery], place: Checkpoint, end: str | None = None
    ) -> None:
        """Start a query of some members after what they have committed; up to an end, if there is one."""
        orders = queries[0].control.orders()
        _seed(self._location, place, end)
        Control(self._location).order(Orders(held=end is not None, lateness=orders.lateness))
        frame, rows = self._composed(queries)
        members = [
            Member(query.sink, query.control.orders(), places)
            for query, places in zip(queries, rows, strict=True)
        ]
        spark = queries[0].spark
        keep = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 0) + 1
        job = queries[0].flow.name
        self._sink = sink = SharedSink(self.name, job, self._location, members, keep)
        sink.clock.tasks = self._tasks
        for query in queries:
            query.sink.clock = sink.clock
        spark.conf.set("spark.sql.subexpressionElimination.enabled", value=True)
        writer = frame.writeStream.foreachBatch(sink).outputMode("append")
        writer = writer.queryName(f"shared {self.name}")
        self._query = writer.option("checkpointLocation", str(self._location)).start()
        for query in queries:
            query.query, query.shared = self._query, self

    def _composed(self, queries: Sequence[GroupQuery]) -> tuple[DataFrame, list[list[SinkRows]]]:
        """Return the rows of some members in one frame, and where those of each target are."""
        branches = [self._branches[query.group.name] for query in queries]
        frame, found = composed(queries[0].spark, branches)
        made: list[Column] = []
        rows = []
        for query, branch, own in zip(queries, branches, found, strict=True):
            rows.append([_made(one, branch.schema, own, made) for one in query.sink.targets])
        if not made:
            return frame, rows
        read = {name for some in rows for one in some for name in (one.flags, *one.columns)}
        kept = [name for name in frame.columns if name in read]
        return frame.select(*kept, *made), rows

    # ending

    def stop(self) -> None:
        """Stop between or inside a batch; may be called by several threads."""
        with self._stopping:
            self._end()

    def _end(self) -> None:
        if self._query is None or self._sink is None:
            return
        self._sink.stop_soon()
        with ending(self.queries[0].spark):
            self._query.stop()
        self._sink.shut(STOP_S)

    def halt(self) -> None:
        """Stop if no member has anything left to do."""
        if self.finished and self._sink is not None and self._query is not None:
            # Members commit a batch before Spark does, which then reports how many rows it had.
            deadline = time.monotonic() + REPORT_S
            while self._query.status["isTriggerActive"] and time.monotonic() < deadline:
                time.sleep(0.01)
            self._sink.stop_soon()
            self._query.stop()

    def part(self, groups: set[str]) -> None:
        """Give queries of their own to some members, if they share this; the others share on."""
        members = [query for query in self.queries if not query.finished]
        if not any(query.group.name in groups for query in members):
            return
        self.stop()
        for query in members:
            query.query = query.shared = None
        share(self._folder, [q for q in members if q.group.name not in groups])
        for query in members:
            if query.shared is None:
                query.start()
                query.wait_for_sources()

    def dissolve(self) -> None:
        """Give all members queries of their own, since a batch has failed: the one to blame will tell."""
        error = None if self._sink is None else self._sink.error
        reason = error or (None if self._query is None else self._query.exception())
        _log.warning('groups do not share query "%s" any more: %s', self.name, reason)
        self.part({query.group.name for query in self.queries})


def _rows(query: GroupQuery, builder: Builder) -> DataFrame:
    """Return the rows that a group publishes."""
    frame = builder.results(query.group.output)
    orders, sink = query.control.orders(), query.sink
    if orders.owns is not None and sink.start_before is not None:
        frame = frame.where(owned(orders.owns, sink.start_before, sink.key, orders.starts))
    return frame.drop(HIDDEN_START, PLACE)


def _text_at(checkpoint: Checkpoint, place: Offset) -> str | None:
    """Return what was logged for a place, if a group stands there."""
    last = checkpoint.last("offsets")
    for batch in () if last is None else (last, last - 1):
        if place_of(checkpoint.logged(batch)) == place:
            return checkpoint.offsets(batch)
    return None


def _made(target: Target, schema: StructType, rows: SinkRows, more: list[Column]) -> SinkRows:
    """Return where the rows of a target are, as its tasks take them; add the columns that are made for it."""
    made = target.made(schema, rows.columns) if isinstance(target, StagedTarget) else {}
    if not made:
        return rows
    own, first = chosen([rows]), len(more)
    more += [F.when(own, one).alias(f"t{first + at}") for at, one in enumerate(made.values())]
    columns = tuple(f"t{first + at}" for at in range(len(made)))
    return SinkRows(rows.flags, rows.bit, columns, tuple(made), (True,) * len(made))


def _seed(location: Path, place: Checkpoint, end: str | None) -> None:
    """Make files for Spark to go on after what a checkpoint has committed, up to an end if it is given."""
    shutil.rmtree(location, ignore_errors=True)
    for log in ("offsets", "commits"):
        (location / log).mkdir(parents=True)
    (location / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    committed, batch = place.committed(), 0
    if committed is not None:
        text = place.offsets(committed.batch) or ""
        (location / "offsets" / "0").write_text(common_text(text))
        (location / "commits" / "0").write_text(place.commits(committed.batch))
        batch = 1
    if end is not None:
        (location / "offsets" / str(batch)).write_text(end)
