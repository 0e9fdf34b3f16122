"""The floor of the batch that runs, for its tasks.

Spark's watermark of a batch is made of the batches before it, so a row that is taken behind the
watermark would lie in state for a whole batch. The sources know better: what they log for a batch says
up to where it has all rows. The driver announces that with the batch's jobs, and a stage whose rows
come straight from sources, with no state in between, takes them in the batch in which they are read.

What is announced is a function of what was logged: a batch that is run again is given the same.
"""

from __future__ import annotations

from typing import Final

from pyspark import SparkContext, TaskContext

#: A floor is handed out as the watermark, in milliseconds, that Spark has one batch later.
_PROPERTY: Final = "millstream.watermark"
#: Below every moment that Spark has, in microseconds.
NO_WATERMARK: Final = -(1 << 62)


def announce(context: SparkContext, watermark_ms: int | None) -> None:
    """Let the jobs that this thread starts know the watermark that holds behind their batch."""
    context.setLocalProperty(_PROPERTY, None if watermark_ms is None else str(watermark_ms))  # type: ignore[arg-type]


def announced_us() -> int:
    """Return in a task the watermark that holds behind its batch; before every moment without one."""
    task = TaskContext.get()
    found = None if task is None else task.getLocalProperty(_PROPERTY)
    return NO_WATERMARK if found is None else microseconds(int(found))


def microseconds(watermark_ms: int) -> int:
    """Return a watermark of Spark's in microseconds; before every moment while there is none.

    Spark says 0 then, and never when there is one: a row at or before 1970 is not behind it.
    """
    return watermark_ms * 1000 if watermark_ms > 0 else NO_WATERMARK
