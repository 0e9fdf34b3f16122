"""More partitions for a journal that inboxes write, in place and while it is read.

Rows that are there stay where they are, and what was sent must not be stored again elsewhere when
it is sent again. So a row's place may not change once it can have been stored:

- Rows numbered by their place at an origin (files, replays): each sender's rows up to the highest number that is
  stored of it keep the old layout, those above have the new one. The description says up to where
  (`EarlierPartitions.until`).
- Rows of senders with a name: they keep the layout that the journal was made with (`Description.lasting`), since who
  sends them may be anywhere, with rows on their way that nobody has seen yet.
- Rows of senders without a name are sent by one connection, to the inboxes that it knows.

Readers take a partition that they have no position in as unread. All of them have promised that
nothing below their floor comes any more, and the lowest of the partitions' floors is at least that:
it is the first entry of each new partition, in which a row is late that would have been late in any
of the old ones.

The description says so last, with one rename. A crash before it leaves folders that nobody looks
into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from millstream.clock import Clock
from millstream.journal.align import floor_of
from millstream.journal.base import PASSING, Description, EarlierPartitions, Kind
from millstream.journal.kinds.files.description import describe, lay_out
from millstream.journal.kinds.files.writer import Writer
from millstream.storage.disk import REAL, Disk


def grow(
    path: Path | str,
    partitions: int,
    *,
    lateness_us: int = 0,
    disk: Disk = REAL,
    clock: Clock | None = None,
    open_writer: Callable[..., Writer] = Writer,
) -> Description:
    """Give a journal that nobody writes more partitions, unless it has them or has ended.

    Args:
        path: The journal.
        partitions: How many it shall have.
        lateness_us: How late its rows may be.
        disk: Where it is.
        clock: Tells when it happens.
        open_writer: Opens the writer of a partition, also of one that is being added.

    Raises:
        AlreadyWriting: Someone writes it.
    """
    with ExitStack() as stack:

        def opened(description: Description, partition: int) -> Writer:
            return stack.enter_context(
                open_writer(description, partition, disk=disk, clock=clock, background=False)
            )

        writers = [opened(describe(path), 0)]
        # Only now: whoever else wants to let it grow needs the first partition too.
        description = describe(path)
        writers += [opened(description, number) for number in range(1, description.partitions)]
        if partitions <= description.partitions or any(writer.ended for writer in writers):
            return description
        before = EarlierPartitions(description.partitions, _highest(writers))
        grown = replace(description, partitions=partitions, earlier=(*description.earlier, before))
        floor = _lowest_floor(writers, lateness_us) if description.time is not None else None
        for number in range(description.partitions, partitions):
            writer = opened(grown, number)
            if floor is not None:
                writer.instruct(Kind.IDLE, floor)
        return lay_out(grown.path, partitions, grown.earlier, disk=disk)


def _highest(writers: Sequence[Writer]) -> dict[str, int]:
    """Return the highest number, in any partition, of each sender that may come again."""
    found: dict[str, int] = {}
    for writer in writers:
        for sender, number in writer.numbers().items():
            if not sender.startswith(PASSING):
                found[sender] = max(number, found.get(sender, -1))
    return found


def _lowest_floor(writers: Sequence[Writer], lateness_us: int) -> int | None:
    """Return the lowest time that may still come; None if nobody knows."""
    floors = [floor_of(writer, lateness_us) for writer in writers]
    known = [floor for floor in floors if floor is not None]
    return min(known) if len(known) == len(floors) else None
