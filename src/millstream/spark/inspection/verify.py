"""Whether everything that a checkpoint names is there and agrees.

A job that runs goes on meanwhile: what can only grow is read after what it is compared with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import MillstreamError, NotThere, RunError
from millstream.journal import Journal, journal_at
from millstream.spark.inspection.key_states import KINDS, read_shards
from millstream.spark.inspection.opened import Opened
from millstream.spark.inspection.outputs import decided_epoch, journal_epoch
from millstream.spark.inspection.state_files import StateReport, states
from millstream.spark.io.checkpoint import Logged
from millstream.spark.io.source import Offset
from millstream.state import StateFiles
from millstream.state.importing import current, imported
from millstream.state.verifying import import_faults, shard_faults
from millstream.storage import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Fault(msgspec.Struct, frozen=True):
    """Something that is not there, or does not agree: where, and what."""

    where: str
    fact: str

    def __str__(self) -> str:
        return f"{self.where}: {self.fact}"


class CheckpointVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying a checkpoint has found."""

    faults: tuple[Fault, ...]
    #: How many batches, files of state and outputs were looked at.
    batches: int
    files: int
    outputs: int
    #: What could not be looked at from here.
    unseen: tuple[str, ...] = ()


def verify(
    found: Opened, root: Path, spark: Callable[[], SparkSession] | None = None
) -> CheckpointVerification:
    """Compare a checkpoint with itself, with its journals, its outputs and its files of state.

    Args:
        found: The checkpoint.
        root: What the paths of the flow's sinks count from.
        spark: Starts Spark, which reads the manifests of keys; without it they are not looked at.
    """
    commits = found.batches("commits")
    offsets = found.batches("offsets")
    faults = [*_logs(found, offsets, commits)]
    logged = {one: read for one in offsets if (read := _logged(found, one, faults)) is not None}
    faults += _order(logged)
    last = logged.get(commits[-1]) if commits else None
    if last is not None:
        faults += _inputs(found, last)
    state = [] if last is None else list(states(found, last.batch))
    for one in state:
        name = f'state of "{one.stage}"' if one.stage else f"state of operator {one.operator}"
        needs = f"version {one.version} needs {{}}, which is not there"
        faults += [Fault(name, needs.format(file)) for file in one.missing]
    unseen = []
    for one in state:
        if last is None or one.stage is None or one.kind not in KINDS:
            continue
        if spark is None:
            unseen.append(f'the keys of "{one.stage}" are read by Spark, which was not started')
        else:
            where = f'state of "{one.stage}"'
            found_faults = _keys(found, spark(), one.stage, one, last.batch)
            faults += [Fault(where, fact) for fact in found_faults]
    outputs = _Outputs(found, root, commits[-1] if commits else None)
    faults += outputs.faults()
    return CheckpointVerification(
        faults=tuple(faults),
        batches=len(logged),
        files=sum(one.files for one in state),
        outputs=outputs.seen,
        unseen=(*unseen, *outputs.unseen),
    )


def _keys(
    found: Opened, spark: SparkSession, stage: str, state: StateReport, batch: int
) -> Iterator[str]:
    """Yield what is wrong with the manifests of a stage's shards, and the files that they name."""
    files = StateFiles(found.files, stage, retain=0)
    decision = imported(files.storage, stage)
    try:
        shards = read_shards(spark, found, state.operator, batch, state.kind or "")
    except NotThere:  # an earlier release has stored it, which names no files
        return
    except RunError as error:
        yield str(error)
        return
    if decision is not None:
        yield from import_faults(files, decision)
        shards = current(files, decision, shards)
    for shard, data in shards.items():
        yield from shard_faults(files, shard, data)


# Spark's logs


def _logs(found: Opened, offsets: Sequence[int], commits: Sequence[int]) -> Iterator[Fault]:
    """Yield gaps in Spark's logs: it repeats at most the batch after the last committed one."""
    for log, numbers in (("offsets", offsets), ("commits", commits)):
        for before, after in pairwise(numbers):
            if after != before + 1:
                yield Fault(log, f"batches {before + 1} to {after - 1} are missing")
    known = set(offsets)
    # Spark may remove the oldest ones meanwhile.
    for batch in (one for one in commits if not offsets or one >= offsets[0]):
        if batch not in known:
            yield Fault("offsets", f"batch {batch} is committed, and its offsets are missing")
        try:
            found.commit(batch)
        except ValueError as error:
            yield Fault(f"commits/{batch}", f"it cannot be read: {error}")
    last, logged = commits[-1] if commits else -1, offsets[-1] if offsets else -1
    if logged > last + 1:
        # Only commits of batches that were run before are missing then.
        yield Fault("commits", f"batch {last} is the last, and offsets are logged up to {logged}")
    if offsets and found.storage.read(f"{found.checkpoint.id}/metadata") is None:
        yield Fault("metadata", "the file with the query's id is missing")


def _logged(found: Opened, batch: int, faults: list[Fault]) -> Logged | None:
    try:
        return found.checkpoint.logged(batch)
    except (MillstreamError, ValueError, KeyError, msgspec.MsgspecError) as error:
        faults.append(Fault(f"offsets/{batch}", f"it cannot be read: {error}"))
        return None


def _order(logged: dict[int, Logged]) -> Iterator[Fault]:
    """Yield what goes back from one batch to the next."""
    for before, after in pairwise(logged.values()):
        where = f"offsets/{after.batch}"
        if after.watermark_ms < before.watermark_ms:
            yield Fault(where, "the watermark lies before that of the batch before")
        for name, offset in after.offsets.items():
            earlier = before.offsets.get(name)
            pairs = zip(earlier.positions if earlier else (), offset.positions, strict=False)
            for partition, (a, z) in enumerate(pairs):
                if z < a:
                    yield Fault(where, f'"{name}", partition {partition} goes back from {a} to {z}')


# inputs


def _inputs(found: Opened, last: Logged) -> Iterator[Fault]:
    for name, offset in last.offsets.items():
        journal = journal_at(found.place.journal(name))
        where = f'input "{name}"'
        if not journal.exists():
            yield Fault(where, f"there is no journal {found.place.journal(name)}")
            continue
        try:
            yield from _positions(where, journal, offset)
            yield from _reader(where, journal, found, offset)
        except MillstreamError as error:
            yield Fault(where, f"the journal cannot be read: {error}")


def _positions(where: str, journal: Journal, offset: Offset) -> Iterator[Fault]:
    reader = journal.reader()
    count = reader.description.partitions
    if len(offset.positions) > count:
        read = len(offset.positions)
        yield Fault(where, f"{read} partitions are read, and the journal has {count}")
    for partition, position in enumerate(offset.positions[:count]):
        view = reader.partition(partition)
        if position > view.end:
            reads = f"partition {partition} is read up to {position:,}"
            yield Fault(where, f"{reads}, and the journal ends at {view.end:,}")
        if position < view.begin:
            goes = f"partition {partition} goes on at {position:,}"
            yield Fault(where, f"{goes}, and the journal is trimmed up to {view.begin:,}")


def _reader(where: str, journal: Journal, found: Opened, offset: Offset) -> Iterator[Fault]:
    """Yield where a journal would trim what the checkpoint still needs."""
    name = found.checkpoint.reader(found.place.name)
    noted = next((one for one in journal.committed() if one.reader == name), None)
    # What runs has moved on meanwhile: compare with what is committed now.
    now = found.checkpoint.committed()
    known = offset if now is None else now.offsets.get(offset.journal, offset)
    for partition, position in (noted.positions if noted else {}).items():
        if partition < len(known.positions) and position > known.positions[partition]:
            has = f"the journal has noted {position:,} as read in partition {partition}"
            yield Fault(where, f"{has}, and the checkpoint is at {known.positions[partition]:,}")


# outputs


@dataclass
class _Outputs:
    """Compares what is committed with what outputs and the job's log have recorded."""

    found: Opened
    root: Path
    committed: int | None

    def __post_init__(self) -> None:
        self.seen = 0
        self.unseen: list[str] = []

    def faults(self) -> Iterator[Fault]:
        output: dict[str, Any] = self.found.checkpoint.description["output"]
        if "journal" in output:
            self.seen += 1
            yield from self._journal(output["journal"]["name"])
        for name, sink in output.get("sinks", {}).items():
            folder = self._folder(name, sink)
            if folder is None:
                self.unseen.append(f'output "{name}" ({sink["kind"]}) keeps its own records')
                continue
            self.seen += 1
            yield from self._files(name, folder)
        yield from self._log()

    def _ahead(self, where: str, epoch: int | None) -> Iterator[Fault]:
        last = self.found.checkpoint.last("offsets")
        if epoch is not None and epoch > (-1 if last is None else last):
            known = "no batch" if last is None else f"batches up to {last}"
            fact = f"epoch {epoch} is decided, and the checkpoint knows {known}"
            yield Fault(where, f"{fact}: is it an old copy?")

    def _journal(self, name: str) -> Iterator[Fault]:
        where, path = f'output "{name}"', self.found.place.journal(name)
        if not journal_at(path).exists():
            yield Fault(where, f"there is no journal {path}")
            return
        try:
            epoch = journal_epoch(self.found, name)
        except MillstreamError as error:
            yield Fault(where, f"the journal cannot be read: {error}")
            return
        yield from self._ahead(where, epoch)

    def _folder(self, name: str, sink: dict[str, Any]) -> Path | None:
        """Return where a sink of files keeps its decisions."""
        folder = self.root / sink["path"] if isinstance(sink.get("path"), str) else None
        records = folder and folder / "_millstream" / f"{self.found.place.name}.{name}"
        return folder if records and records.is_dir() else None

    def _files(self, name: str, folder: Path) -> Iterator[Fault]:
        owner, where = f"{self.found.place.name}.{name}", f'output "{name}"'
        own = folder / "_millstream" / owner
        records, prefix = Folder(own / "epochs"), f"{owner}-{self.found.checkpoint.id}-"
        for record in records.list():
            if not record.startswith(prefix):
                continue
            epoch = int(record.removeprefix(prefix).removesuffix(".json"))
            yield from self._ahead(where, epoch)
            done = self.committed is not None and epoch <= self.committed
            for file in json.loads(records.read(record) or b"[]"):
                staged, there = (
                    (own / "staged" / file).exists(),
                    (folder / Path(file).name).exists(),
                )
                if done and staged:
                    yield Fault(where, f'epoch {epoch} is committed, and "{file}" not published')
                if not done and not staged and not there:
                    yield Fault(where, f'epoch {epoch} is decided, and "{file}" is gone')

    def _log(self) -> Iterator[Fault]:
        """Compare with the job's log: it has decided every epoch before Spark commits it."""
        # As it is now: what is committed was read before.
        place = self.found.place.again()
        if place.log is None:
            return
        decided = decided_epoch(Opened(place, self.found.checkpoint))
        if self.committed is not None and (decided is None or decided < self.committed):
            fact = f"batch {self.committed} is committed, and epoch {decided} is the last decided"
            yield Fault("job's log", fact)
        chosen = self.found.committed()
        generations = [one.generation for one in chosen.offsets.values()] if chosen else []
        newest = max((one for one in generations if one is not None), default=-1)
        if newest > place.log.generation:
            has = f"generation {newest} has chosen offsets"
            yield Fault("job's log", f"{has}, and the log knows {place.log.generation}")
