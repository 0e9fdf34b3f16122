"""Which letters can be replayed into a source, and why others cannot.

A letter of an inbox never became a row: it goes where it was sent to. The row of a letter of a stage was in the journal,
and other stages may have taken it: it goes to a source that only this stage reads, which the user names. A late row is
in the journal too, and a version that reads it again with a longer lateness takes it: only the user knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.ingest.checks import check, moment, times_us
from millstream.ingest.parse import json_parser, parse_numbered
from millstream.ingest.rows import Rows
from millstream.ingest.settings import SourceSettings
from millstream.journal import Description, Journal
from millstream.journal.letters import Letter, State

_STAGE: Final = (
    '{kind} "{stage}" refused it after it was in the journal, and other stages may have taken it: '
    "replay it to a source that only this stage reads, with --to SOURCE"
)
_LATE: Final = (
    "it was late, and its row is in the journal: raise the lateness and switch with --from, "
    "or replay it with --late if no version has read it again"
)


@dataclass(frozen=True, slots=True)
class Newest:
    """How far a source is: rows of an earlier time are late; None: none is."""

    earliest: int | None

    @classmethod
    def of(cls, journal: Journal, lateness: timedelta) -> Newest:
        """Ask a journal. Of several partitions the one that is furthest counts."""
        reader = journal.reader()
        parts = [reader.partition(n) for n in range(reader.description.partitions)]
        states = [part.state_at(part.end) for part in parts]
        tops = [one.running_max for one in states if one.running_max is not None]
        floors = [one.floor for one in states if one.floor is not None]
        us = lateness // timedelta(microseconds=1)
        return cls(max([*(top - us for top in tops), *floors], default=None))


@dataclass(frozen=True, slots=True)
class Fit:
    """The letters that can be replayed, and why others cannot, by id."""

    letters: tuple[Letter, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of letters on their way to a source."""

    description: Description
    settings: SourceSettings
    newest: Newest
    now: int
    #: Whether the source is another one than that of the letters.
    elsewhere: bool = False
    late: bool = False


def fitting(letters: Sequence[Letter], rules: Rules, edited: Mapping[str, str]) -> Fit:
    """Return which letters can be replayed, with what they were edited to, by id.

    One that is being replayed is not asked again: its row may be there.
    """
    refused = {one.id: why for one in letters if (why := _barred(one, rules))}
    left = [one for one in letters if one.id not in refused and one.state is State.WAITING]
    records = [edited.get(one.id, one.letter.record) for one in left]
    strict = [rules.elsewhere or one.id in edited for one in left]
    for at, why in unfit(records, rules, strict).items():
        refused[left[at].id] = why
    return Fit(tuple(one for one in letters if one.id not in refused), refused)


def _barred(letter: Letter, rules: Rules) -> str | None:
    if letter.state is State.REPLAYING:
        return None
    if letter.state is not State.WAITING:
        return f"it is {letter.state}"
    if letter.kind == "late":
        return None if rules.late or rules.elsewhere else _LATE
    if letter.kind != "source" and not rules.elsewhere:
        kind = "the key of" if letter.kind == "keyed" else letter.kind
        return _STAGE.format(kind=kind, stage=letter.stage)
    return None


def unfit(records: Sequence[str], rules: Rules, strict: Sequence[bool]) -> dict[int, str]:
    """Return why records are no rows of a source now, by their places.

    One that is looked at strictly has no field that the source does not have.
    """
    schema = rules.description.schema
    rows = parsed(records, list(range(len(records))), schema)
    found = {one.number: one.reason for one in rows.refused}
    for at, record in enumerate(records):
        if strict[at] and at not in found and (name := _unknown(record, schema)):
            found[at] = f'unknown field "{name}": the columns are {", ".join(schema.names)}'
    checked = check(rows, rules.settings.rules, rules.now)
    found |= {one.number: one.reason for one in checked.refused if one.number not in found}
    return found if rules.late else {**_behind(checked, rules), **found}


def _behind(rows: Rows, rules: Rules) -> dict[int, str]:
    time, earliest = rules.settings.time, rules.newest.earliest
    if time is None or earliest is None or not len(rows):
        return {}
    times, _ = times_us(rows.batch, time)
    return {
        int(rows.numbers[at]): (
            f'time "{time}" is {moment(int(times[at]))}, and rows before {moment(earliest)} are late: '
            "edit it, or replay it with --late to have it counted as late again"
        )
        for at in np.flatnonzero(times < earliest)
    }


def _unknown(record: str, schema: pa.Schema) -> str | None:
    return next((name for name in json.loads(record) if name not in schema.names), None)


def parsed(records: Sequence[str], numbers: Sequence[int], schema: pa.Schema) -> Rows:
    """Return records as rows with these numbers, and those that are none."""
    lines = [one.replace("\n", " ").replace("\r", " ").encode(errors="replace") for one in records]
    return parse_numbered(lines, np.asarray(numbers, np.int64), json_parser(schema), schema)
