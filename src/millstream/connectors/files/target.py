"""Writes a folder of files: an epoch is staged, decided by one record, and renamed into place.

Each epoch is published once. A reader that lists the folder while files are being renamed may see a
part of an epoch.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql.types import StructType

from millstream.connectors.files import Folder
from millstream.connectors.files.withdraw import withdraw
from millstream.errors import RunError
from millstream.spark.failpoints import passing
from millstream.spark.io.lines import Lines
from millstream.spark.io.staging import StageFiles, rows_in, run_through
from millstream.spark.io.targets import Epoch, SinkContext, StagedTarget
from millstream.spark.io.unwritable import from_json
from millstream.spark.served.borrowed import collected
from millstream.storage import Folder as Storage
from millstream.storage import StoredFile
from millstream.storage.disk import REAL


class FilesTarget(StagedTarget):
    """A folder of Parquet, JSON lines or CSV files.

    Files are staged in `_millstream/<owner>/staged`, named in a decision record
    under `_millstream/<owner>/epochs`, and renamed into the folder. The owner is
    the flow and its sink: what others do in the same folder is not touched.
    Spark, pandas and most readers pass over names that begin with an underscore.
    If the job has a log, it decides, and staged files lie in `staged/<generation>`.
    """

    # What one version has staged the other must not remove.
    shared = True
    decides: ClassVar[bool] = True

    def __init__(self, path: Path, format: str, context: SinkContext) -> None:
        self._path = path
        self._format = format
        self._context = context
        self._owner = context.owner
        self._all_staged = path / "_millstream" / self._owner / "staged"
        self._decided = Storage(path / "_millstream" / self._owner / "epochs")
        self._recovered = False
        self._lines = Lines(format)

    @property
    def takes_packed(self) -> bool:
        return self._format == "parquet"  # Java makes the lines of the others

    @property
    def _staged(self) -> Path:
        """Where this driver stages: what another one stages late is not taken for ours."""
        log = self._context.log
        return self._all_staged if log is None else self._all_staged / str(log.generation)

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        work = self.work(epoch)
        if work is None:
            # A repeated epoch: what was decided stands, whatever would be staged now.
            self._publish(self._record(epoch))
            REAL.sync_folder(self._path)
            run_through(frame)
            return 0
        found = collected(self._lines.of(frame), work)
        passing("staged")
        decision = self.decision(found, epoch)
        if decision is not None:
            decision.put()
        passing("decided")
        self.publish(epoch)
        self.settle(epoch)
        passing("published")
        return rows_in(found)

    def made(self, schema: StructType, columns: Sequence[str]) -> dict[str, Column]:
        return self._lines.made(schema, columns)

    def work(self, epoch: Epoch) -> StageFiles | None:
        if self._decided.read(self._record(epoch)) is not None:
            return None
        return StageFiles(str(self._staged), self._named(epoch), self._format)

    def decision(self, found: Sequence[Row], epoch: Epoch) -> StoredFile | None:
        self._context.refuse(from_json(row.refused for row in found), epoch)
        names = [row.file for row in found if row.file is not None]
        if not names and epoch.log is None:
            return None
        within = self._staged.relative_to(self._all_staged)
        content = epoch.decide(self._owner, json.dumps(sorted(str(within / one) for one in names)))
        passing("logged-decision")
        if content is None:
            return None
        return StoredFile(self._decided, self._record(epoch), content.encode())

    def publish(self, epoch: Epoch) -> None:
        self._publish(self._record(epoch))

    def settle(self, epoch: Epoch) -> None:
        REAL.sync_folder(self._path)
        # Spark repeats the last batch only.
        self._decided.delete(self._record(replace(epoch, batch=epoch.batch - 2)))

    def _named(self, epoch: Epoch) -> str:
        return f"{self._owner}-{epoch.checkpoint}-{epoch.batch:09d}"

    def _record(self, epoch: Epoch) -> str:
        return f"{self._named(epoch)}.json"

    def recover(self) -> None:
        try:
            self._staged.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"the folder {self._path} of a sink cannot be made: {error.strerror}"
            raise RunError(msg, hint="give the sink another path") from error
        for checkpoint, one in self._context.standing(self._owner).items():
            record = f"{self._owner}-{checkpoint}-{one.epoch:09d}.json"
            self._decided.put_if_absent(record, one.content.encode())
        for record in self._decided.list():
            self._publish(record)
        REAL.sync_folder(self._path)
        if not self._recovered:
            # Later, what is staged may be another version's.
            shutil.rmtree(self._all_staged, ignore_errors=True)
        self._recovered = True
        self._staged.mkdir(parents=True, exist_ok=True)

    def withdraw(self, column: str, since_us: int) -> None:
        mine = re.compile(
            rf"{re.escape(self._owner)}-[0-9a-f]+-\d{{9,}}-[0-9a-f]{{8}}\.{self._format}"
        )
        for file in sorted(one for one in self._path.iterdir() if mine.fullmatch(one.name)):
            withdraw(file, column, since_us, self._staged / f"withdrawn.{self._format}")
            passing("withdrawn-file")
        REAL.sync_folder(self._path)

    def _publish(self, record: str) -> None:
        decision = self._decided.read(record)
        if decision is None:
            return
        for name in json.loads(decision):
            # Gone: it is there already.
            with suppress(FileNotFoundError):
                (self._all_staged / name).rename(self._path / Path(name).name)


def open_folder(spec: Folder, context: SinkContext) -> FilesTarget:
    """Open the folder of a sink."""
    return FilesTarget(context.root / spec.path, spec.format, context)
