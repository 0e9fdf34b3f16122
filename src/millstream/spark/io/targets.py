"""Where results go: one writer per kind of target, each idempotent on the epoch.

A repeated epoch has the same key (job, group, checkpoint id, batch id). What
each target does with it, and what it cannot promise:

    journal      exactly once: staged, decided by one record, published (journal/kinds/files)
    files        exactly once: staged, decided by one record, renamed into place; a reader that
                 lists the folder while files are being renamed may see a part of an epoch
    postgresql   exactly once: the key and the rows are one transaction
    inboxes      exactly once: staged there, decided by one record here, published in every
                 partition; a reader of two may see it in one before the other (outflow.py)
    memory       exactly once within the process
    console      shown at least once: a batch that is run again is shown again
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType
from rich.console import Console as Terminal
from rich.table import Table as Grid

from millstream.clock import micros
from millstream.errors import InternalError, RunError
from millstream.flow import targets as t
from millstream.journal import DeadLetter, Staged, journal_at
from millstream.spark.failpoints import passing
from millstream.spark.io.checkpoint import write_whole
from millstream.spark.io.outflow import InboxTarget
from millstream.spark.io.source import PLACE
from millstream.spark.io.staging import StageFiles, StageJournal, run_through
from millstream.spark.io.withdraw import withdraw


@dataclass(frozen=True, slots=True)
class Epoch:
    """The key of what a group publishes in one batch, and the lowest time that may still come after it."""

    job: str
    group: str
    checkpoint: str
    batch: int
    floor: int | None

    @property
    def sender(self) -> str:
        return f"{self.job}/{self.group}/{self.checkpoint}"


class Target(Protocol):
    """Writes epochs, each once."""

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        """Publish the rows of an epoch, if they are not yet, and return how many there are."""
        ...

    def recover(self) -> None:
        """Finish what was decided before a crash, remove what was not."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Withdrawing(Target, Protocol):
    """A target that can take results back."""

    def withdraw(self, column: str, since_us: int) -> None:
        """Remove the rows whose `column` lies at a moment or later; may be repeated. Nobody may write meanwhile.

        Rows without a value there stay. Whoever has read the others already is not told.
        """
        ...


# Journals


class JournalTarget:
    """A journal that other groups read; while versions are switched, two groups write it."""

    def __init__(self, path: Path, *, key: str | None) -> None:
        self._path = path
        self._key = key
        self._log = journal_at(path).epochs()
        self._users = 1
        self._recovered = False
        self._floors: dict[str, int | None] = {}
        self._least: dict[str, int] = {}
        self._guard = threading.Lock()

    def share(self) -> JournalTarget:
        """Let one more group write; the journal is let go when all have closed."""
        self._users += 1
        return self

    @property
    def closed(self) -> bool:
        return self._users == 0

    def expect(self, sender: str, at_least: int | None) -> None:
        """Count with a writer before its first epoch: whatever it will write lies at or above `at_least`, if that is known."""
        with self._guard:
            if at_least is not None:
                self._least[sender] = at_least
            self._floors.setdefault(sender, at_least)

    def dismiss(self, sender: str) -> None:
        """Count no more with a writer."""
        with self._guard:
            self._floors.pop(sender, None)
            self._least.pop(sender, None)

    def _floor(self, epoch: Epoch) -> int | None:
        """Return the lowest time that may still come from anybody who writes here."""
        least = self._least.get(epoch.sender)
        floor = epoch.floor if least is None else max(least, epoch.floor or least)
        if floor is not None or epoch.sender in self._floors:
            self._floors[epoch.sender] = floor
        floors = [*self._floors.values()]
        known = [one for one in floors if one is not None]
        return min(known) if known and len(known) == len(floors) else None

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        work = StageJournal(str(self._path), self._key)
        found = frame.drop(PLACE).mapInArrow(work, "staged string, keyless string").collect()
        staged = [Staged(**json.loads(row.staged)) for row in found if row.staged]
        passing("staged")
        self._bury([row.keyless for row in found if row.keyless], epoch)
        with self._guard:
            self._log.decide(epoch.sender, epoch.batch, staged, self._floor(epoch))
            passing("decided")
            self._log.publish()
        passing("published")
        return sum(one.rows for one in staged)

    def _bury(self, records: list[str], epoch: Epoch) -> None:
        """Keep rows without a key as dead letters, numbered so that a repeated epoch adds nothing."""
        if records:
            first = epoch.batch << 32
            letters = [
                DeadLetter(
                    f"group:{epoch.sender}", first + number, f'key "{self._key}" is null', record
                )
                for number, record in enumerate(sorted(records))
            ]
            with journal_at(self._path).dead_letters() as dead:
                dead.put_all(letters)

    def end(self, sender: str, epoch: int) -> None:
        """Say that nothing more will come."""
        with self._guard:
            self._log.decide(sender, epoch, [], None, ended=True)
            self._log.publish()

    def recover(self) -> None:
        with self._guard:
            # Later, what is staged may be another group's.
            _ = self._log.publish() if self._recovered else self._log.recover()
            self._recovered = True

    def close(self) -> None:
        self._users -= 1
        if self.closed:
            self._log.close()


# Files


class FilesTarget:
    """A folder of Parquet, JSON lines or CSV files.

    Files are staged in `_millstream/<owner>/staged`, named in a decision record
    under `_millstream/<owner>/epochs`, and renamed into the folder. The owner is
    the flow and its sink: what others do in the same folder is not touched.
    Spark, pandas and most readers pass over names that begin with an underscore.
    """

    def __init__(self, path: Path, format: str, owner: str) -> None:
        self._path = path
        self._format = format
        self._owner = owner
        self._staged = path / "_millstream" / owner / "staged"
        self._decided = path / "_millstream" / owner / "epochs"
        self._recovered = False

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        name = f"{self._owner}-{epoch.checkpoint}-{epoch.batch:09d}"
        record = self._decided / f"{name}.json"
        if record.exists():
            # A repeated epoch: what was decided stands, whatever would be staged now.
            self._publish(record)
            run_through(frame)
            return 0
        rows = frame.drop(PLACE)
        work = StageFiles(str(self._staged), name, self._format)
        staged = _lines(rows, self._format).mapInArrow(work, "file string, rows long").collect()
        passing("staged")
        if staged:
            write_whole(record, json.dumps(sorted(row.file for row in staged)))
        passing("decided")
        self._publish(record)
        self._forget(epoch)
        passing("published")
        return sum(row.rows for row in staged)

    def recover(self) -> None:
        try:
            self._decided.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"the folder {self._path} of a sink cannot be made: {error.strerror}",
                hint="give the sink another path",
            ) from error
        for record in sorted(self._decided.glob("*.json")):
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

    def close(self) -> None:
        """Nothing is open."""

    def _publish(self, record: Path) -> None:
        if not record.exists():
            return
        for name in json.loads(record.read_text()):
            staged = self._staged / name
            if staged.exists():
                staged.rename(self._path / name)
        _sync_folder(self._path)

    def _forget(self, epoch: Epoch) -> None:
        """Remove decisions that can no longer be repeated: Spark repeats the last batch only."""
        old = self._decided / f"{self._owner}-{epoch.checkpoint}-{epoch.batch - 2:09d}.json"
        old.unlink(missing_ok=True)


#: Spark's own format would cut microseconds off.
_TIMES: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def _lines(frame: DataFrame, format: str) -> DataFrame:
    """Let the JVM turn rows into text where the format is text."""
    everything = F.struct(*(F.col(f"`{name}`") for name in frame.columns))
    if format == "jsonl":
        return frame.select(F.to_json(everything, _TIMES).alias("line"))
    if format == "csv":
        header = F.lit(",".join(_quoted(name) for name in frame.columns))
        return frame.select(F.to_csv(everything, _TIMES).alias("line"), header.alias("header"))
    return frame


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(c in name for c in ',"\n') else name


# PostgreSQL


class PostgresTarget:
    """A table in PostgreSQL.

    The epoch's key goes into the table `millstream_epochs` in the same
    transaction as its rows, so a repeated epoch adds nothing.
    """

    def __init__(self, target: t.Postgres) -> None:
        self._target = target

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        rows = frame.drop(PLACE).toArrow()
        if rows.num_rows == 0:
            return 0
        from psycopg import sql

        with (
            self._connected() as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            cursor.execute(
                "INSERT INTO millstream_epochs (job, flow_group, checkpoint, batch) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT DO NOTHING",
                (epoch.job, epoch.group, epoch.checkpoint, epoch.batch),
            )
            if cursor.rowcount == 0:
                return 0
            names = sql.SQL(", ").join(sql.Identifier(name) for name in rows.column_names)
            table = sql.Identifier(*self._target.table.split("."))
            with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, names)) as copy:
                columns = [column.to_pylist() for column in rows.columns]
                for values in zip(*columns, strict=True):
                    copy.write_row(values)
            passing("staged")
        passing("published")
        return int(rows.num_rows)

    def recover(self) -> None:
        with self._connected() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS millstream_epochs (job text, flow_group text, checkpoint text, "
                "batch bigint, written_at timestamptz DEFAULT now(), PRIMARY KEY (job, flow_group, checkpoint, batch))"
            )

    def prepare(self, schema: StructType) -> None:
        """Make the table if it is not there."""
        from psycopg import sql

        columns = [
            sql.SQL("{} {}").format(
                sql.Identifier(field.name), sql.SQL(_postgres_type(field.dataType))
            )
            for field in schema.fields
            if field.name != PLACE
        ]
        table = sql.Identifier(*self._target.table.split("."))
        with self._connected() as connection:
            connection.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
                    table, sql.SQL(", ").join(columns)
                )
            )

    def withdraw(self, column: str, since_us: int) -> None:
        from psycopg import sql

        table = sql.Identifier(*self._target.table.split("."))
        since = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=since_us)
        with self._connected() as connection, connection.transaction():
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE {} >= %s").format(table, sql.Identifier(column)),
                (since,),
            )

    def close(self) -> None:
        """Connections live for one epoch each."""

    def _connected(self) -> Any:
        # psycopg is an extra; its types are not always there.
        try:
            import psycopg
        except ImportError as error:
            raise RunError(
                "writing to PostgreSQL needs the package psycopg",
                hint="pip install 'millstream[postgres]'",
            ) from error
        try:
            return psycopg.connect(self._target.url)
        except psycopg.OperationalError as error:
            said = str(error).strip().splitlines()[0]
            raise RunError(
                f"PostgreSQL cannot be reached: {said}", hint="check the url of the sink"
            ) from error


_POSTGRES_TYPES: Final = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


def _postgres_type(kind: DataType) -> Any:
    name = kind.simpleString()
    if name.startswith("decimal"):
        return name.replace("decimal", "numeric")
    if isinstance(kind, ArrayType):
        return f"{_postgres_type(kind.elementType)}[]"
    if name in _POSTGRES_TYPES:
        return _POSTGRES_TYPES[name]
    raise RunError(
        f'a PostgreSQL sink cannot hold a column of type "{name}"',
        hint="turn it into text with to_json in a sql stage",
    )


# Memory and console


class MemoryTarget:
    """Rows kept in this process, for tests and notebooks."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._guard = threading.Lock()

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        rows = frame.drop(PLACE).toArrow().to_pylist()
        with self._guard:
            self._epochs.setdefault((epoch.checkpoint, epoch.batch), rows)
        return len(rows)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows in the order in which they were published."""
        with self._guard:
            return [row for rows in self._epochs.values() for row in rows]

    def withdraw(self, column: str, since_us: int) -> None:
        def stays(row: dict[str, Any]) -> bool:
            return row.get(column) is None or micros(row[column]) < since_us

        with self._guard:
            self._epochs = {
                epoch: [row for row in rows if stays(row)] for epoch, rows in self._epochs.items()
            }

    def recover(self) -> None:
        """Memory starts empty."""

    def close(self) -> None:
        """The rows stay readable."""


class ConsoleTarget:
    """A table in the terminal for every epoch that has rows."""

    def __init__(self, target: t.Console, name: str, terminal: Terminal | None) -> None:
        self._most = target.rows
        self._name = name
        # Who shows something else there too, such as a live table, lends its terminal.
        self._terminal = terminal or Terminal(file=sys.stdout)

    def write(self, frame: DataFrame, epoch: Epoch) -> int:
        table = frame.drop(PLACE).limit(self._most + 1).toArrow()
        if table.num_rows == 0:
            return 0
        grid = Grid(title=f"{self._name}, batch {epoch.batch}", title_justify="left")
        for name in table.column_names:
            grid.add_column(name)
        for row in table.slice(0, self._most).to_pylist():
            grid.add_row(*(str(value) for value in row.values()))
        self._terminal.print(grid)
        if table.num_rows > self._most:
            self._terminal.print(f"only the first {self._most} rows are shown")
        return int(table.num_rows)

    def recover(self) -> None:
        """What was shown was shown."""

    def close(self) -> None:
        """The terminal stays open."""


def open_target(
    flow: str,
    name: str,
    target: t.TargetSpec,
    root: Path,
    folder: Path,
    terminal: Terminal | None = None,
) -> Target:
    """Make the writer for a sink of a flow; relative paths count from `root`, `folder` is its group's."""
    owner = f"{flow}.{name}"
    match target:
        case t.Parquet():
            return FilesTarget(root / target.path, "parquet", owner)
        case t.JsonLines():
            return FilesTarget(root / target.path, "jsonl", owner)
        case t.Csv():
            return FilesTarget(root / target.path, "csv", owner)
        case t.Postgres():
            return PostgresTarget(target)
        case t.Memory():
            return MemoryTarget()
        case t.Console():
            return ConsoleTarget(target, name, terminal)
        case t.Outbox():
            return InboxTarget(target, name, root, folder)
        case _:
            raise InternalError(f'sink "{name}" has a target that Spark does not write')


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
