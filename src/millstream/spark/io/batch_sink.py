"""What Spark calls with every micro-batch: one call at a time, none after the end."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame

from millstream.errors import InternalError
from millstream.spark.batch_clock import BatchClock

#: By this Spark knows that a stop has ended a batch. It looks for it with a regular expression that takes
#: stack for each character: a whole traceback overflows it, and Java prints a thousand lines.
_INTERRUPTED: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling the sink: java.lang.InterruptedException"


@dataclass(kw_only=True)
class BatchSink(ABC):
    """Publishes the epochs of a query."""

    #: Where the time of its batches goes.
    clock: BatchClock = field(default_factory=lambda: BatchClock(time.monotonic))
    error: BaseException | None = None
    _publishing: threading.Lock = field(default_factory=threading.Lock)
    _stopping: bool = False
    _shut: bool = False

    @property
    @abstractmethod
    def title(self) -> str:
        """What errors call who publishes."""

    @abstractmethod
    def publish(self, frame: DataFrame, batch: int) -> None:
        """Publish the rows of a batch."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            with self._publishing:
                if self._shut:
                    raise InternalError(f"{self.title} publishes after its end")
                with self.clock.running():
                    self.publish(frame, batch)
        except BaseException as error:
            # Spark would only hand on its text; the flow's run shows the error itself.
            self.error = error
            if self._stopping:
                raise InterruptedError(_INTERRUPTED) from None
            raise

    def stop_soon(self) -> None:
        """Expect that Spark interrupts the batch which runs."""
        self._stopping = True

    def shut(self, limit_s: float | None = None) -> bool:
        """Publish nothing more: when this returns, what was being published is out, or has failed.

        Returns whether that was so within `limit_s` seconds.
        """
        # Spark stops a query without waiting for what Python does.
        self._shut = True
        quiet = self._publishing.acquire(timeout=-1 if limit_s is None else limit_s)
        if quiet:
            self._publishing.release()
        return quiet
