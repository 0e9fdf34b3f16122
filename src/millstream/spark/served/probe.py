"""Asks executors which of the driver's folders they see."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import RunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_THERE = "No module named 'millstream'"


@dataclass(frozen=True, slots=True)
class Seen:
    """The hosts that were asked, and by folder those that do not see it."""

    hosts: frozenset[str]
    blind: Mapping[Path, frozenset[str]]

    def shared(self, folder: Path) -> bool:
        """Tell whether all see a folder."""
        return not self.blind[folder]


def probe(spark: SparkSession, folders: Iterable[Path]) -> Seen:
    """Ask the executors that there are now whether they see a new file in each of the folders.

    Raises:
        RunError: They cannot run Millstream.
    """
    wanted = list(folders)
    files = {folder: folder / f".seen-{uuid.uuid4().hex}" for folder in wanted}
    for folder, file in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        file.touch()
    try:
        paths = [str(file.resolve()) for file in files.values()]
        # More tasks than executors have cores, so that each is likely to get some.
        tasks = 2 * max(2, spark.sparkContext.defaultParallelism)
        answers = _asked(spark, tasks, paths)
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)
    blind = {
        folder: frozenset(host for host, seen in answers if not seen[number])
        for number, folder in enumerate(wanted)
    }
    return Seen(frozenset(host for host, _ in answers), blind)


def _asked(spark: SparkSession, tasks: int, paths: list[str]) -> list[tuple[str, tuple[bool, ...]]]:
    rows = spark.sparkContext.parallelize(range(tasks), tasks)
    try:
        return rows.mapPartitions(partial(_look, paths)).collect()
    except Exception as error:
        if _NOT_THERE not in str(error):
            raise
        msg = "executors cannot import millstream"
        hint = "pack it with `millstream pack FILE`, and give the file as --executor-python"
        raise RunError(msg, hint=hint) from error


def _look(paths: list[str], _: Iterable[int]) -> Iterator[tuple[str, tuple[bool, ...]]]:
    """Return this host's name, and which of the files it sees."""
    yield socket.gethostname(), tuple(Path(path).exists() for path in paths)
