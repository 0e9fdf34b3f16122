"""Orders to the sources of one version while it is switched, and their answers: small files.

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

from pathlib import Path
from typing import Literal

import msgspec

from millstream.journal import Steps
from millstream.storage import Folder, Storage
from millstream.switch.cut import CutColumn, Part


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
    """Orders to the sources of a version: wait, where to begin, what it owns, when to close."""

    held: bool = False
    first: dict[str, tuple[int, ...]] = {}
    owns: tuple[Part, ...] | None = None
    #: By which column results are owned at a cut; at others as before there were these.
    starts: tuple[CutColumn, ...] = ()
    #: The lateness of journals of which a switch has changed it: see `late`.
    lateness: dict[str, Steps] = {}
    close_us: int | None = None
    #: Rows before the one, and from the other on, are left out: they are another version's.
    since_us: int | None = None
    until_us: int | None = None
    question: Question | None = None


class Answer(msgspec.Struct, frozen=True):
    """The answer of a source: its highest window in each partition, and whether it passed the cut."""

    kind: Literal["report", "confirm"]
    round: int
    highest: tuple[int | None, ...]
    passed: bool


class Control:
    """The files of one version of a group; `path` is that of its checkpoint."""

    def __init__(self, path: Path | str) -> None:
        checkpoint = Path(path)
        self._storage: Storage = Folder(checkpoint.parent)
        self._orders = f"{checkpoint.name}.orders"
        self._answers = f"{checkpoint.name}.answers"
        self._known: tuple[str | None, Orders] = None, Orders()

    def order(self, orders: Orders) -> None:
        """Replace the orders; they are durable when this returns."""
        self._storage.put(self._orders, msgspec.json.encode(orders))

    def orders(self) -> Orders:
        """Return the orders for the sources now; none if there never were any."""
        version = self._storage.version(self._orders)
        if version != self._known[0]:
            # Read after its version: this may find a newer one, which is then read once more.
            found = self._storage.read(self._orders)
            orders = Orders() if found is None else msgspec.json.decode(found, type=Orders)
            self._known = version, orders
        return self._known[1]

    def answer(self, journal: str, answer: Answer) -> None:
        """Answer the driver; an answer that is there already is not written again."""
        if self.answered(journal) != answer:
            self._storage.put(f"{self._answers}/{journal}", msgspec.json.encode(answer))

    def answered(self, journal: str) -> Answer | None:
        """Return the last answer of the source of a journal."""
        found = self._storage.read(f"{self._answers}/{journal}")
        return None if found is None else msgspec.json.decode(found, type=Answer)
