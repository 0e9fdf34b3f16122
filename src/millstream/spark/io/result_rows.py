"""Results that no SQL looks at: packed by the stage that makes them, opened by the task that stages them.

On the way between the two they stay columns. Otherwise Spark would make rows of the columns, only to
make columns of the rows again for the Python that writes them. Executors import this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.spark.io.packed import to_bytes
from millstream.spark.served.messages import in_pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: The only column of packed results, in Spark's words.
RESULTS: Final = "__results"
PACKED: Final = f"{RESULTS} binary"
#: About how large a message is before it is compressed: Spark holds several of them at a time.
MESSAGE_BYTES: Final = 4 << 20


def messages(rows: pa.RecordBatch) -> list[bytes]:
    """Return rows as messages."""
    return [to_bytes(one) for one in in_pieces([rows], MESSAGE_BYTES)]


def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages; what is not packed stays as it is."""
    for batch in batches:
        if batch.schema.names != [RESULTS]:
            yield batch
            continue
        for message in batch.column(0):
            yield from pa.ipc.open_stream(message.as_buffer())


def opened_frame(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return packed results as the rows that they are, for SQL and for targets that take no others."""
    return frame.mapInArrow(opened, schema)
