"""The kind `files` keeps what every journal promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from contract.check_journal import SCHEMA, Bench, JournalChecks
from millstream.journal.base import JournalReader, JournalWriter
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.writer import Writer


class FilesBench:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._stack = stack
        create(path, SCHEMA, partitions=2, time="at")

    def writer(self, partition: int) -> JournalWriter:
        return self._stack.enter_context(closing(Writer.open(self._path, partition)))

    def reader(self, partition: int) -> JournalReader:
        return Reader(self._path).partition(partition)


class TestFiles(JournalChecks):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        with ExitStack() as stack:
            yield FilesBench(tmp_path, stack)
