"""The timer of a shard: one at a time, for the first moment at which it has something to do."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle


class Alarm:
    """A shard's timer. The moment that it is set for is in state, and asked for once in a turn."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("next", "time bigint")
        self.turn()

    def turn(self, fired: Any = None) -> None:
        """Begin a shard's turn, with what Spark says of the timer that has begun it, if one has."""
        self._fired = None if fired is None else fired.getExpiryTimeInMs()
        self._known = False
        self._moment: int | None = None

    @property
    def moment(self) -> int | None:
        """What it is set for, in microseconds."""
        if not self._known:
            stored = self._state.get()
            self._known, self._moment = True, None if not stored else int(stored[0])
        return self._moment

    def set(self, moment: int | None) -> None:
        """Let it go off when `moment` has passed, or never."""
        before = self.moment
        if before == moment:
            return
        # Spark itself removes the one that has fired, and warns if it is gone.
        if before is not None and timer(before) != self._fired:
            self._handle.deleteTimer(timer(before))
        self._moment = moment
        if moment is None:
            self._state.clear()
        else:
            self._state.update((moment,))
            self._handle.registerTimer(timer(moment))


def timer(moment: int) -> int:
    """Return the timer that fires just when the watermark lets a row of `moment` go.

    Timers and watermarks are whole milliseconds, so rounding up is exact: not early (a timer that
    is set again while it fires is lost in Spark 4.3) and not late. There is no watermark before the
    first millisecond of 1970 is over, whatever lies before it.
    """
    return max(-(-moment // 1000), 1)
