"""What a group has published, as far as it can be known from beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from millstream.journal import journal_at
from millstream.spark.inspection.opened import Opened


class PublishedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an output: `epoch` is published, `decided` is the last that exists."""

    name: str
    kind: str
    epoch: int | None
    decided: int | None = None


def published(found: Opened, batch: int | None) -> Iterator[PublishedReport]:
    """Yield the outputs of a group.

    Spark commits a batch after all of its outputs have it: what is committed is published.
    """
    output = found.checkpoint.description["output"]
    if "journal" in output:
        name = output["journal"]["name"]
        folder = found.place.journal(name).name
        decided = _last([journal_epoch(found, name), decided_epoch(found, f"journal:{folder}")])
        yield PublishedReport(name=name, kind="journal", epoch=batch, decided=decided)
    for name, sink in output.get("sinks", {}).items():
        decided = decided_epoch(found, f"{found.place.name}.{name}")
        yield PublishedReport(name=name, kind=sink["kind"], epoch=batch, decided=decided)


def journal_epoch(found: Opened, name: str) -> int | None:
    """Return the last epoch that a journal has of the group, in any partition."""
    journal = journal_at(found.place.journal(name))
    if not journal.exists():
        return None
    return _last([part.highest.get(found.sender) for part in journal.summary().partitions])


def decided_epoch(found: Opened, target: str | None = None) -> int | None:
    """Return the last epoch that the job's log has decided for a target, or for any.

    The name of a target in the log is that of its sink, mostly with its kind before it.
    """
    decided = {} if found.place.log is None else found.place.log.decided
    keys = [(*key.rpartition("#")[::2], one.epoch) for key, one in decided.items()]
    return _last(
        [
            epoch
            for sender, name, epoch in keys
            if sender == found.sender
            and (target is None or target in (name, name.rpartition(":")[2]))
        ]
    )


def _last(numbers: Collection[int | None]) -> int | None:
    return max((one for one in numbers if one is not None), default=None)
