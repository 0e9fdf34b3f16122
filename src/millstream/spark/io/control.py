"""What the sources of one version are told while it is switched, and what they answer: small files.

The methods of a source that choose offsets run in a Python process of Spark's, apart from the
driver. So the driver puts its orders into a file, which each source looks at whenever Spark asks it
for the next offset, and a source puts its answer beside it:

    <checkpoint>.orders                 written whole by the driver, never by anybody else
    <checkpoint>.answers/<journal>      the last answer of the source of a journal

Orders are looked at between batches only: a batch that runs is finished as it was logged. What a
source does with them is copied into its offset, which Spark logs before it is used, so that a batch
that is run again reads and owns the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from millstream.journal.disk import REAL, replace
from millstream.switch.cut import Part


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far have you got; or: will you stay below a cut?

    While the question stands, a source that has not passed the cut stays below it, and one that is
    told to `stop` reads nothing.
    """

    kind: Literal["report", "confirm"]
    round: int
    step_us: int
    bound: int | None = None
    cut_us: int = 0
    stop: bool = False


class Orders(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the sources of a version are told: to wait; where to begin; what the version owns; when to close; what to answer."""

    held: bool = False
    first: dict[str, tuple[int, ...]] = {}
    owns: tuple[Part, ...] | None = None
    close_us: int | None = None
    question: Question | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a source says: its highest window in each partition, and whether it has passed the cut that was meant."""

    kind: Literal["report", "confirm"]
    round: int
    highest: tuple[int | None, ...]
    passed: bool


class Control:
    """The files of one version of a group; `path` is that of its checkpoint."""

    def __init__(self, path: Path | str) -> None:
        self._orders = Path(f"{path}.orders")
        self._answers = Path(f"{path}.answers")
        self._known: tuple[tuple[int, int], Orders] | None = None

    def order(self, orders: Orders) -> None:
        """Put up orders in place of those that were there; durable when this returns."""
        self._answers.mkdir(parents=True, exist_ok=True)
        replace(REAL, self._orders, msgspec.json.encode(orders))

    def orders(self) -> Orders:
        """Return what the sources are told now; nothing if nobody ever told them anything."""
        try:
            status = self._orders.stat()
        except FileNotFoundError:
            return Orders()
        stamp = status.st_ino, status.st_mtime_ns
        if self._known is None or self._known[0] != stamp:
            # Written whole: whoever opens it later than the look at its stamp finds this one or a
            # newer one.
            self._known = stamp, msgspec.json.decode(self._orders.read_bytes(), type=Orders)
        return self._known[1]

    def answer(self, journal: str, answer: Answer) -> None:
        """Let the driver know; an answer that is there already is not written again."""
        if self.answered(journal) == answer:
            return
        temporary = self._answers / f".{journal}.{os.getpid()}"
        temporary.write_bytes(msgspec.json.encode(answer))
        temporary.replace(self._answers / journal)

    def answered(self, journal: str) -> Answer | None:
        """Return the last answer of the source of a journal."""
        try:
            return msgspec.json.decode((self._answers / journal).read_bytes(), type=Answer)
        except FileNotFoundError:
            return None
