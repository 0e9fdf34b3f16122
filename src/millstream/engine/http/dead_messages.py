"""Dead letters over HTTP, as data."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from millstream.clock import iso
from millstream.journal.letters import Letter

LetterId = Annotated[str, Meta(pattern="^[0-9a-f]{1,16}$")]
_Source = Annotated[str, Meta(min_length=1, max_length=256)]


class LetterStatus(msgspec.Struct, frozen=True):
    """A dead letter: which stage of which kind has refused it, why, when, and what became of it.

    `partition` and `position` say where `origin` had it; `record` is its row as JSON, or what came instead of one.
    """

    id: str
    journal: str
    kind: str
    stage: str
    origin: str
    partition: int
    position: int
    reason: str
    at: str
    state: str
    record: str


class LetterPage(msgspec.Struct, frozen=True):
    """Dead letters, oldest first; `next` is the number to go on from, null at the end."""

    letters: list[LetterStatus]
    next: int | None


class ReplayOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Letters to replay: `to` names a source other than their own; with `late` late ones too."""

    ids: Annotated[list[LetterId], Meta(max_length=10_000)]
    to: _Source | None = None
    late: bool = False


class EditedOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows to replay instead of those of letters, by id: all of them, or none."""

    rows: Annotated[dict[str, dict[str, Any]], Meta(max_length=10_000)]
    to: _Source | None = None
    late: bool = False


class ReplayAnswer(msgspec.Struct, frozen=True):
    """The letters that were replayed, whose rows are durable, and why others were not, by id."""

    replayed: list[str]
    refused: dict[str, str]


class DiscardOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Letters that are not wanted any more."""

    ids: Annotated[list[LetterId], Meta(max_length=10_000)]


class DiscardAnswer(msgspec.Struct, frozen=True):
    """How many letters were discarded that were not before."""

    discarded: int


def status_of(letter: Letter) -> LetterStatus:
    """Return a letter as data."""
    one = letter.letter
    return LetterStatus(
        *(letter.id, letter.journal, letter.kind, letter.stage, one.origin, one.partition),
        *(one.position, one.reason, iso(letter.at / 1e6), str(letter.state), one.record),
    )
