"""A group's checkpoint, opened to look at it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from millstream.errors import NotThere
from millstream.spark.inspection.place import JobPlace
from millstream.spark.io.checkpoint import Checkpoint, Logged
from millstream.storage import Storage, storage_at


@dataclass(frozen=True, slots=True)
class Opened:
    """A group's checkpoint, and the place of its job."""

    place: JobPlace
    checkpoint: Checkpoint

    @property
    def storage(self) -> Storage:
        """Where the files of the group are."""
        return storage_at(self.checkpoint.address or self.checkpoint.folder)

    @property
    def files(self) -> Storage:
        """Where the files of the checkpoint itself are."""
        return storage_at(
            f"{self.checkpoint.address or self.checkpoint.folder}/{self.checkpoint.id}"
        )

    @property
    def sender(self) -> str:
        return self.checkpoint.sender(self.place.name)

    def committed(self, batch: int | None = None) -> Logged | None:
        """Return the last committed batch, or an earlier one.

        Raises:
            NotThere: That one is not there, or not any more.
        """
        if batch is None:
            return self.checkpoint.committed()
        known = self.batches("commits")
        found = self.checkpoint.logged(batch) if batch in known else None
        if found is None:
            kept = f"those from {known[0]} to {known[-1]} are" if known else "none is"
            msg = f'batch {batch} of group "{self.checkpoint.group}" is not in its checkpoint'
            raise NotThere(msg, hint=f"{kept}; Spark keeps the last 10 or so")
        return found

    def batches(self, log: str) -> list[int]:
        """Return the numbers in a log of Spark's, in order."""
        names = self.storage.list(f"{self.checkpoint.id}/{log}")
        numbers = (name.rpartition("/")[2] for name in names)
        return sorted(int(name) for name in numbers if name.isdigit())

    def commit(self, batch: int) -> dict[str, Any]:  # JSON
        """Return what Spark wrote when it committed a batch."""
        content = self.storage.read(f"{self.checkpoint.id}/commits/{batch}") or b""
        found = content.partition(b"\n")[2]
        return dict(json.loads(found)) if found else {}


def opened(place: JobPlace, group: str) -> Opened:
    """Open the checkpoint of a group, to look at it.

    Raises:
        NotThere: There is none.
    """
    return Opened(place, place.checkpoint(group))
