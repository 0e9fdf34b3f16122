"""Writes a folder of files: an epoch is staged, decided by one record, and renamed into place.

Each epoch is published once. A reader that lists the folder while files are being renamed may see a
part of an epoch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from millstream.connectors.files import Folder
from millstream.connectors.files.withdraw import withdraw
from millstream.errors import RunError
from millstream.spark.failpoints import passing
from millstream.spark.io.staging import HEADER, LINE, RECORD, SPOILT, StageFiles, run_through
from millstream.spark.io.targets import Epoch, SinkContext, Target
from millstream.spark.io.unwritable import from_json
from millstream.spark.served.borrowed import collected
from millstream.storage import Folder as Storage


class FilesTarget(Target):
    """A folder of Parquet, JSON lines or CSV files.

    Files are staged in `_millstream/<owner>/staged`, named in a decision record
    under `_millstream/<owner>/epochs`, and renamed into the folder. The owner is
    the flow and its sink: what others do in the same folder is not touched.
    Spark, pandas and most readers pass over names that begin with an underscore.
    """

    # What one version has staged the other must not remove.
    shared = True

    def __init__(self, path: Path, format: str, context: SinkContext) -> None:
        self._path = path
        self._format = format
        self._context = context
        self._owner = context.owner
        self._staged = path / "_millstream" / self._owner / "staged"
        self._decided = Storage(path / "_millstream" / self._owner / "epochs")
        self._recovered = False

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        name = f"{self._owner}-{epoch.checkpoint}-{epoch.batch:09d}"
        record = f"{name}.json"
        if self._decided.read(record) is not None:
            # A repeated epoch: what was decided stands, whatever would be staged now.
            self._publish(record)
            run_through(frame)
            return 0
        work = StageFiles(str(self._staged), name, self._format)
        found = collected(_lines(frame, self._format), work)
        staged = [row for row in found if row.file is not None]
        passing("staged")
        self._context.refuse(from_json(row.refused for row in found), epoch)
        if staged:
            self._decided.put(record, json.dumps(sorted(row.file for row in staged)).encode())
        passing("decided")
        self._publish(record)
        self._forget(epoch)
        passing("published")
        return sum(row.rows for row in staged)

    def recover(self) -> None:
        try:
            self._staged.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"the folder {self._path} of a sink cannot be made: {error.strerror}"
            raise RunError(msg, hint="give the sink another path") from error
        for record in self._decided.list():
            self._publish(record)
        if not self._recovered:
            # Later, what is staged may be another version's.
            shutil.rmtree(self._staged, ignore_errors=True)
        self._recovered = True
        self._staged.mkdir(parents=True, exist_ok=True)

    def withdraw(self, column: str, since_us: int) -> None:
        mine = re.compile(
            rf"{re.escape(self._owner)}-[0-9a-f]+-\d{{9,}}-[0-9a-f]{{8}}\.{self._format}"
        )
        for file in sorted(one for one in self._path.iterdir() if mine.fullmatch(one.name)):
            withdraw(file, column, since_us, self._staged / f"withdrawn.{self._format}")
            passing("withdrawn-file")
        _sync_folder(self._path)

    def _publish(self, record: str) -> None:
        decision = self._decided.read(record)
        if decision is None:
            return
        for name in json.loads(decision):
            staged = self._staged / name
            if staged.exists():
                staged.rename(self._path / name)
        _sync_folder(self._path)

    def _forget(self, epoch: Epoch) -> None:
        """Remove decisions that can no longer be repeated: Spark repeats the last batch only."""
        self._decided.delete(f"{self._owner}-{epoch.checkpoint}-{epoch.batch - 2:09d}.json")


#: Spark's own format would cut microseconds off.
_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
#: Spark would remove the spaces around a text.
_CSV: Final = {**_TIMES, "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}


def _lines(frame: DataFrame, format: str) -> DataFrame:
    """Let the JVM turn rows into text where the format is text."""
    if format == "parquet":
        return frame
    everything = functions.struct(*(functions.col(f"`{name}`") for name in frame.columns))
    as_json = functions.to_json(everything, _TIMES)
    # The JVM would put another text in place of one that is not UTF-8, and say nothing.
    spoilt = _spoilt(frame.schema)
    refused = [spoilt.alias(SPOILT), functions.when(spoilt.isNotNull(), as_json).alias(RECORD)]
    if format == "jsonl":
        return frame.select(as_json.alias(LINE), *refused)
    header = functions.lit(",".join(_quoted(name) for name in frame.columns))
    line = functions.to_csv(everything, _CSV)
    return frame.select(line.alias(LINE), *refused, header.alias(HEADER))


def _spoilt(schema: StructType) -> Column:
    """Return the name of the first column with text that is not UTF-8; null if there is none."""
    tests = [(field.name, _not_text(f"`{field.name}`", field.dataType)) for field in schema.fields]
    found = [functions.when(functions.expr(test), name) for name, test in tests if test]
    return functions.coalesce(*found) if found else functions.lit(None).cast("string")


def _not_text(value: str, kind: DataType, depth: int = 0) -> str:
    """Return the SQL that tells whether a value holds text that is not UTF-8; "" if it cannot."""
    if isinstance(kind, StringType):
        return f"NOT is_valid_utf8({value})"
    if isinstance(kind, StructType):
        fields = kind.fields
        inner = [_not_text(f"{value}.`{one.name}`", one.dataType, depth) for one in fields]
        return " OR ".join(f"coalesce({one}, false)" for one in inner if one)
    if isinstance(kind, MapType):
        parts = ((f"map_keys({value})", kind.keyType), (f"map_values({value})", kind.valueType))
        inner = [_not_text(part, ArrayType(one), depth) for part, one in parts]
        return " OR ".join(f"coalesce({one}, false)" for one in inner if one)
    if isinstance(kind, ArrayType):
        item = f"x{depth}"
        within = _not_text(item, kind.elementType, depth + 1)
        return f"exists({value}, {item} -> {within})" if within else ""
    return ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(c in name for c in ',"\n') else name


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_folder(spec: Folder, context: SinkContext) -> FilesTarget:
    """Open the folder of a sink."""
    return FilesTarget(context.root / spec.path, spec.format, context)
