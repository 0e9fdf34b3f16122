"""Folders of runs as archives: without logs and paths of the machine they were made on, and back."""

from __future__ import annotations

import json
import re
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq

#: What stands in an archive for the folder that it was made of.
PLACE = "@PLACE@"
#: What a release writes for people, or for this one start.
_LEFT_OUT = (
    "*.log",
    "log4j2.properties",
    "errors.txt",
    "token",
    "engine.json",
    "__pycache__",
    "*.crc",
)


def results(folder: Path) -> dict[str, list[str]]:
    """Return the results of a flow by sink, as sorted texts."""
    sinks = sorted(path for path in (folder / "out").iterdir() if path.is_dir())
    return {sink.name: sorted(_lines(sink)) for sink in sinks}


def _lines(sink: Path) -> list[str]:
    found: list[str] = []
    for file in sink.iterdir():
        if file.suffix == ".parquet":
            rows = pq.read_table(file).to_pylist()
            found += [json.dumps(row, sort_keys=True, default=str) for row in rows]
        elif file.suffix == ".csv":
            found += file.read_text().splitlines()[1:]
        elif file.suffix == ".jsonl":
            found += [
                json.dumps(json.loads(line), sort_keys=True)
                for line in file.read_text().splitlines()
            ]
    return found


#: What later releases put beside the files of earlier ones: each is made when it is missing.
ADDED = frozenset({"audit.jsonl", "claims", "ended.json", "seen.check", "senders.copy"})


def names(folder: Path) -> set[str]:
    """Return the names of all files that a release keeps, with a star for each number and id."""
    found = set()
    for file in folder.rglob("*"):
        if not file.is_file() or _left_out(file) or file.name in ADDED:
            continue
        # What is in a state is Spark's, and in which files SQLite keeps a table is its own.
        name = re.sub(r"/state/.*", "/state", str(file.relative_to(folder)))
        name = re.sub(r"\.sqlite-\w+$", ".sqlite", name)
        if sink := re.match(r"out/(\w+)/", name):  # which sinks have a decision just then is chance
            name = name.replace(sink[1], "*")
        found.add(re.sub(r"[-_]*(?<![a-z])[0-9a-f]*[0-9][0-9a-f]*(?![a-z])[-_]*", "*", name))
    return {re.sub(r"\*+", "*", name) for name in found}


def save(folder: Path, archive: Path) -> None:
    """Make an archive of a folder, which is changed by it."""
    replace(folder, str(folder), PLACE)
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(folder, ".", filter=_member)


def _member(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if _left_out(Path(member.name)) or not (member.isfile() or member.isdir()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _left_out(path: Path) -> bool:
    # A folder of an engine is empty when it is started, and Spark's while a driver runs.
    return "scratch" in path.parts or any(path.match(pattern) for pattern in _LEFT_OUT)


def unpack(archive: Path, folder: Path) -> None:
    """Make the folder that an archive was made of, at another place."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    replace(folder, PLACE, str(folder))


def replace(folder: Path, old: str, new: str) -> None:
    """Replace a path in all files of a folder: Spark's list of state schemas has it, and an engine's store."""
    for file in sorted(folder.rglob("*")):
        if file.name == "jobs.sqlite":
            _replace_in_store(file, old, new)
        elif file.is_file() and old.encode() in (data := file.read_bytes()):
            file.write_bytes(data.replace(old.encode(), new.encode()))


def _replace_in_store(file: Path, old: str, new: str) -> None:
    with closing(sqlite3.connect(file)) as store, store:
        for table in ("jobs", "versions"):
            rows = store.execute(f"SELECT rowid, settings FROM {table}").fetchall()
            for number, settings in rows:
                changed = bytes(settings).replace(old.encode(), new.encode())
                store.execute(f"UPDATE {table} SET settings = ? WHERE rowid = ?", (changed, number))
    with closing(sqlite3.connect(file, isolation_level=None)) as store:
        # What was there before must not stay in free pages.
        store.execute("PRAGMA journal_mode=DELETE")
        store.execute("VACUUM")
