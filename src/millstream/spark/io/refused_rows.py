"""Rows that a stage cannot take, as dead letters of their journal."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from millstream.journal import DeadLetter
from millstream.journal.plain import records
from millstream.spark.io.source import PLACE, place_of
from millstream.spark.served.borrowed import Letters, put_letters


def refuse(letters: Letters, origin: str, rows: pa.Table, reasons: Iterable[str]) -> None:
    """Keep rows as dead letters, under their places: a batch that is run again adds none."""
    places = [None] * rows.num_rows
    if PLACE in rows.column_names:
        places, rows = rows.column(PLACE).to_pylist(), rows.drop_columns([PLACE])
    texts = [text for batch in rows.to_batches() for text in records(batch)]
    found = zip(reasons, texts, map(place_of, places, texts), strict=True)
    put_letters(
        letters,
        [
            DeadLetter(origin, position, reason, text, partition)
            for reason, text, (partition, position) in found
        ],
    )
