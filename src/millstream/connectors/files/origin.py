"""Rows of files: folders, which may be followed, and recordings, replayed in event time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from millstream.clock import Clock
from millstream.connectors.files import Files, Replay, taken
from millstream.connectors.files.checks import check_replay
from millstream.connectors.files.reading import BEGINNING, FileLayout, layout, packed, read
from millstream.connectors.files.taken import Found, TakenLog
from millstream.errors import FileChanged
from millstream.ingest.checks import times_us
from millstream.ingest.feed import Feed
from millstream.ingest.origin import OriginContext, Pause
from millstream.ingest.rows import Refused, Rows

_LOG: Final = "files.jsonl"
_POLL_S: Final = 0.5
_LINGER_S: Final = 0.02
_LONGEST_S: Final = 1.0
_SECOND_US: Final = 1_000_000
#: A file that nobody has touched for so long is taken to be whole.
_SETTLED_US: Final = 2 * _SECOND_US


class FilesOrigin:
    """Files in the order of their names; with follow, the ones that appear or grow later too."""

    def __init__(self, spec: Files, how: FileLayout, log: Path, clock: Clock) -> None:
        self._spec = spec
        self._how = how
        self._path = log
        self._clock = clock

    def pump(self, feed: Feed, pause: Pause) -> bool:
        # Read only now: the feed's locks keep other processes away from it.
        self._log = TakenLog(self._path)
        while True:
            for found in taken.find(self._spec):
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
        match taken.state_of(found, self._log.get(found.name), settled=settled):
            case "changed":
                self._refuse_changed(found, feed)
                return True
            case "done" | "unfinished":
                return True
        return self._read(found, feed, pause, settled=settled)

    def _read(self, found: Found, feed: Feed, pause: Pause, *, settled: bool) -> bool:
        earlier = self._log.get(found.name)
        place = BEGINNING if earlier is None else earlier.place
        begun = taken.begun(found, place)
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
        reason = (
            "the file was changed after it had been taken; what it says now was not: "
            "give a new file a new name"
        )
        now = taken.begun(found)
        feed.refuse(f"{found.sender}@{now.digest}", [Refused(0, reason, found.name)])
        self._log.put(msgspec.structs.replace(now, done=True, left_alone=True))


#: A recording may hold times that are refused, but none so far ahead that the others wait for it.
_YEAR_US: Final = 366 * 86_400 * _SECOND_US


class ReplayOrigin:
    """One recorded file, in its own order; `speed` times as fast as it happened, or at once.

    A row is due when the highest time up to it is: rows that were late when they were recorded are
    late again.
    """

    def __init__(
        self, path: Path, speed: float | None, how: FileLayout, log: Path, clock: Clock
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
        found = taken.found(self._path, self._path.parent)
        log = TakenLog(self._log)
        known = log.get(found.name)
        if known is None:
            log.put(taken.begun(found))
        elif taken.state_of(found, known, settled=True) == "changed":
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


def open_files(spec: Files, context: OriginContext) -> FilesOrigin:
    """Open the files of a source.

    Raises:
        NotThere: There are none, and the source does not wait for them.
        UnsupportedColumn: The format cannot hold a column.
    """
    spec = replace(spec, path=str(context.root / spec.path))
    log = context.journal / _LOG
    taken.there(spec, begun=log.exists())
    how = layout(spec.format, context.schema, context.time, spec.options)
    return FilesOrigin(spec, how, log, context.clock)


def open_replay(spec: Replay, context: OriginContext) -> ReplayOrigin:
    """Open the recording of a source.

    Raises:
        NotThere: It does not exist.
        UnsupportedColumn: The format cannot hold a column.
    """
    check_replay(spec, context.root)
    path = context.root / spec.path
    how = layout(spec.format, context.schema, spec.time or context.time, ())
    return ReplayOrigin(path, spec.speed, how, context.journal / _LOG, context.clock)
