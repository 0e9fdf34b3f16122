"""Renewing a lease in a thread of its own, as long as its driver goes on."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import Final

from millstream.errors import StorageError, TakenOver
from millstream.joblog.log import JobLog

#: For how long a driver that does not show that it goes on is not taken for one that hangs.
HANGS_S: Final = 60.0


class Renewal:
    """Renews a lease while its driver does what takes longer than others wait: it starts, or plans.

    Not for ever: a driver that hangs loses its lease. One that starts may take its time.
    """

    def __init__(self, log: JobLog, every: float) -> None:
        self._log, self._every = log, every
        self._until = math.inf
        self._over = threading.Event()
        threading.Thread(target=self._work, name="lease", daemon=True).start()

    def go_on(self, for_s: float = HANGS_S) -> None:
        """Show that the driver goes on; if it does not again in this time, it hangs."""
        self._until = time.monotonic() + for_s

    def end(self) -> None:
        """Renew no more."""
        self._over.set()

    def _work(self) -> None:
        # What goes wrong here, the next poll or decision meets again.
        with suppress(TakenOver):
            while not self._over.wait(self._every):
                if time.monotonic() < self._until:
                    with suppress(StorageError):
                        self._log.renew()
