"""A group's checkpoint: what it is for, and how far it has got.

    groups/<group>/group.json        the checkpoint id, the description it was made for, and what
                                     its windows take
    groups/<group>/<id>/             Spark's own: offsets, commits, state
    groups/<group>/<id>/keys/        large states of stages (the room `millstream.state`)
    groups/<group>@<version>/        that of a version which took the place of another

Spark logs a batch's offsets and watermark before it runs the batch, so both
can be read while it runs and again after a crash, and are the same each time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.errors import GroupChanged, RunError
from millstream.plan.fingerprint import difference
from millstream.spark.io.source import Offset
from millstream.storage import S3, Folder, Storage, StoredFile, storage_at

RECORD: Final = "group.json"


@dataclass(frozen=True, slots=True)
class Logged:
    """What Spark logged for a batch: the watermark it runs with and where it ends, per journal."""

    batch: int
    watermark_ms: int
    offsets: Mapping[str, Offset]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one group."""

    folder: Path
    group: str
    id: str
    description: Mapping[str, Any]
    #: Where it is instead, on storage that several hosts reach; orders to sources stay in the folder.
    address: str | None = None
    #: Whether windows take sums of rows where they can; those of earlier releases take rows.
    sums: bool = False

    @classmethod
    def open(
        cls, folder: Path, group: str, description: dict[str, Any], address: str | None = None
    ) -> Checkpoint:
        """Return the group's checkpoint, or a new one that `begin` will write down.

        Raises:
            GroupChanged: it was made for a group that means something else.
        """
        known = recorded(address or folder)
        if known is None:
            return cls(folder, group, uuid.uuid4().hex[:12], description, address, sums=True)
        changes = difference(known["description"], description)
        if changes:
            raise group_changed(group, changes, address or folder)
        sums = bool(known.get("sums"))
        return cls(folder, group, known["checkpoint"], description, address, sums)

    def begin(self) -> Checkpoint:
        """Write down what the checkpoint is for, if it is new."""
        self._storage.put_if_absent(RECORD, self._record())
        return self

    def handed_to(self, description: dict[str, Any]) -> Checkpoint:
        """Give the checkpoint, with all its state, to a changed version of the group."""
        handed = replace(self, description=description)
        self._storage.put(RECORD, handed._record())
        return handed

    def _record(self) -> bytes:
        record: dict[str, Any] = {"checkpoint": self.id, "description": self.description}
        record |= {"sums": True} if self.sums else {}
        return json.dumps(record, indent=1).encode()

    @classmethod
    def belongs(cls, folder: Path | str, description: dict[str, Any]) -> bool:
        """Return whether the checkpoint in a folder was made for, or handed to, such a group."""
        known = recorded(folder)
        return known is not None and not difference(known["description"], description)

    @property
    def location(self) -> Path:
        """The name under which sources find orders, and where Spark's files are without a storage."""
        return self.folder / self.id

    @property
    def spark_location(self) -> str:
        """Where Spark keeps its files, as Hadoop names it."""
        if self.address is None:
            return str(self.location)
        return f"{self.address}/{self.id}".replace("s3://", "s3a://", 1)

    @property
    def state_format(self) -> str:
        """The format of Spark's files of state.

        With 2, their names are unique: a driver that was replaced and still writes does not
        overwrite those of the one that has the job.
        """
        return "2" if self.unique_names else "1"

    @property
    def unique_names(self) -> bool:
        """Whether every attempt of a batch writes files of state of its own."""
        return self.address is not None

    @property
    def on_s3(self) -> bool:
        """Whether executors reach it wherever they are."""
        return self.address is not None and self.address.startswith("s3://")

    @property
    def state_storage(self) -> Storage:
        """Where tasks keep files with the state of stages, beside Spark's own.

        In a bucket, with the keys that this process has: they travel inside tasks, as flows do.
        """
        found = storage_at(f"{self.address or self.folder}/{self.id}")
        if isinstance(found, S3):
            return found.with_keys()
        # Tasks have another working folder.
        return Folder(Path(self.address or self.folder).absolute() / self.id)

    @property
    def _storage(self) -> Storage:
        return storage_at(self.address or self.folder)

    def sender(self, job: str) -> str:
        """Return the name under which this checkpoint's epochs are published."""
        return f"{job}/{self.group}/{self.id}"

    def reader(self, job: str) -> str:
        """Return the name under which the group reads: two versions may read at the same time."""
        return f"{job}.{self.folder.name}"

    def logged(self, batch: int) -> Logged | None:
        """Read what Spark logged for a batch, None if it did not get that far."""
        text = self.offsets(batch)
        if text is None:
            return None
        return parsed(self.group, batch, text)

    def offsets(self, batch: int) -> str | None:
        """Read what Spark logged for a batch, as it is."""
        found = self._storage.read(f"{self.id}/offsets/{batch}")
        return None if found is None else found.decode()

    def restore(self, batch: int, offsets: str) -> bool:
        """Let Spark find for a batch what a decision says; return whether it would not have.

        A driver that was replaced may have written other offsets for it, and for batches after it.
        """
        if self.offsets(batch) == offsets:
            return False
        last = self.last("offsets")
        for later in range(batch, batch if last is None else last + 1):
            # Hadoop keeps checksums beside local files, which would not fit any more.
            (self.location / "offsets" / f".{later}.crc").unlink(missing_ok=True)
            self._storage.delete(f"{self.id}/offsets/{later}")
        self._storage.put(f"{self.id}/offsets/{batch}", offsets.encode())
        return True

    def adopt(self) -> None:
        """Let Spark take what is logged here for its own, also if it never ran here itself."""
        name = json.dumps({"id": str(uuid.uuid4())})
        self._storage.put_if_absent(f"{self.id}/metadata", name.encode())

    def offsets_file(self, batch: int, offsets: str) -> StoredFile:
        """Return what Spark would write before a batch of its own, if the checkpoint is in the folder."""
        return self._file("offsets", batch, offsets)

    def commit_file(self, batch: int, watermark_ms: int) -> StoredFile:
        """Return what Spark would write after a batch of its own, if the checkpoint is in the folder."""
        known = json.dumps({"nextBatchWatermarkMs": watermark_ms})
        return self._file("commits", batch, f"v1\n{known}")

    def forget(self, batch: int) -> None:
        """Remove what was written for a batch, as Spark does when it is old."""
        for log in ("offsets", "commits"):
            (self.location / log / f".{batch}.crc").unlink(missing_ok=True)
            (self.location / log / str(batch)).unlink(missing_ok=True)

    def commits(self, batch: int) -> str:
        """Read what was written after a batch, as it is."""
        return (self._storage.read(f"{self.id}/commits/{batch}") or b"").decode()

    def _file(self, log: str, batch: int, text: str) -> StoredFile:
        assert self.address is None
        return StoredFile(Folder(self.location), f"{log}/{batch}", text.encode())

    def committed(self) -> Logged | None:
        """Read what Spark logged for the last batch that it committed."""
        last = self.last("commits")
        return None if last is None else self.logged(last)

    def last(self, log: str) -> int | None:
        """Return the highest batch id in a log of Spark's."""
        names = [name.rpartition("/")[2] for name in self._storage.list(f"{self.id}/{log}")]
        return max((int(name) for name in names if name.isdigit()), default=None)


def parsed(group: str, batch: int, text: str) -> Logged:
    """Return what a text says that Spark logged for a batch of a group."""
    version, metadata, *lines = text.strip().split("\n")
    if version != "v1":
        raise RunError(f'the offset log of group "{group}" has the unknown version "{version}"')
    offsets = [msgspec.json.decode(line, type=Offset) for line in lines if line != "-"]
    watermark = int(json.loads(metadata)["batchWatermarkMs"])
    return Logged(batch, watermark, {offset.journal: offset for offset in offsets})


def group_changed(group: str, changes: Sequence[str], folder: Path | str) -> GroupChanged:
    """Return the error about a group that means something else than its checkpoint."""
    return GroupChanged(
        f'group "{group}" has changed since its checkpoint was made:\n'
        + "\n".join(f"  {change}" for change in changes),
        hint="undo the change; or deploy the flow on an engine, and change it there with "
        f"millstream switch; or remove {folder} to run the group again from the beginning of its "
        "journals: it then publishes all its results once more, so clear what its sinks have "
        "written too",
    )


def recorded(folder: Path | str) -> dict[str, Any] | None:
    """Return the record of the checkpoint in a folder: its id and the group's description."""
    record = storage_at(folder).read(RECORD)
    return None if record is None else dict(json.loads(record))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a crash leaves the old one or the new one."""
    Folder(path.parent).put(path.name, text.encode())
