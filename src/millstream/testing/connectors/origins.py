"""Checks that an origin brings each record once, wherever it is stopped or dies."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from millstream.clock import ManualClock
from millstream.flow.flow import Flow
from millstream.flow.sources import SourceSpec
from millstream.flow.stages import Source
from millstream.ingest import Feed, JournalFeed, Rows, declare, open_feed
from millstream.ingest.origin import OriginContext, open_origin
from millstream.journal import Journal, journal_at

#: How often a source that does not end may wait for more before it counts as idle.
_IDLE_WAITS: Final = 8
_MOST_RUNS: Final = 500


@dataclass(frozen=True, slots=True)
class OriginCase:
    """A source, and what its journal must hold when all has been read.

    `rows` may leave columns out, such as those that depend on the clock; all have the same ones.
    """

    spec: SourceSpec
    rows: Sequence[Mapping[str, Any]]
    #: How many records are no rows: they become dead letters.
    refused: int = 0
    time: str | None = None
    #: A column by which rows find their partitions.
    key: str | None = None
    #: What relative paths count from.
    root: Path = Path()


class Died(BaseException):
    """Where a process would have died. No `except Exception` catches it."""


class _DyingFeed(JournalFeed):
    """A feed in a process that dies at a step: before or after what it does."""

    _steps_left: int

    @classmethod
    def of(cls, feed: JournalFeed, steps: int) -> _DyingFeed:
        dying = cls.__new__(cls)
        dying.__dict__.update(vars(feed))
        dying._steps_left = steps
        return dying

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left == 0:
            raise Died

    def take(self, sender: str, rows: Rows, partition: int | None = None) -> None:
        self._step()
        super().take(sender, rows, partition)
        self._step()

    def progress(self, sender: str, number: int, partition: int | None = None) -> None:
        self._step()
        super().progress(sender, number, partition)
        self._step()

    def flush(self) -> None:
        self._step()
        super().flush()
        self._step()


@dataclass
class OriginTrial:
    """One source under check, and its journal, in a folder of its own."""

    case: OriginCase
    journal: Path
    partitions: int = 1
    clock: ManualClock = field(
        default_factory=lambda: ManualClock((time.time_ns() // 1000) + 60_000_000)
    )

    def run(self, *, pauses: int | None = None, steps: int | None = None) -> bool:
        """Read until it ends, or waits for more, or is stopped after so many pauses, or dies.

        Returns:
            Whether there is nothing left to read.
        """
        stage = self._stage()
        description, settings = declare(stage, self.journal)
        context = OriginContext(
            stage.name, description.schema, stage.time, self.journal, self.case.root, self.clock
        )
        origin = open_origin(stage.origin, context)
        feed = open_feed(description, settings, self.clock)
        given = feed if steps is None else _DyingFeed.of(feed, steps)
        pause = _Pause(self.clock, given, pauses)
        try:
            ended = origin.pump(given, pause)
        except BaseException as error:
            feed.abort()
            if isinstance(error, Died):
                return False
            raise
        feed.close()
        return ended or pause.idle

    def _stage(self) -> Source:
        flow = Flow("check")
        case = self.case
        flow.source("events", case.spec, time=case.time, key=case.key, partitions=self.partitions)
        stage = flow.stages["events"]
        assert isinstance(stage, Source)
        return stage

    def expect_all(self) -> None:
        """Check that the journal holds every row once, and every refused record."""
        columns = list(self.case.rows[0]) if self.case.rows else []
        found = Counter(_comparable(row, columns) for row in _rows_in(journal_at(self.journal)))
        wanted = Counter(_comparable(row, columns) for row in self.case.rows)
        missing, extra = wanted - found, found - wanted
        assert not missing, f"{missing.total()} rows are missing: {next(iter(missing))[:200]}"
        assert not extra, f"{extra.total()} rows should not be there: {next(iter(extra))[:200]}"
        letters = journal_at(self.journal).dead_journal()
        refused = len(_rows_in(letters)) if letters.exists() else 0
        assert refused == self.case.refused, f"{refused} records were refused"


class _Pause:
    """Moves the clock instead of waiting; says stop after so many calls, or if nothing comes."""

    def __init__(self, clock: ManualClock, feed: Feed, left: int | None) -> None:
        self._clock = clock
        self._feed = feed
        self._left = left
        self._bytes = 0
        self._waits = 0
        self.idle = False

    def __call__(self, seconds: float) -> bool:
        self._clock.advance_us(int(seconds * 1e6))
        self._waits = self._waits + (seconds > 0) if self._feed.bytes == self._bytes else 0
        self._bytes = self._feed.bytes
        self.idle = self._waits > _IDLE_WAITS
        if self._left is not None:
            self._left -= 1
        return not self.idle and (self._left is None or self._left >= 0)


def _rows_in(journal: Journal) -> list[dict[str, Any]]:
    reader = journal.reader()
    views = [reader.partition(number) for number in range(reader.description.partitions)]
    return [
        row
        for view in views
        for part in view.read(view.begin, view.end)
        if part.batch is not None
        for row in part.batch.to_pylist()
    ]


def _comparable(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    return json.dumps([row[name] for name in columns], default=str)


# The checks


def every_record_arrives_once(trial: OriginTrial) -> None:
    assert trial.run(), "a source that is not stopped reads all there is"
    trial.expect_all()
    assert trial.run()
    trial.expect_all()


def records_find_their_partitions(trial: OriginTrial) -> None:
    trial.partitions = 3
    assert trial.run()
    trial.expect_all()


def a_source_that_is_stopped_goes_on_where_it_was(trial: OriginTrial) -> None:
    trial.partitions = 2
    _until_done(lambda number: trial.run(pauses=number))
    trial.expect_all()


def a_source_that_dies_at_any_step_goes_on_where_it_was(trial: OriginTrial) -> None:
    trial.partitions = 2
    _until_done(lambda number: trial.run(steps=number))
    trial.expect_all()


def _until_done(run: Callable[[int], bool]) -> None:
    for number in range(1, _MOST_RUNS):
        if run(number):
            return
    raise AssertionError(f"the source has not come to its end in {_MOST_RUNS} runs")


ORIGIN_CHECKS: Final[tuple[Callable[[OriginTrial], None], ...]] = (
    every_record_arrives_once,
    records_find_their_partitions,
    a_source_that_is_stopped_goes_on_where_it_was,
    a_source_that_dies_at_any_step_goes_on_where_it_was,
)


def check_origin(make: Callable[[Path], OriginCase], folder: Path) -> None:
    """Check an origin.

    Args:
        make: Makes a source whose records may lie in the folder that it is given, which is empty.
            Among them should be some that cannot be read, and some that are huge.
        folder: An empty folder.

    Raises:
        AssertionError: The origin does not keep to what a flow relies on.
    """
    for number, check in enumerate(ORIGIN_CHECKS):
        place = folder / str(number)
        place.mkdir(parents=True)
        check(OriginTrial(make(place), place / "_journal"))
