"""Deliveries: a thread for each output, which takes from the outbox and tries until it works."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Final

from millstream.errors import MillstreamError, OutputAway, WatchError
from millstream.watch.outbox import Entry, Outbox
from millstream.watch.outputs import Output

_SHORTEST_S: Final = 0.2
_LONGEST_S: Final = 30.0
_log = logging.getLogger(__name__)


class Delivery:
    """The deliveries of one output."""

    def __init__(self, output: Output, outbox: Outbox) -> None:
        self.output, self._outbox = output, outbox
        self._stopping = threading.Event()
        self._pause_s = _SHORTEST_S
        self.delivered = 0
        #: Why the last try failed; None after one that worked.
        self.trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"output {output.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            entries = self._outbox.read(self.output.name)
            if entries and not self._stopping.is_set():
                self._try(entries)

    def _try(self, entries: list[Entry]) -> None:
        try:
            self.output.deliver(entries)
        except (OutputAway, MillstreamError, OSError) as error:
            self._failed(error)
            return
        if self.trouble is not None:
            _log.warning('output "%s" works again', self.output.name)
        self.trouble, self._pause_s = None, _SHORTEST_S
        self.delivered += len(entries)
        with suppress(WatchError):  # stopping: it is delivered again, with the same number
            self._outbox.done(self.output.name, entries[-1].number)

    def _failed(self, error: Exception) -> None:
        if self.trouble is None:
            _log.warning('output "%s" takes nothing: %s', self.output.name, error)
        self.trouble = str(error)
        wanted = getattr(error, "retry_after", None)
        self._stopping.wait(self._pause_s if wanted is None else min(wanted, _LONGEST_S))
        self._pause_s = min(_LONGEST_S, 2 * self._pause_s)

    def stop(self, deadline: float) -> None:
        """Stop after the delivery that is under way, if that ends in time; close the output."""
        self._stopping.set()
        self._outbox.wake()
        self._thread.join(max(0.1, deadline - time.monotonic()))
        self.output.close()
