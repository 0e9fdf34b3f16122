"""Dead letters: what could not be taken, with the reason, once.

A journal of its own beside each journal. A letter is known by (origin, partition, position), so a
retry, or a second version that finds the same row late, adds nothing. Positions come in any order,
so the senders' sequences do not help: which letters are there is looked up in a small SQLite table,
derived from the journal. If it is lost, damaged or behind, it is filled again from there. Marks (`letters.py`)
are letters of an origin of their own, and the table knows which letters they are about. SQLite has
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
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import xxhash

from millstream.clock import Clock, SystemClock
from millstream.journal.base import FOREVER, DeadLetter
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.layout import (
    dead_folder,
    description_file,
    partition_folder,
    segment_bytes,
    segment_positions,
)
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.retention import trim_to
from millstream.journal.kinds.files.writer import Writer
from millstream.journal.letters import MARKS, Mark, as_letter, without_marks
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
_CLOSED = "SELECT reason, letters FROM closed"
TIMEOUT_S = 30.0
KEEP_BYTES = 2**30
"""How many bytes of letters a journal keeps, and a segment more; the oldest go first."""

Key = tuple[str, int, int]
Noted = tuple[str, int, int, str, Key | None]
"""What the table knows of a letter: its key, its reason, and the letter that it is about, if it is a mark."""


class DeadLetters:
    """The dead letters of a journal, open for writing by one process at a time; others wait."""

    def __init__(
        self,
        path: Path | str,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        timeout: float = TIMEOUT_S,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.path = dead_folder(Path(path))
        self._keep_bytes, self._disk, self._stored = keep_bytes, disk, False
        self._clock = clock or SystemClock()
        description = create(self.path, schema, time="at", disk=disk)
        self._writer = Writer(
            description,
            0,
            disk=disk,
            clock=self._clock,
            timeout=timeout,
            segment_bytes=keep_bytes // 8,
        )
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
        fresh = self._fresh(without_marks(letters))
        self._store(fresh, [self._clock.now_us()] * len(fresh))
        return len(fresh)

    def put_marks(self, marks: Sequence[Mark]) -> None:
        """Store marks whose numbers are new, durably: of two with one number the first counts."""
        fresh = self._fresh(as_letter(mark) for mark in marks)
        self._store(fresh, [self._clock.now_us()] * len(fresh))

    def _fresh(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Return the letters that are not there yet, each once."""
        given: dict[Key, DeadLetter] = {}
        for letter in letters:
            given.setdefault(letter.key, letter)
        return [letter for key, letter in given.items() if not self._seen.has(key)]

    def _store(self, fresh: Sequence[DeadLetter], times: Sequence[int]) -> None:
        """Store letters that are not there, with their times."""
        if fresh:
            self._stored = True
            batch = self._batch(fresh, times)
            self._writer.append(_SENDER, self._writer.highest(_SENDER) + 1, batch)
            self._seen.add(
                [_noted(*letter.key, letter.reason, letter.record) for letter in fresh],
                self._writer.end,
            )

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

    def trim(self) -> None:
        """Remove the oldest letters, if there are too many bytes of them; they wait no more."""
        folder = partition_folder(self.path, 0)
        firsts = segment_positions(folder)
        left = sum(segment_bytes(folder, first) for first in firsts)
        for first, following in pairwise(firsts):
            if left <= self._keep_bytes:
                break
            left -= segment_bytes(folder, first)
            for letters, _ in _letters(self.path, first, following):
                self._seen.forget(letters)
            trim_to(self.path, 0, following, disk=self._disk)

    def close(self) -> None:
        if self._stored:
            self.trim()
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
            "CREATE TABLE IF NOT EXISTS settled (origin TEXT, partition INTEGER, position INTEGER,"
            " PRIMARY KEY (origin, partition, position)) WITHOUT ROWID",
            "CREATE TABLE IF NOT EXISTS closed (reason TEXT PRIMARY KEY, letters INTEGER) WITHOUT ROWID",
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

    def has(self, key: Key) -> bool:
        try:
            return _has(self._base, key)
        except sqlite3.DatabaseError:
            self._start_again(FOREVER)
            return _has(self._base, key)

    def add(self, letters: Sequence[Noted], covered: int) -> None:
        """Note letters that lie before `covered`."""
        try:
            self._insert(letters, covered)
        except sqlite3.DatabaseError:
            self._start_again(covered)

    def _insert(self, letters: Sequence[Noted], covered: int) -> None:
        self._base.execute("BEGIN")
        self._base.executemany(
            "INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", [letter[:3] for letter in letters]
        )
        self._count("reasons", _reasons(letters))
        self._count("closed", Counter(kind_of(r) for r, of in _about(letters) if self._settle(of)))
        self._base.execute("INSERT OR REPLACE INTO covered VALUES (1, ?)", (covered,))
        self._base.execute("COMMIT")

    def forget(self, letters: Sequence[Noted]) -> None:
        """Note that letters are removed: they stay known, so that nobody puts them again."""
        gone = [one for one in letters if one[0] != MARKS and self._settle(one[:3])]
        self._count("closed", _reasons(gone))

    def _count(self, table: str, counts: Counter[str]) -> None:
        self._base.executemany(
            f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET letters = letters + excluded.letters",  # noqa: S608 (a name of ours)
            counts.items(),
        )

    def _settle(self, key: Key) -> bool:
        """Note that a letter waits no more; False if that is known."""
        return (
            self._base.execute("INSERT OR IGNORE INTO settled VALUES (?, ?, ?)", key).rowcount == 1
        )

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
            there = 0
            for rows, _ in _letters(journal, begin, covered):
                there += len(rows)
                reasons.update(_reasons(rows))
                if not all(_has(base, row[:3]) for row in rows):
                    return "a letter is missing from the table"
            (letters,) = base.execute("SELECT count(*) FROM seen").fetchone()
            if begin:  # the table knows those, too, that were removed since
                return None
            if letters != there or dict(reasons) != dict(base.execute(_REASONS)):
                return "the table does not have the letters that are there"
    except sqlite3.DatabaseError as error:
        return f"the table of the letters is damaged: {error}"
    return None


def dead_counts(path: Path | str) -> dict[str, int]:
    """Return how many dead letters a journal has had, by kind of reason, without reading them."""
    return dict(_counted(dead_folder(Path(path)))[0])


def dead_waiting(path: Path | str) -> dict[str, int]:
    """Return how many dead letters are neither replayed nor discarded, by kind of reason."""
    letters, closed = _counted(dead_folder(Path(path)))
    return dict(letters - closed)


def _counted(journal: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the letters of a journal, and those of them that wait no more, by kind of reason."""
    letters, closed = Counter[str](), Counter[str]()
    if not description_file(journal).exists():
        return letters, closed
    covered = 0
    known: set[Key] = set()
    with contextlib.ExitStack() as stack:
        base: sqlite3.Connection | None = None
        try:
            if _damaged(journal):
                raise sqlite3.DatabaseError
            base = stack.enter_context(closing(_read_only(journal)))
            base.execute("BEGIN")
            letters.update(dict(base.execute(_REASONS)))
            if _has_table(base, "closed"):
                closed.update(dict(base.execute(_CLOSED)))
            covered = _covered(base)
        except (sqlite3.DatabaseError, TypeError):
            base = None
            letters.clear()  # gone or damaged: all is in the journal
            closed.clear()
        for rows, _ in _letters(journal, covered, FOREVER):
            letters.update(_reasons(rows))
            for reason, of in _about(rows):
                if of not in known and not (base is not None and _is_settled(base, of)):
                    closed[kind_of(reason)] += 1
                known.add(of)
    return letters, closed


def _reasons(letters: Iterable[Noted]) -> Counter[str]:
    return Counter(kind_of(one[3]) for one in letters if one[0] != MARKS)


def _about(letters: Iterable[Noted]) -> Iterator[tuple[str, Key]]:
    """Yield the letters that marks are about, with their reasons."""
    for *_, reason, of in letters:
        if of is not None:
            yield reason, of


def _noted(origin: str, partition: int, position: int, reason: str, record: str) -> Noted:
    of = None
    if origin == MARKS:
        body = json.loads(record)
        found = body.get("replay") or body.get("discard")
        of = None if found is None else (found[0], found[1], found[2])
    return origin, partition, position, reason, of


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


def _letters(journal: Path, start: int, end: int) -> Iterator[tuple[list[Noted], int]]:
    """Yield the letters in the journal, batch by batch, each with the position after it."""
    reader = Reader(journal).partition(0)
    names = ["origin", "partition", "position", "reason", "record"]
    for part in reader.read(max(start, reader.begin), end, names):
        if part.batch is not None:
            # Records are large, and only those of marks are needed.
            records = part.batch.column("record")
            columns = [part.batch.column(name).to_pylist() for name in names[:4]]
            texts = [records[at].as_py() if o == MARKS else "" for at, o in enumerate(columns[0])]
            yield [_noted(*row) for row in zip(*columns, texts, strict=True)], part.stop


def _read_only(journal: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(table_file(journal)))}?mode=ro", uri=True)


def _has(base: sqlite3.Connection, key: Key) -> bool:
    query = "SELECT 1 FROM seen WHERE origin = ? AND partition = ? AND position = ?"
    return base.execute(query, key).fetchone() is not None


def _is_settled(base: sqlite3.Connection, key: Key) -> bool:
    query = "SELECT 1 FROM settled WHERE origin = ? AND partition = ? AND position = ?"
    return _has_table(base, "settled") and base.execute(query, key).fetchone() is not None


def _has_table(base: sqlite3.Connection, name: str) -> bool:
    """Tell whether a table is there: those of before marks are not filled again."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return base.execute(query, (name,)).fetchone() is not None


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
