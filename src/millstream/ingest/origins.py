"""Where rows come from: each origin pumps its rows into a feed until it has none left or is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.clock import Clock
from millstream.errors import FileChanged
from millstream.flow.sources import Files, Rate
from millstream.ingest import files
from millstream.ingest.checks import times_us
from millstream.ingest.feed import Feed
from millstream.ingest.files import Found, TakenLog
from millstream.ingest.reading import BEGINNING, CHUNK, Layout, packed, read
from millstream.ingest.rows import Refused, Rows

Pause = Callable[[float], bool]
"""Waits so many seconds; False means that the source is being stopped."""

_POLL_S: Final = 0.5
_LINGER_S: Final = 0.02
_LONGEST_S: Final = 1.0
_SECOND_US: Final = 1_000_000
#: A file that nobody has touched for so long is taken to be whole.
_SETTLED_US: Final = 2 * _SECOND_US


class Origin(Protocol):
    """Something that brings rows."""

    def pump(self, feed: Feed, pause: Pause) -> bool:
        """Bring rows until there are no more (True) or `pause` says stop (False)."""
        ...


class FilesOrigin:
    """Files in the order of their names; with follow, the ones that appear or grow later too."""

    def __init__(self, spec: Files, how: Layout, log: Path, clock: Clock) -> None:
        self._spec = spec
        self._how = how
        self._path = log
        self._clock = clock

    def pump(self, feed: Feed, pause: Pause) -> bool:
        # Read only now: the feed's locks keep other processes away from it.
        self._log = TakenLog(self._path)
        while True:
            for found in files.find(self._spec):
                if not pause(0) or not self._take(found, feed, pause):
                    return False
            if not self._spec.follow:
                return True
            if not pause(_POLL_S):
                return False

    def _take(self, found: Found, feed: Feed, pause: Pause) -> bool:
        settled = (
            not self._spec.follow or self._clock.now_us() - found.modified // 1000 >= _SETTLED_US
        )
        taken = self._log.get(found.name)
        match files.state_of(found, taken, settled=settled):
            case "changed":
                self._refuse_changed(found, feed)
                return True
            case "done" | "unfinished":
                return True
        return self._read(found, feed, pause, settled=settled)

    def _read(self, found: Found, feed: Feed, pause: Pause, *, settled: bool) -> bool:
        earlier = self._log.get(found.name)
        place = BEGINNING if earlier is None else earlier.place
        begun = files.begun(found, place)
        self._log.put(begun)
        known = feed.highest(found.sender)
        size = None if settled or packed(found.path) else found.size
        for block in read(found.path, self._how, start=place, size=size, known=known):
            if not pause(0):
                return False
            feed.take(found.sender, block.rows)
            place = block.place
        feed.flush()
        self._log.put(
            msgspec.structs.replace(begun, records=place.records, offset=place.offset, done=True)
        )
        return True

    def _refuse_changed(self, found: Found, feed: Feed) -> None:
        reason = "the file was changed after it had been taken; what it says now was not: give a new file a new name"
        now = files.begun(found)
        feed.refuse(f"{found.sender}@{now.digest}", [Refused(0, reason, found.name)])
        self._log.put(msgspec.structs.replace(now, done=True, left_alone=True))


#: A recording may hold times that are refused, but none so far ahead that the others would wait for it.
_YEAR_US: Final = 366 * 86_400 * _SECOND_US


class ReplayOrigin:
    """One recorded file, in its own order; `speed` times as fast as it happened, or as fast as it can be read.

    A row is due when the highest time up to it is: rows that were late when they were recorded are
    late again.
    """

    def __init__(
        self, path: Path, speed: float | None, how: Layout, log: Path, clock: Clock
    ) -> None:
        self._path = path
        self._sender = f"replay:{path.name}"
        self._log = log
        self._speed = speed
        self._time = how.time
        self._how = how
        self._clock = clock
        self._began: tuple[int, int] | None = None
        self._highest = 0

    def pump(self, feed: Feed, pause: Pause) -> bool:
        self._refuse_changed()
        known = feed.highest(self._sender)
        for block in read(self._path, self._how, known=known):
            if not pause(0) or not self._hand_out(block.rows, feed, pause):
                return False
        feed.flush()
        return True

    def _refuse_changed(self) -> None:
        found = files.found(self._path, self._path.parent)
        log = TakenLog(self._log)
        taken = log.get(found.name)
        if taken is None:
            log.put(files.begun(found))
        elif files.state_of(found, taken, settled=True) == "changed":
            msg = f'the recording "{self._path}" was changed after its replay had begun'
            raise FileChanged(msg, hint="replay it under another name, or into a new --data folder")

    def _hand_out(self, rows: Rows, feed: Feed, pause: Pause) -> bool:
        if self._speed is None or self._time is None or not len(rows):
            feed.take(self._sender, rows)
            return True
        feed.refuse(self._sender, rows.refused)
        due = self._due(rows, self._time, self._speed)
        done = 0
        while done < len(rows):
            now = self._clock.now_us()
            ready = int(np.searchsorted(due, now, side="right"))
            if ready > done:
                feed.take(self._sender, rows.slice(done, ready))
                done = ready
            elif not pause(min(max((int(due[done]) - now) / _SECOND_US, _LINGER_S), _LONGEST_S)):
                return False
        return True

    def _due(self, rows: Rows, time: str, speed: float) -> npt.NDArray[np.float64]:
        """Return when each row is due, by the clock."""
        times, unknown = times_us(rows.batch, time)
        # A time far in the future is refused; it must not hold up the rows behind it.
        possible = np.where(unknown | (times > self._clock.now_us() + _YEAR_US), 0, times)
        highest = np.maximum(np.maximum.accumulate(possible), self._highest)
        self._highest = int(highest[-1])
        if self._began is None and self._highest:
            self._began = int(highest[highest > 0][0]), self._clock.now_us()
        first, now = self._began or (0, self._clock.now_us())
        due: npt.NDArray[np.float64] = now + np.maximum(highest - first, 0) / speed
        return due


class RateOrigin:
    """Rows `value, at` at a steady rate; the values go on from what the journal has."""

    sender: Final = "rate"

    def __init__(self, spec: Rate, schema: pa.Schema, clock: Clock) -> None:
        self._spec = spec
        self._schema = schema
        self._clock = clock

    def pump(self, feed: Feed, pause: Pause) -> bool:
        value = feed.highest(self.sender) + 1
        began, first = self._clock.now_us(), value
        per_us = self._spec.rows_per_second / _SECOND_US
        while self._spec.rows is None or value < self._spec.rows:
            due = first + int((self._clock.now_us() - began) * per_us)
            stop = min(due, value + CHUNK, due if self._spec.rows is None else self._spec.rows)
            if stop > value:
                feed.take(self.sender, self._rows(value, stop, began - first / per_us))
                value = stop
            wait_s = 0 if due > value else max(_LINGER_S, 1 / self._spec.rows_per_second / 2)
            if not pause(min(wait_s, _LONGEST_S)):
                return False
        feed.flush()
        return True

    def _rows(self, start: int, stop: int, zero_us: float) -> Rows:
        values = np.arange(start, stop, dtype=np.int64)
        moments = (zero_us + values * (_SECOND_US / self._spec.rows_per_second)).astype(np.int64)
        columns = [pa.array(values), pa.array(moments).cast(self._schema.field("at").type)]
        return Rows(pa.RecordBatch.from_arrays(columns, schema=self._schema), values)
