"""The order at a sink that two versions write: results go out as they complete.

Whoever is ahead waits for the other, on its own thread and with its batch unwritten, so nothing is
held in memory. The wait is the difference of their lags. After a limit neither waits any more:
results are worth more than their order.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from millstream.switch.cut import goes_out

_log = logging.getLogger(__name__)

#: How long a batch waits for the other version at most.
TIMEOUT: Final = 10.0
#: Watermarks of versions with other stages may differ by so much: see `source.watermark_ms`.
_SLACK_US: Final = 1000


class SinkOrder:
    """Whose turn it is, of two versions of one group."""

    def __init__(
        self, group: str, old: str, new: str, cut_us: int, *, timeout: float = TIMEOUT
    ) -> None:
        self._group = group
        self._other = {old: new, new: old}
        self._new = new
        self._cut_us = cut_us
        self._timeout = timeout
        self._reached: dict[str, int | None] = {}
        self._over = False
        self._changed = threading.Condition()

    def wait(self, version: str, reached: int | None) -> None:
        """Return when a version that has got so far may publish."""
        began = time.monotonic()
        with self._changed:
            self._reached[version] = reached
            self._changed.notify_all()
            while not self._over and not self._may_go(version, reached, 0.0):
                left = began + self._timeout - time.monotonic()
                if left <= 0:
                    self._give_up()
                    return
                self._changed.wait(left)

    def _may_go(self, version: str, reached: int | None, waited: float) -> bool:
        other = self._reached.get(self._other[version])
        mine = None if reached is None else reached - _SLACK_US
        return goes_out(
            mine,
            other,
            self._cut_us,
            newer=version == self._new,
            waited=waited,
            timeout=self._timeout,
        )

    def _give_up(self) -> None:
        _log.warning(
            'results of group "%s" may be out of order: one version is too far behind the other',
            self._group,
        )
        self._over = True
        self._changed.notify_all()

    def cut_at(self, cut_us: int) -> None:
        """Note a cut: from there on keys are another version's, and the order matters again."""
        with self._changed:
            if cut_us != self._cut_us:
                self._cut_us, self._over = cut_us, False
                self._changed.notify_all()

    def end(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
