"""What an engine shows of a job's journals over HTTP: their numbers, their rows, their health.

Rows are what others have sent: they need a token even on the engine's own host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
import pyarrow as pa

from millstream.engine.http.api import Api, Asked, Text
from millstream.engine.http.messages import (
    DamageStatus,
    JournalDetail,
    JournalRow,
    JournalRows,
    JournalStatus,
    PartitionDetail,
    PartitionStatus,
    ReaderStatus,
    VerifiedJournal,
)
from millstream.engine.http.openapi import OCTETS
from millstream.engine.http.row_files import encode
from millstream.errors import JournalMissing, RequestRefused
from millstream.journal import JournalReader, Kind, PartitionReader, Slice
from millstream.journal.health import Summary
from millstream.journal.plain import rows_of

_PAGE_BYTES: Final = 4 << 20
"""How many bytes of rows an answer has, about, before they are JSON."""
_AT_ONCE: Final = 1000
_MOST_SEARCHED: Final = 200_000
"""How many rows a request looks through for a text; the next one goes on where it ended."""


def journals(api: Api, asked: Asked) -> list[JournalStatus]:
    """Return a job's journals on this engine, in numbers."""
    return [_status(one) for one in api.engine.journals(asked.job)]


def journal(api: Api, asked: Asked) -> JournalDetail:
    """Return a journal of a job: partitions, senders, readers, what was refused or lost.

    With ".dead" after its name, its dead letters.
    """
    name = asked.values["journal"]
    found = api.engine.journal(asked.job, name).summary()
    partitions = [
        msgspec.convert(one, PartitionDetail, from_attributes=True) for one in found.partitions
    ]
    return JournalDetail(
        *(name, found.written_by, found.time, found.columns, found.schemas),
        *(partitions, _readers(found), found.dead),
    )


def journal_rows(api: Api, asked: Asked) -> JournalRows:
    """Return rows of a partition, from a position on, as JSON has them; "next" is where to go on.

    Times are ISO 8601; NaN and infinities are texts, binary is base64, decimals are texts.
    """
    found = _excerpt(api, asked)
    rows = [
        JournalRow(position, row)
        for positions, batch in found.batches
        for position, row in zip(positions, rows_of(batch), strict=True)
    ]
    return JournalRows(found.partition, rows, found.next, found.begin, found.end, found.lost)


def journal_file(api: Api, asked: Asked) -> Text:
    """Return rows of a partition as a file: lines of JSON, CSV or Parquet.

    In CSV times and what is nested stand as in JSON; an empty field is null.
    """
    found, format_ = _excerpt(api, asked), asked.values["format"]
    return Text(encode(format_, found.schema, [batch for _, batch in found.batches]), OCTETS)


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """Rows of a partition and their positions; `next` is where to go on, None at the end."""

    partition: int
    schema: pa.Schema
    batches: list[tuple[Sequence[int], pa.RecordBatch]]
    next: int | None
    begin: int
    end: int
    lost: int


def _excerpt(api: Api, asked: Asked) -> _Excerpt:
    given = asked.values
    reader = api.engine.journal(asked.job, given["journal"]).reader()
    number = given["partition"]
    if number >= reader.description.partitions:
        msg = f'journal "{given["journal"]}" has {reader.description.partitions} partitions'
        raise JournalMissing(msg, hint="they are numbered from 0")
    columns = _columns(given["columns"], reader)
    part = reader.partition(number)
    start = max(given["from"] or 0, part.begin)
    if given["since"] is not None:
        start = max(start, part.position_at_time(_microseconds(given["since"])))
    batches: list[tuple[Sequence[int], pa.RecordBatch]] = []
    rows = lost = size = 0
    at = start
    for found in _slices(part, start, columns):
        if rows >= given["limit"] or size >= _PAGE_BYTES or at - start >= _MOST_SEARCHED:
            break
        if found.kind is Kind.LOST:
            lost += found.stop - found.position
        at = found.stop
        if found.batch is not None:
            places = _places(found.batch, given["contains"])[: given["limit"] - rows]
            batch = found.batch.take(pa.array(places, pa.int64()))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows == given["limit"]:
                at = found.position + places[-1] + 1
            batches.append(([found.position + place for place in places], batch))
    schema = batches[0][1].schema if batches else reader.description.schema
    end = part.end
    return _Excerpt(number, schema, batches, at if at < end else None, part.begin, end, lost)


def _places(batch: pa.RecordBatch, contains: str | None) -> Sequence[int]:
    """Return which rows of a batch have a text."""
    if contains is None:
        return range(batch.num_rows)
    wanted = contains.lower()
    texts = (msgspec.json.encode(row).decode().lower() for row in rows_of(batch))
    return [place for place, text in enumerate(texts) if wanted in text]


def _microseconds(moment: str) -> int:
    try:
        return round(datetime.fromisoformat(moment).timestamp() * 1_000_000)
    except ValueError as error:
        raise RequestRefused(f'"{moment}" is no moment: {error}') from error


def verify_journal(api: Api, asked: Asked) -> VerifiedJournal:
    """Compare a journal with its checksums, and return what is damaged; this reads all of it."""
    found = api.engine.journal(asked.job, asked.values["journal"]).verify()
    damages = [
        DamageStatus(
            one.partition, one.file.name, one.offset, one.position, one.positions, one.fact
        )
        for one in found.damages
    ]
    return VerifiedJournal(damages, found.entries, found.rows, found.bytes, found.lost)


def _slices(part: PartitionReader, start: int, columns: list[str] | None) -> Iterator[Slice]:
    """Yield what lies in a partition, in short slices: an answer has some megabytes."""
    end = part.end
    for begin in range(start, end, _AT_ONCE):
        yield from part.read(begin, min(begin + _AT_ONCE, end), columns)


def _columns(given: str | None, reader: JournalReader) -> list[str] | None:
    if given is None:
        return None
    wanted, known = given.split(","), reader.description.schema.names
    unknown = [column for column in wanted if column not in known]
    if unknown:
        hint = f"its columns are {', '.join(known)}"
        raise RequestRefused(f'the journal has no column "{unknown[0]}"', hint=hint)
    return wanted


def _status(found: Summary) -> JournalStatus:
    partitions = [
        msgspec.convert(one, PartitionStatus, from_attributes=True) for one in found.partitions
    ]
    return JournalStatus(
        found.path.name,
        found.written_by,
        found.time,
        found.columns,
        found.rows,
        found.bytes,
        partitions,
        _readers(found),
        found.dead,
    )


def _readers(found: Summary) -> list[ReaderStatus]:
    return [
        ReaderStatus(one.reader, {str(number): at for number, at in one.positions.items()}, one.lag)
        for one in found.readers
    ]
