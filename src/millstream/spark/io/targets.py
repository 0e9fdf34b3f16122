"""The seam to where results go: a target writes epochs, each once.

A repeated epoch has the same key (job, group, checkpoint, batch). What each target does with it, and
what it cannot promise, is in its own module: `connectors/<system>/target.py`, `journal_target.py`.
The usual way is to stage the rows, to decide by one record that names what is staged, and to publish:

    staged      ignored, and removed after a crash, unless a decision names it
    decided     published, by this process or by the next: whatever would be staged now
    published   readers see it
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import xxhash

from millstream.errors import RunError
from millstream.flow.targets import TargetSpec
from millstream.joblog import Decided, JobLog, State
from millstream.journal import DeadLetter, journal_at
from millstream.spark.failpoints import passing
from millstream.spark.io.unwritable import Unwritable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import StructType
    from rich.console import Console as Terminal

    from millstream.spark.io.staging import StageFiles
    from millstream.storage import StoredFile


@dataclass(frozen=True, slots=True)
class Epoch:
    """The key of what a group publishes in one batch, and the lowest time that may follow it."""

    job: str
    group: str
    checkpoint: str
    batch: int
    floor: int | None
    #: The job's log, if it has one, and what Spark logged for the batch.
    log: JobLog | None = field(default=None, compare=False)
    offsets: str = field(default="", compare=False)

    @property
    def sender(self) -> str:
        return f"{self.job}/{self.group}/{self.checkpoint}"

    def decide(self, target: str, content: str) -> str | None:
        """Decide what a target publishes, once and for all drivers; return what is to be published.

        That is `content`, or what was decided for this epoch before; None if that is long ago.
        Without a log of the job, it is for the target to decide.

        Raises:
            TakenOver: Another driver has taken the job: publish nothing.
        """
        if self.log is None:
            return content
        decided = Decided(self.batch, content, self.offsets)
        found = self.log.decide(_key(self.sender, target), decided)
        return None if found is None else found.content

    def settle(self) -> None:
        """Decide the epoch if no target has: nothing came out of it, and its rows are read.

        Raises:
            TakenOver: Another driver has taken the job.
        """
        if self.log is not None and self.batch not in decided_offsets(self.log.state, self.sender):
            self.decide("settled", "")


def _key(sender: str, target: str) -> str:
    return f"{sender}#{target}"


def decided_offsets(state: State, sender: str) -> dict[int, str]:
    """Return what Spark had logged for a sender's last decided epoch, and for the one before it.

    Spark runs the last batch again at most, and begins it where the one before it ended. A target
    that has had nothing to publish for long knows older ones, which Spark has removed.
    """
    found: dict[int, str] = {}
    for key, last in state.decided.items():
        if key.rpartition("#")[0] == sender:
            known = {last.epoch: last.offsets, last.epoch - 1: state.before.get(key)}
            found |= {epoch: offsets for epoch, offsets in known.items() if offsets}
    newest = max(found, default=0)
    return {epoch: found[epoch] for epoch in (newest - 1, newest) if epoch in found}


class Target(ABC):
    """Writes epochs, each once. Only `write` is needed; the rest is for those that need it."""

    #: Whether versions of a flow whose sinks are equal write through one target.
    shared: ClassVar[bool] = False
    #: Whether `write` calls `Epoch.decide` between staging and publishing. The job's log then holds
    #: what is published; otherwise it decides before `write` that the epoch may be.
    decides: ClassVar[bool] = False

    @property
    def takes_packed(self) -> bool:
        """Whether `write` takes packed results, too: its tasks open them (`io/result_rows.py`)."""
        return False

    def prepare(self, schema: StructType) -> None:  # noqa: B027
        """Make what rows of this schema are written to, if it is not there."""

    def recover(self) -> None:  # noqa: B027
        """Finish what was decided before a crash, remove what was not; may be repeated."""

    @abstractmethod
    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        """Publish the rows of an epoch, unless they are, and return how many were published.

        The rows must be computed also if they are published already (`staging.run_through`): stages
        with state would miss the batch otherwise. A row that cannot be written stops no other: hand
        it to `SinkContext.refuse` before the epoch is decided.
        """

    def end(self, sender: str, epoch: int) -> None:  # noqa: B027
        """Write the end, under a sender and an epoch of their own; may be repeated."""

    def interrupt(self) -> None:  # noqa: B027
        """Let a `write` that waits fail: the run is being stopped, and the next one goes on."""

    def close(self) -> None:  # noqa: B027
        """Let go of what is open, without finishing anything."""


class StagedTarget(Target):
    """A target whose rows tasks write to files: those of several groups, in one job."""

    @abstractmethod
    def made(self, schema: StructType, columns: Sequence[str]) -> dict[str, Column]:
        """Return what tasks take of rows, whose columns have other names in a frame; none: the columns."""

    @abstractmethod
    def work(self, epoch: Epoch) -> StageFiles | None:
        """Return what tasks do with the rows of an epoch; None if it is decided already."""

    @abstractmethod
    def decision(self, found: Sequence[Row], epoch: Epoch) -> StoredFile | None:
        """Return the record that decides what tasks have answered; None if there is nothing to decide."""

    @abstractmethod
    def publish(self, epoch: Epoch) -> None:
        """Publish what is decided."""

    @abstractmethod
    def settle(self, epoch: Epoch) -> None:
        """Make what is published durable, and forget decisions that nobody needs any more."""


@runtime_checkable
class Withdrawing(Protocol):
    """A target whose description says that results are withdrawn when they are processed again."""

    def recover(self) -> None: ...

    def withdraw(self, column: str, since_us: int) -> None:
        """Remove the rows whose `column` lies at a moment or later; may be repeated.

        Nobody writes meanwhile. Rows without a value there stay. Readers that have seen the others
        are not notified.
        """
        ...


@runtime_checkable
class Readable(Protocol):
    """A target whose rows can be read in this process."""

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows in the order in which they were published."""
        ...


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a target is opened for: a sink of a flow."""

    flow: str
    sink: str
    #: What relative paths count from.
    root: Path
    #: The folder of the group that writes it, for decisions that are not kept with the results.
    folder: Path
    #: Lent by whoever shows something else there too, such as a live table.
    terminal: Terminal | None = None
    #: The journal whose dead letters take the rows that the target cannot.
    letters: Path | None = None
    #: The job's log, if it has one.
    log: JobLog | None = None

    def standing(self, target: str) -> dict[str, Decided]:
        """Return the last decisions about a target in the job's log, by checkpoint."""
        decided = {} if self.log is None else self.log.state.decided
        found = [(*key.rpartition("#")[::2], one) for key, one in decided.items()]
        return {sender.rpartition("/")[2]: one for sender, name, one in found if name == target}

    @property
    def owner(self) -> str:
        """A name for the sink that no other sink of any flow has."""
        return f"{self.flow}.{self.sink}"

    def refuse(self, rows: Sequence[Unwritable], epoch: Epoch) -> None:
        """Keep rows as dead letters; a repeated epoch adds none.

        Call it before the epoch is decided: a crash in between repeats the epoch, and with it this.

        Raises:
            RunError: The sink has nowhere to keep them.
        """
        if not rows:
            return
        if self.letters is None:
            raise RunError(rows[0].letter(self.sink), hint=f"the row is {rows[0].record}")
        with journal_at(self.letters).dead_letters() as dead:
            dead.put_all(letters_of(rows, self.sink, epoch))
        passing("refused")


def letters_of(rows: Sequence[Unwritable], sink: str, epoch: Epoch) -> list[DeadLetter]:
    """Return rows as dead letters.

    A row has no place of its own: it is known by its epoch and its content, equal ones by their
    number, so the order in which they come does not matter.
    """
    seen: Counter[str] = Counter()
    letters = []
    for row in rows:
        seen[row.record] += 1
        place = f"{epoch.sender}/{epoch.batch}/{seen[row.record]}/{row.record}"
        position = xxhash.xxh3_64_intdigest(place.encode()) >> 1
        letters.append(DeadLetter(f"sink:{sink}", position, row.letter(sink), row.record))
    return letters


def open_target(spec: TargetSpec, context: SinkContext) -> Target:
    """Open what a sink writes to."""
    target: Target = pkgutil.resolve_name(spec.writer)(spec, context)
    return target
