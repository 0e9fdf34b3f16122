"""Epochs: how a group writes into a journal, once.

    tasks stage files -> decide: one synced record -> publish: one entry per partition

An epoch exists from its decision on. Before it, what tasks have staged is ignored; after it,
`recover` publishes exactly the files that it names, whatever a rerun may have staged since. In each
partition an epoch is one entry, so it is there as a whole or not at all, and a partition that has
it already ignores it: publishing is repeatable.

The log holds lines of JSON with checksums. Once an epoch is published everywhere, only its number
matters: the log is then rewritten with the last epoch of each sender, so it stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.clock import Clock
from millstream.errors import Ended
from millstream.journal.base import Accepted, Description, Staged, Trimmed
from millstream.journal.kinds.files.description import describe
from millstream.journal.kinds.files.drafts import EpochPart
from millstream.journal.kinds.files.layout import epochs_file, staged_folder
from millstream.journal.kinds.files.lines import checked_line, parse_lines, sound_end, sound_values
from millstream.journal.kinds.files.log import SEGMENT_BYTES
from millstream.journal.kinds.files.staging import checksum, open_staged, stage
from millstream.journal.kinds.files.writer import Writer
from millstream.storage.disk import REAL, Disk, make_folder, write_whole
from millstream.storage.lock import Lock

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Decision", "EpochLog", "Staged", "stage"]

LOG_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Decision:
    """An epoch that exists."""

    sender: str
    epoch: int
    staged: tuple[Staged, ...]
    floor: int | None
    ended: bool


class EpochLog:
    """The decisions about a journal, kept by the driver, and the writers of all its partitions."""

    def __init__(
        self,
        description: Description,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        timeout: float = 0.0,
        background: bool = True,
    ) -> None:
        self.description = description
        self._disk = disk
        self._staged_folder = staged_folder(description.path)
        self._path = epochs_file(description.path)
        make_folder(disk, self._staged_folder)
        self._lock = Lock(
            description.path / "epochs.lock",
            disk,
            what=f'journal "{description.path}"',
            timeout=timeout,
        )
        self._last: dict[str, int] = {}
        self._pending: list[Decision] = []
        self._ended = False
        self._writers: list[Writer] = []
        try:
            self._load()
            for partition in range(description.partitions):
                writer = self._writer(
                    partition,
                    clock=clock,
                    segment_bytes=segment_bytes,
                    timeout=timeout,
                    background=background,
                )
                self._writers.append(writer)
        except BaseException:
            self._let_go(Writer.abort)
            raise

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        timeout: float = 0.0,
        background: bool = True,
    ) -> EpochLog:
        """Take the journal for writing epochs; call `recover` before anything is staged.

        Raises:
            AlreadyWriting: Another driver has it.
        """
        return cls(
            describe(path),
            disk=disk,
            clock=clock,
            segment_bytes=segment_bytes,
            timeout=timeout,
            background=background,
        )

    def _writer(self, partition: int, **settings: Any) -> Writer:  # Any: as __init__ has them
        return Writer(self.description, partition, disk=self._disk, **settings)

    def _load(self) -> None:
        self._file = self._disk.open(self._path)
        lines = parse_lines(self._path.read_bytes())
        if sound_end(lines) < self._file.size():
            self._file.truncate(sound_end(lines))
        # Whoever wrote these lines may have been killed before it synced them; from now on they are
        # acted upon.
        self._file.sync()
        self._disk.sync_folder(self._path.parent)
        # A decision that was damaged after it was published is in every partition, and one that was
        # damaged before is made again: Spark runs the batch again.
        for value in sound_values(lines):
            self._replay(value)

    def _replay(self, line: Any) -> None:  # Any: JSON
        match line:
            case {"last": last, "ended": ended}:
                self._last, self._ended = dict(last), ended
            case {"published": [sender, epoch]}:
                self._pending = [d for d in self._pending if (d.sender, d.epoch) != (sender, epoch)]
            case {"decided": decided}:
                staged = tuple(Staged(**item) for item in decided.pop("staged"))
                self._note(Decision(**decided, staged=staged))

    def _note(self, decision: Decision) -> None:
        self._pending.append(decision)
        self._last[decision.sender] = decision.epoch
        self._ended = self._ended or decision.ended

    # deciding

    def last(self, sender: str) -> int:
        """Return the last epoch decided for `sender`, or -1."""
        return self._last.get(sender, -1)

    @property
    def unpublished(self) -> tuple[Decision, ...]:
        """The epochs that exist and are not in all partitions yet."""
        return tuple(self._pending)

    def decide(
        self,
        sender: str,
        epoch: int,
        staged: Iterable[Staged],
        floor: int | None = None,
        *,
        ended: bool = False,
    ) -> bool:
        """Make an epoch exist; it does, durably, when this returns True.

        False: it was decided before, and the files staged now are removed; or it only says that the
        journal has ended, and it has. `floor` is the lowest time that may still come; `ended` says
        that nothing will.

        Raises:
            Ended: The journal has ended, and this epoch is a new one.
        """
        decision = Decision(sender, epoch, tuple(staged), floor, ended)
        if epoch <= self.last(sender):
            self._remove(decision.staged)
            return False
        if self._ended and ended and not decision.staged:
            return False
        if self._ended:
            msg = f'journal "{self.description.path}" has ended and takes no epoch {epoch} of "{sender}"'
            raise Ended(msg)
        self._file.append([checked_line({"decided": asdict(decision)})])
        self._file.sync()
        self._note(decision)
        return True

    def publish(self) -> int:
        """Put all decided epochs into their partitions; return how many rows that were.

        They are durable and visible when this returns. If it raises, the decisions stand: `recover`
        goes on.

        Raises:
            CorruptStaging: A staged file is gone or damaged.
            WriterBroken: The disk refused.
        """
        rows = 0
        while self._pending:
            rows += self._publish(self._pending[0])
            decision = self._pending.pop(0)
            # Not synced: if the line is lost, publishing again finds the epoch in every partition.
            self._file.append([checked_line({"published": [decision.sender, decision.epoch]})])
            self._remove(decision.staged)
        if self._file.size() > LOG_BYTES:
            self.compact()
        return rows

    def recover(self) -> int:
        """Publish what is decided, remove what else is staged, and return the rows published."""
        rows = self.publish()
        self._discard_rest()
        self.compact()
        return rows

    def _discard_rest(self) -> None:
        """Remove what is staged and was not decided."""
        for file in list(self._staged_folder.iterdir()):
            self._disk.remove(file)

    def compact(self) -> None:
        """Rewrite the log with what still matters."""
        lines = [checked_line({"last": self._last_published(), "ended": self._ended_published()})]
        lines += [checked_line({"decided": asdict(decision)}) for decision in self._pending]
        self._file.close()
        write_whole(self._disk, self._path, b"".join(lines))
        self._file = self._disk.open(self._path)

    def _last_published(self) -> dict[str, int]:
        last = dict(self._last)
        for decision in reversed(self._pending):
            last[decision.sender] = decision.epoch - 1
        return last

    def _ended_published(self) -> bool:
        return self._ended and not any(decision.ended for decision in self._pending)

    def trim(
        self,
        *,
        keep_for: timedelta | None = None,
        keep_bytes: int | None = None,
        look_back: timedelta = timedelta(0),
    ) -> Trimmed:
        """Remove the segments that nobody needs, in all partitions (`retention.trim`)."""
        removed = Trimmed(0, 0, 0)
        for writer in self._writers:
            removed = removed.plus(
                writer.trim(keep_for=keep_for, keep_bytes=keep_bytes, look_back=look_back)
            )
        return removed

    # publishing

    def _publish(self, decision: Decision) -> int:
        futures = [self._queue(writer, decision) for writer in self._writers]
        if not all(future.done() for future in futures):
            for writer in self._writers:
                writer.flush()
        return sum(future.result().stored for future in futures)

    def _queue(self, writer: Writer, decision: Decision) -> Future[Accepted]:
        staged = [item for item in decision.staged if item.partition == writer.partition]
        known = writer.highest(decision.sender) >= decision.epoch
        buffers = [] if known else self._staged(staged)
        times = [(item.min_time, item.max_time) for item in staged]
        return writer.append_epoch(
            EpochPart(
                sender=decision.sender,
                epoch=decision.epoch,
                buffers=buffers,
                parts=sum(item.parts for item in staged),
                rows=sum(item.rows for item in staged),
                length=sum(item.bytes for item in staged),
                checksum=self._checksum(buffers),
                min_time=min((low for low, _ in times if low is not None), default=None),
                max_time=max((high for _, high in times if high is not None), default=None),
                floor=decision.floor,
                ended=decision.ended,
                version=max((item.version for item in staged), default=self.description.version),
            )
        )

    def _staged(self, staged: Sequence[Staged]) -> Sequence[Buffer]:
        return [open_staged(self.description.path, item) for item in staged]

    def _checksum(self, buffers: Sequence[Buffer]) -> int:
        return checksum(buffers)

    def _remove(self, staged: Iterable[Staged]) -> None:
        for item in staged:
            self._disk.remove(self._staged_folder / item.file)

    # closing

    def close(self) -> None:
        """Let go of the journal; what is decided stays so."""
        self._let_go(Writer.close)

    def abort(self) -> None:
        """Let go of the journal without writing anything more."""
        self._let_go(Writer.abort)

    def _let_go(self, end: Any) -> None:  # Any: a method of Writer
        for writer in self._writers:
            end(writer)
        if hasattr(self, "_file"):
            self._file.close()
        self._lock.release()

    def __enter__(self) -> EpochLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
