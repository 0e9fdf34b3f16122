"""The store of an engine: its jobs, what was deployed, and what has happened to them.

A job is written down before anything is done about it: what the store says is where a new engine goes on.
Undeployed jobs stay, for their history; their packages go.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.engine.lifecycle import Job
from millstream.engine.status import Place
from millstream.errors import StoreBroken

#: How many undeployed jobs, and how many happenings of a job, are kept.
MOST_UNDEPLOYED: Final = 200
MOST_HAPPENINGS: Final = 1_000
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, number INTEGER NOT NULL, deployed_at REAL NOT NULL,
    undeployed INTEGER NOT NULL, settings BLOB NOT NULL, job BLOB NOT NULL, UNIQUE (name, number)
);
CREATE UNIQUE INDEX one_of_a_name ON jobs (name) WHERE NOT undeployed;
CREATE TABLE packages (job TEXT PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, package BLOB NOT NULL);
CREATE TABLE numbers (name TEXT PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE history (
    number INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs ON DELETE CASCADE,
    at REAL NOT NULL, what TEXT NOT NULL, detail TEXT
);
CREATE INDEX history_of ON history (job, number);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a job was deployed with."""

    flow: str
    #: The folder, among those of packages, that it was unpacked to.
    package: str
    root: str | None = None
    options: dict[str, Any] = {}
    #: Where the inboxes of all partitions of each source are; empty if all are here.
    places: dict[str, list[Place]] = {}
    #: The partitions of each source that events are sent to.
    inboxes: dict[str, int] = {}


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as the store has it."""

    id: str
    name: str
    number: int
    deployed_at: float
    settings: JobSettings
    job: Job


class Noted(msgspec.Struct, frozen=True):
    """Something that has happened to a job, at a moment in seconds since 1970."""

    at: float
    what: str
    detail: str | None = None


class Store:
    """The database of an engine. Any thread may call."""

    def __init__(self, file: Path) -> None:
        self._guard = threading.RLock()
        with _translated():
            self._sql = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            self._sql.execute("PRAGMA foreign_keys = ON")
            self._sql.execute("PRAGMA synchronous = FULL")
        with self._changing() as sql:
            if sql.execute("PRAGMA user_version").fetchone()[0] < _VERSION:
                for statement in _SCHEMA.split(";"):
                    sql.execute(statement)
                sql.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Change everything or nothing; it is on disk at the end."""
        with self._guard, _translated():
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield self._sql
                self._sql.execute("COMMIT")
            except BaseException:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._guard, _translated():
            yield self._sql

    # jobs

    def next_id(self, name: str) -> tuple[str, int]:
        """Return a new id for a job of a name, and its number; neither is given again."""
        with self._changing() as sql:
            sql.execute(
                "INSERT INTO numbers VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET number = number + 1", (name,)
            )
            number = int(sql.execute("SELECT number FROM numbers WHERE name = ?", (name,)).fetchone()[0])
        return f"{name}-{number}", number

    def add(self, stored: Stored, package: bytes, noted: Noted) -> None:
        """Write down a new job and its package."""
        with self._changing() as sql:
            row = (stored.id, stored.name, stored.number, stored.deployed_at, 0)
            sql.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*row, msgspec.json.encode(stored.settings), msgspec.json.encode(stored.job)),
            )
            sql.execute("INSERT INTO packages VALUES (?, ?)", (stored.id, package))
            _note(sql, stored.id, noted)

    def update(self, id: str, job: Job, noted: Noted | None = None, settings: JobSettings | None = None) -> None:
        """Write down what has become of a job."""
        with self._changing() as sql:
            sql.execute("UPDATE jobs SET job = ? WHERE id = ?", (msgspec.json.encode(job), id))
            if settings is not None:
                sql.execute("UPDATE jobs SET settings = ? WHERE id = ?", (msgspec.json.encode(settings), id))
            if noted is not None:
                _note(sql, id, noted)

    def remove(self, id: str) -> None:
        """Keep the history of a job that is undeployed, and nothing else; its name is free."""
        with self._changing() as sql:
            sql.execute("UPDATE jobs SET undeployed = 1 WHERE id = ?", (id,))
            sql.execute("DELETE FROM packages WHERE job = ?", (id,))
            _forget_old(sql)

    def jobs(self) -> list[Stored]:
        """Return the jobs that are deployed, oldest first."""
        with self._reading() as sql:
            rows = sql.execute(f"SELECT {_COLUMNS} FROM jobs WHERE NOT undeployed ORDER BY deployed_at, id")  # noqa: S608
            return [_stored(row) for row in rows]

    def job(self, id: str) -> Stored | None:
        """Return a job by its id, undeployed or not."""
        with self._reading() as sql:
            row = sql.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (id,)).fetchone()  # noqa: S608
            return None if row is None else _stored(row)

    def package(self, id: str) -> bytes | None:
        with self._reading() as sql:
            row = sql.execute("SELECT package FROM packages WHERE job = ?", (id,)).fetchone()
            return None if row is None else bytes(row[0])

    # what happens

    def note(self, id: str, noted: Noted) -> None:
        with self._changing() as sql:
            _note(sql, id, noted)

    def history(self, id: str) -> list[Noted]:
        """Return what has happened to a job, oldest first."""
        with self._reading() as sql:
            rows = sql.execute("SELECT at, what, detail FROM history WHERE job = ? ORDER BY number", (id,))
            return [Noted(*row) for row in rows]

    # facts

    def fact(self, name: str, value: str) -> str:
        """Return what was written under a name; `value` is, if nothing was before."""
        with self._changing() as sql:
            sql.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            return str(sql.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0])

    def close(self) -> None:
        with self._guard:
            self._sql.close()


_COLUMNS: Final = "id, name, number, deployed_at, settings, job"


def _stored(row: tuple[Any, ...]) -> Stored:
    return Stored(
        id=row[0],
        name=row[1],
        number=row[2],
        deployed_at=row[3],
        settings=msgspec.json.decode(row[4], type=JobSettings),
        job=msgspec.json.decode(row[5], type=Job),
    )


def _note(sql: sqlite3.Connection, id: str, noted: Noted) -> None:
    sql.execute(
        "INSERT INTO history (job, at, what, detail) VALUES (?, ?, ?, ?)", (id, noted.at, noted.what, noted.detail)
    )
    sql.execute(
        "DELETE FROM history WHERE job = ?1 AND number <= "
        "(SELECT number FROM history WHERE job = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        (id, MOST_HAPPENINGS),
    )


def _forget_old(sql: sqlite3.Connection) -> None:
    sql.execute(
        "DELETE FROM jobs WHERE undeployed AND rowid NOT IN "
        "(SELECT rowid FROM jobs WHERE undeployed ORDER BY rowid DESC LIMIT ?)",
        (MOST_UNDEPLOYED,),
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreBroken(f"the engine's store refuses: {error}", hint="is its disk full?") from error
