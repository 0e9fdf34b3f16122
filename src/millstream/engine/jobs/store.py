"""The store of an engine: its jobs, their packages and history, and the names of programs.

A job is written down before anything is done about it: what the store says is where a new engine
goes on. Undeployed jobs stay, for their history; their packages go.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.engine.jobs.lifecycle import Job
from millstream.engine.jobs.spread import SpreadSource
from millstream.engine.jobs.status import Peer, Place
from millstream.engine.jobs.switch_record import Switch
from millstream.errors import StoreBroken

#: How many undeployed jobs, and how many happenings of a job, are kept.
MOST_UNDEPLOYED: Final = 200
MOST_HAPPENINGS: Final = 1_000
_JOBS: Final = """
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
_BINARIES: Final = """
CREATE TABLE binaries (
    name TEXT NOT NULL, version INTEGER NOT NULL, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, added_at REAL NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE TABLE binary_versions (name TEXT PRIMARY KEY, version INTEGER NOT NULL);
"""
_VERSIONS: Final = """
CREATE TABLE versions (
    job TEXT NOT NULL REFERENCES jobs ON DELETE CASCADE, number INTEGER NOT NULL, added_at REAL NOT NULL,
    current_at REAL, settings BLOB NOT NULL, switch BLOB, package BLOB NOT NULL, PRIMARY KEY (job, number)
);
INSERT INTO versions SELECT jobs.id, 1, deployed_at, deployed_at, settings, NULL, package
    FROM packages JOIN jobs ON packages.job = jobs.id;
DROP TABLE packages;
"""
#: What each version of the store has added to the one before.
_SCHEMAS: Final = (_JOBS, _BINARIES, _VERSIONS)


#: The option of a job that limits how many rows may wait for its driver.
MOST_UNREAD: Final = "most_unread"
#: The one that says where its journals are kept.
JOURNALS: Final = "journals"


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
    #: The sources among these that the engines read themselves.
    spread: dict[str, SpreadSource] = {}
    #: All engines of the cluster, by their nodes; empty if this is the only one.
    engines: list[Peer] = []
    #: The SHA-256 of each of the engine's programs, by the name that the flow has for it.
    binaries: dict[str, str] = {}
    #: Whether other engines know the job too, and one of them may run it next.
    shared: bool = False


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as the store has it."""

    id: str
    name: str
    number: int
    deployed_at: float
    settings: JobSettings
    job: Job


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a job, with the switch that led to it; `current_at` is when it began to run."""

    number: int
    added_at: float
    settings: JobSettings
    current_at: float | None = None
    switch: Switch | None = None

    @property
    def shadow(self) -> bool:
        """Whether it has only run in the shadow of another."""
        switch = self.switch
        compared = switch is not None and switch.over and switch.shadow is not None
        return compared and self.current_at is None


#: Versions with their packages.
Packed = Sequence[tuple[Version, bytes]]


def current_of(versions: Iterable[Version]) -> int:
    """Return the number of the version that runs: the old one until a switch is done."""
    return max((one.number for one in versions if one.current_at is not None), default=1)


class Noted(msgspec.Struct, frozen=True):
    """Something that has happened to a job, at a moment in seconds since 1970."""

    at: float
    what: str
    detail: str | None = None


class Binary(msgspec.Struct, frozen=True):
    """A version of one of the engine's programs, and when it was added."""

    name: str
    version: int
    sha256: str
    bytes: int
    added_at: float

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class Store:
    """The database of an engine. Any thread may call."""

    def __init__(self, file: Path) -> None:
        self._guard = threading.RLock()
        with _translated():
            self._sql = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            self._sql.execute("PRAGMA foreign_keys = ON")
            self._sql.execute("PRAGMA synchronous = FULL")
        with self._changing() as sql:
            for added in _SCHEMAS[sql.execute("PRAGMA user_version").fetchone()[0] :]:
                for statement in added.split(";"):
                    sql.execute(statement)
            sql.execute(f"PRAGMA user_version = {len(_SCHEMAS)}")

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
                "INSERT INTO numbers VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET number = number + 1",
                (name,),
            )
            number = int(
                sql.execute("SELECT number FROM numbers WHERE name = ?", (name,)).fetchone()[0]
            )
        return f"{name}-{number}", number

    def add(self, stored: Stored, versions: Packed, noted: Noted) -> None:
        """Write down a new job and its versions, each with its package.

        One that other engines know too may have been here before.
        """
        with self._changing() as sql:
            row = (stored.id, stored.name, stored.number, stored.deployed_at, 0)
            sql.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "undeployed = 0, settings = excluded.settings, job = excluded.job",
                (*row, msgspec.json.encode(stored.settings), msgspec.json.encode(stored.job)),
            )
            for version, package in versions:
                _put(sql, stored.id, version, package)
            _note(sql, stored.id, noted)

    def update(
        self, id: str, job: Job, noted: Noted | None = None, settings: JobSettings | None = None
    ) -> None:
        """Write down what has become of a job."""
        with self._changing() as sql:
            sql.execute("UPDATE jobs SET job = ? WHERE id = ?", (msgspec.json.encode(job), id))
            if settings is not None:
                sql.execute(
                    "UPDATE jobs SET settings = ? WHERE id = ?", (msgspec.json.encode(settings), id)
                )
            if noted is not None:
                _note(sql, id, noted)

    def remove(self, id: str) -> None:
        """Keep the history of a job that is undeployed, and nothing else; its name is free."""
        with self._changing() as sql:
            sql.execute("UPDATE jobs SET undeployed = 1 WHERE id = ?", (id,))
            sql.execute("DELETE FROM versions WHERE job = ?", (id,))
            _forget_old(sql)

    def jobs(self) -> list[Stored]:
        """Return the jobs that are deployed, oldest first."""
        with self._reading() as sql:
            rows = sql.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE NOT undeployed ORDER BY deployed_at, id"  # noqa: S608
            )
            return [_stored(row) for row in rows]

    def job(self, id: str) -> Stored | None:
        """Return a job by its id, undeployed or not."""
        with self._reading() as sql:
            row = sql.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (id,)).fetchone()  # noqa: S608
            return None if row is None else _stored(row)

    # versions

    def add_version(self, id: str, version: Version, package: bytes, noted: Noted) -> None:
        """Store a new version of a job, and its package.

        It replaces versions that only ran in the shadow, from its number on.
        """
        with self._changing() as sql:
            sql.execute("DELETE FROM versions WHERE job = ? AND number >= ?", (id, version.number))
            _put(sql, id, version, package)
            _note(sql, id, noted)

    def update_version(self, id: str, version: Version, noted: Sequence[Noted] = ()) -> None:
        """Store a version; the settings of one that runs now are the job's."""
        with self._changing() as sql:
            sql.execute(
                "UPDATE versions SET current_at = ?, settings = ?, switch = ? WHERE job = ? AND number = ?",
                (version.current_at, *_encoded(version), id, version.number),
            )
            if version.current_at is not None:
                sql.execute(
                    "UPDATE jobs SET settings = ? WHERE id = ?",
                    (msgspec.json.encode(version.settings), id),
                )
            for one in noted:
                _note(sql, id, one)

    def versions(self, id: str) -> list[Version]:
        """Return the versions of a job, oldest first."""
        with self._reading() as sql:
            rows = sql.execute(
                "SELECT number, added_at, current_at, settings, switch FROM versions WHERE job = ? ORDER BY number",
                (id,),
            )
            return [_version(row) for row in rows]

    def package(self, id: str, number: int = 1) -> bytes | None:
        with self._reading() as sql:
            row = sql.execute(
                "SELECT package FROM versions WHERE job = ? AND number = ?", (id, number)
            ).fetchone()
            return None if row is None else bytes(row[0])

    # what happens

    def note(self, id: str, noted: Noted) -> None:
        with self._changing() as sql:
            _note(sql, id, noted)

    def history(self, id: str) -> list[Noted]:
        """Return what has happened to a job, oldest first."""
        with self._reading() as sql:
            rows = sql.execute(
                "SELECT at, what, detail FROM history WHERE job = ? ORDER BY number", (id,)
            )
            return [Noted(*row) for row in rows]

    # programs

    def add_binary(self, name: str, sha256: str, size: int, at: float) -> Binary:
        """Write down a new version of a program, and return it; its number is not given again."""
        with self._changing() as sql:
            sql.execute(
                "INSERT INTO binary_versions VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET version = version + 1",
                (name,),
            )
            number = int(
                sql.execute(
                    "SELECT version FROM binary_versions WHERE name = ?", (name,)
                ).fetchone()[0]
            )
            sql.execute(
                "INSERT INTO binaries VALUES (?, ?, ?, ?, ?)", (name, number, sha256, size, at)
            )
        return Binary(name, number, sha256, size, at)

    def binaries(self) -> list[Binary]:
        """Return all versions of all programs, by name, oldest first."""
        with self._reading() as sql:
            rows = sql.execute(
                "SELECT name, version, sha256, bytes, added_at FROM binaries ORDER BY name, version"
            )
            return [Binary(*row) for row in rows]

    def remove_binaries(self, gone: Sequence[Binary]) -> None:
        """Forget versions of programs: all of them, or none."""
        with self._changing() as sql:
            for one in gone:
                sql.execute(
                    "DELETE FROM binaries WHERE name = ? AND version = ?", (one.name, one.version)
                )

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


def _version(row: tuple[Any, ...]) -> Version:
    return Version(
        number=row[0],
        added_at=row[1],
        current_at=row[2],
        settings=msgspec.json.decode(row[3], type=JobSettings),
        switch=None if row[4] is None else msgspec.json.decode(row[4], type=Switch),
    )


def _encoded(version: Version) -> tuple[bytes, bytes | None]:
    switch = None if version.switch is None else msgspec.json.encode(version.switch)
    return msgspec.json.encode(version.settings), switch


def _put(sql: sqlite3.Connection, id: str, version: Version, package: bytes) -> None:
    sql.execute(
        "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?)",
        (id, version.number, version.added_at, version.current_at, *_encoded(version), package),
    )


def _note(sql: sqlite3.Connection, id: str, noted: Noted) -> None:
    sql.execute(
        "INSERT INTO history (job, at, what, detail) VALUES (?, ?, ?, ?)",
        (id, noted.at, noted.what, noted.detail),
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
        hint = "is its disk full?"
        raise StoreBroken(f"the engine's store refuses: {error}", hint=hint) from error
