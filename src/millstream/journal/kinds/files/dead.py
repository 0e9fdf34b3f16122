"""Dead letters: what could not be taken, with the reason, once.

A journal of its own beside each journal. A letter is known by (origin, partition, position), so a
retry, or a second version that finds the same row late, adds nothing. Positions come in any order,
so the senders' sequences do not help: which letters are there is looked up in a small SQLite table,
derived from the journal. If it is lost, damaged or behind, it is filled again from there. SQLite has
no checksums, so whoever closes the table leaves one beside it, and whoever opens it takes it away:

    DIR/dead/seen.sqlite    the table
    DIR/dead/seen.check     the checksum of the table, while nobody has it open
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import xxhash

from millstream.clock import Clock, SystemClock
from millstream.journal.base import FOREVER, DeadLetter
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.layout import dead_folder, description_file
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer
from millstream.storage.disk import REAL, Disk
from millstream.storage.private import FILE

schema = pa.schema(
    [
        ("reason", pa.string()),
        ("origin", pa.string()),
        ("partition", pa.int32()),
        ("position", pa.int64()),
        ("record", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
_log = logging.getLogger(__name__)
_SENDER = "dead letters"
_REASONS = "SELECT reason, letters FROM reasons"
TIMEOUT_S = 30.0


class DeadLetters:
    """The dead letters of a journal, open for writing by one process at a time; others wait."""

    def __init__(
        self,
        path: Path | str,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self.path = dead_folder(Path(path))
        self._clock = clock or SystemClock()
        description = create(self.path, schema, time="at", disk=disk)
        self._writer = Writer(description, 0, disk=disk, clock=self._clock, timeout=timeout)
        try:
            self._seen = _Seen(self.path, self._writer.end)
        except BaseException:
            self._writer.abort()
            raise

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        timeout: float = TIMEOUT_S,
    ) -> DeadLetters:
        """Open the dead letters of the journal at `path`, made if there are none.

        Raises:
            AlreadyWriting: Another process has had them for longer than `timeout`.
        """
        return cls(path, disk=disk, clock=clock, timeout=timeout)

    def put(
        self, origin: str, position: int, reason: str, record: object, partition: int = 0
    ) -> bool:
        """Store one letter, durably, unless it is there; True if it is new."""
        text = record if isinstance(record, str) else json.dumps(record, default=str)
        return self.put_all([DeadLetter(origin, position, reason, text, partition)]) == 1

    def put_all(self, letters: Iterable[DeadLetter]) -> int:
        """Store the letters that are not there yet, and return how many those were."""
        fresh = self._fresh(letters)
        self._store(fresh, [self._clock.now_us()] * len(fresh))
        return len(fresh)

    def _fresh(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Return the letters that are not there yet, each once."""
        given = {letter.key: letter for letter in letters}
        return [letter for key, letter in given.items() if not self._seen.has(key)]

    def _store(self, fresh: Sequence[DeadLetter], times: Sequence[int]) -> None:
        """Store letters that are not there, with their times."""
        if fresh:
            batch = self._batch(fresh, times)
            self._writer.append(_SENDER, self._writer.highest(_SENDER) + 1, batch)
            self._seen.add([(*letter.key, letter.reason) for letter in fresh], self._writer.end)

    def _batch(self, letters: Sequence[DeadLetter], times: Sequence[int]) -> pa.RecordBatch:
        columns = [
            [letter.reason for letter in letters],
            [letter.origin for letter in letters],
            [letter.partition for letter in letters],
            [letter.position for letter in letters],
            [letter.record for letter in letters],
            times,
        ]
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def close(self) -> None:
        self._seen.close()
        self._writer.close()

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Seen:
    """Which letters are in the journal up to a position; the rest is read from there."""

    def __init__(self, journal: Path, end: int) -> None:
        self._journal = journal
        self._file = table_file(journal)
        if self._file.exists() and not _as_it_was_closed(journal):
            _log.warning("%s was not closed, or is damaged: it is filled again", self._file)
            remove_table(journal)
        _check_file(journal).unlink(missing_ok=True)
        try:
            self._open(end)
            self._catch_up(end)
        except sqlite3.DatabaseError:
            self._start_again(end)

    def _open(self, end: int) -> None:
        self._file.touch(FILE)  # SQLite would make it readable for all
        self._base = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
        # WAL with NORMAL keeps the file sound through a crash; it may forget the newest letters,
        # which are read again.
        for order in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            "CREATE TABLE IF NOT EXISTS seen (origin TEXT, partition INTEGER, position INTEGER,"
            " PRIMARY KEY (origin, partition, position)) WITHOUT ROWID",
            "CREATE TABLE IF NOT EXISTS reasons (reason TEXT PRIMARY KEY, letters INTEGER) WITHOUT ROWID",
            "CREATE TABLE IF NOT EXISTS covered (one INTEGER PRIMARY KEY, position INTEGER)",
        ):
            self._base.execute(order)
        if _covered(self._base) > end:  # the table of another journal that was here
            raise sqlite3.DatabaseError

    def _start_again(self, end: int) -> None:
        """Fill the table again: it was damaged, and all is in the journal."""
        self._base.close()
        remove_table(self._journal)
        self._open(0)
        self._catch_up(end)

    def _catch_up(self, end: int) -> None:
        for rows, stop in _letters(self._journal, _covered(self._base), end):
            self._insert(rows, stop)

    def has(self, key: tuple[str, int, int]) -> bool:
        try:
            return _has(self._base, key)
        except sqlite3.DatabaseError:
            self._start_again(FOREVER)
            return _has(self._base, key)

    def add(self, letters: Sequence[tuple[str, int, int, str]], covered: int) -> None:
        """Note letters, as (origin, partition, position, reason), that lie before `covered`."""
        try:
            self._insert(letters, covered)
        except sqlite3.DatabaseError:
            self._start_again(covered)

    def _insert(self, letters: Sequence[tuple[str, int, int, str]], covered: int) -> None:
        self._base.execute("BEGIN")
        self._base.executemany(
            "INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", [letter[:3] for letter in letters]
        )
        self._base.executemany(
            "INSERT INTO reasons VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET letters = letters + excluded.letters",
            Counter(kind_of(letter[3]) for letter in letters).items(),
        )
        self._base.execute("INSERT OR REPLACE INTO covered VALUES (1, ?)", (covered,))
        self._base.execute("COMMIT")

    def close(self) -> None:
        self._base.close()
        # Not synced: if it is lost, the table is filled again.
        fresh = _check_file(self._journal).with_suffix(".unfinished")
        fresh.touch(FILE)
        fresh.write_text(_checksum(self._journal))
        fresh.replace(_check_file(self._journal))


def is_dead_letters(path: Path) -> bool:
    """Return whether a journal is that of the dead letters of another."""
    return table_file(path).exists()


def remove_table(journal: Path) -> None:
    """Remove the table of the letters; who opens them next fills it again."""
    for file in (*_table_files(journal), _check_file(journal)):
        file.unlink(missing_ok=True)


def table_damage(journal: Path) -> str | None:
    """Return how the table of the letters differs from them, None if it does not."""
    if _damaged(journal):
        return "the table of the letters is not as it was closed"
    try:
        with closing(_read_only(journal)) as base:
            base.execute("BEGIN")
            covered, begin = _covered(base), Reader(journal).partition(0).begin
            reasons: Counter[str] = Counter()
            for rows, _ in _letters(journal, begin, covered):
                reasons.update(kind_of(row[3]) for row in rows)
                if not all(_has(base, row[:3]) for row in rows):
                    return "a letter is missing from the table"
            (letters,) = base.execute("SELECT count(*) FROM seen").fetchone()
            if begin:  # the table knows those, too, that were removed since
                return None
            if letters != reasons.total() or dict(reasons) != dict(base.execute(_REASONS)):
                return "the table does not have the letters that are there"
    except sqlite3.DatabaseError as error:
        return f"the table of the letters is damaged: {error}"
    return None


def dead_counts(path: Path | str) -> dict[str, int]:
    """Return how many dead letters a journal has, by kind of reason, without reading them."""
    journal = dead_folder(Path(path))
    if not description_file(journal).exists():
        return {}
    counts: Counter[str] = Counter()
    covered = 0
    try:
        if _damaged(journal):
            raise sqlite3.DatabaseError
        with closing(_read_only(journal)) as base:
            base.execute("BEGIN")
            counts.update(dict(base.execute(_REASONS)))
            covered = _covered(base)
    except (sqlite3.DatabaseError, TypeError):
        counts.clear()  # gone or damaged: all is in the journal
    for rows, _ in _letters(journal, covered, FOREVER):
        counts.update(kind_of(row[3]) for row in rows)
    return dict(counts)


_VALUES = (
    (re.compile(r", not .*$", re.DOTALL), ""),
    (re.compile(r"\d{4}-\d\d-\d\d[T0-9:.+ ]*\d"), "…"),
)


def kind_of(reason: str) -> str:
    """Return a reason without the values in it: a million bad records have few reasons.

    Example:
        >>> kind_of('column "amount": expected a number, not "free"')
        'column "amount": expected a number'
    """
    for pattern, instead in _VALUES:
        reason = pattern.sub(instead, reason)
    return reason


def _letters(
    journal: Path, start: int, end: int
) -> Iterator[tuple[list[tuple[str, int, int, str]], int]]:
    """Yield the letters in the journal, batch by batch, each with the position after it."""
    reader = Reader(journal).partition(0)
    for part in reader.read(
        max(start, reader.begin), end, ["origin", "partition", "position", "reason"]
    ):
        if part.batch is not None:
            yield (
                list(zip(*(column.to_pylist() for column in part.batch.columns), strict=True)),
                part.stop,
            )


def _read_only(journal: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(table_file(journal)))}?mode=ro", uri=True)


def _has(base: sqlite3.Connection, key: tuple[str, int, int]) -> bool:
    query = "SELECT 1 FROM seen WHERE origin = ? AND partition = ? AND position = ?"
    return base.execute(query, key).fetchone() is not None


def _covered(base: sqlite3.Connection) -> int:
    row = base.execute("SELECT position FROM covered WHERE one = 1").fetchone()
    if row is not None and not isinstance(row[0], int):
        raise sqlite3.DatabaseError("the table does not say how far it goes")
    return 0 if row is None else int(row[0])


def table_file(journal: Path) -> Path:
    return journal / "seen.sqlite"


def _table_files(journal: Path) -> list[Path]:
    file = table_file(journal)
    return [file.with_name(file.name + suffix) for suffix in ("", "-wal", "-shm")]


# its checksum


def _check_file(journal: Path) -> Path:
    return journal / "seen.check"


def _checksum(journal: Path) -> str:
    """Return the checksum of the table, with what is not in its main file yet."""
    digest = xxhash.xxh3_64()
    for file in _table_files(journal)[:2]:
        with contextlib.suppress(FileNotFoundError):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _as_it_was_closed(journal: Path) -> bool:
    """Tell whether the table was closed, and is as it was then."""
    try:
        return _check_file(journal).read_bytes() == _checksum(journal).encode()
    except FileNotFoundError:
        return False


_compared: dict[Path, tuple[object, bool]] = {}


def _damaged(journal: Path) -> bool:
    """Tell whether the table was closed, and is not as it was then; it is read once."""
    try:
        stat = _check_file(journal).stat()
        found = table_file(journal).stat()
    except FileNotFoundError:
        return False  # someone has it open, or it is gone
    now = (stat.st_mtime_ns, stat.st_ino, found.st_mtime_ns, found.st_size, found.st_ino)
    known, damaged = _compared.get(journal, (None, False))
    if known != now:
        damaged = not _as_it_was_closed(journal) and _check_file(journal).exists()
        _compared[journal] = (now, damaged)
    return damaged
