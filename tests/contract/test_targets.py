"""Every target publishes each epoch once: the checks that authors of connectors run on theirs."""

from __future__ import annotations

import gc
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console as Terminal

import millstream as ms
from millstream.connectors.kafka import KafkaTopic
from millstream.errors import MillstreamError, TakenOver
from millstream.flow import connector
from millstream.flow.schema import Schema
from millstream.flow.targets import TargetSpec
from millstream.joblog import Decided, JobLog
from millstream.journal import journal_at
from millstream.journal.kinds.files.layout import dead_folder
from millstream.spark.io.journal_target import JournalTarget
from millstream.spark.io.targets import Epoch, SinkContext, Target, Withdrawing, open_target
from millstream.storage import Folder
from millstream.testing.connectors import TARGET_CHECKS, check_target
from millstream.testing.connectors.hostile import COLUMNS, NAMES
from millstream.testing.connectors.targets import Trial, some, trial
from support import links
from support.engines import open_files

pytestmark = pytest.mark.spark

_numbers = count()


@dataclass
class Place:
    """A target of ours, opened as a flow does it."""

    root: Path
    spark: SparkSession
    spec: TargetSpec
    terminal: Terminal | None = None

    def open(self, log: JobLog | None = None, host: str = "group") -> Target:
        # The sinks of a flow may be in one database: their names tell them apart.
        name, letters = f"out_{self.root.name}", letters_beside(self.root)
        folder = self.root / host
        context = SinkContext("flow", name, self.root, folder, self.terminal, letters, log)
        return open_target(self.spec, context)

    def dead_letters(self) -> list[dict[str, Any]]:
        return dead_letters(letters_beside(self.root))


def letters_beside(root: Path) -> Path:
    """Return a journal that takes the dead letters of a sink."""
    path = root / "letters"
    journal_at(path).create(pa.schema([("n", pa.int64())]), partitions=1, time=None)
    return path


@dataclass
class FolderPlace(Place):
    @property
    def folder(self) -> Path:
        return self.root / self.spec.place

    def rows(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob(f"*.{self.spec.word()}"))
        if self.spec.word() == "parquet":
            return [row for file in files for row in _rows(pq.read_table(file))]
        if self.spec.word() == "jsonl":
            lines = [line for file in files for line in file.read_text().split("\n") if line]
            empty = dict.fromkeys(NAMES)
            return [{**empty, **json.loads(line, parse_float=str)} for line in lines]
        if not files:
            return []
        columns = ", ".join(f"{name} string" for name in NAMES)
        reader = self.spark.read.schema(columns).option("header", True)
        frame = reader.option("multiLine", True).csv([str(file) for file in files])
        return [row.asDict() for row in frame.collect()]


@dataclass
class PostgresPlace(Place):
    def rows(self) -> list[dict[str, Any]]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.spec.url, row_factory=dict_row) as connection:  # type: ignore[attr-defined]
            return connection.execute(f"SELECT * FROM {self.spec.place}").fetchall()  # type: ignore[arg-type]


@dataclass
class MemoryPlace(Place):
    """Memory lives as long as the process, so the next one in it is the same."""

    target: Target | None = None

    def open(self, log: JobLog | None = None, host: str = "group") -> Target:
        self.target = self.target or super().open(log, host)
        return self.target

    def rows(self) -> list[dict[str, Any]]:
        return self.target.rows()  # type: ignore[union-attr]


@dataclass
class ConsolePlace(Place):
    shown: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        self.terminal = Terminal(file=self.shown, width=3000)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"n": int(n)} for n in re.findall(r"^│ +(\d+) +│", self.shown.getvalue(), re.MULTILINE)
        ]


@dataclass
class OutboxPlace(Place):
    def __post_init__(self) -> None:
        links.declare(self.root / "data", COLUMNS, partitions=2, key=None, time=None)

    def rows(self) -> list[dict[str, Any]]:
        return _read(links.journal(self.root / "data"))


@dataclass
class TopicPlace(Place):
    def rows(self) -> list[dict[str, Any]]:
        from support.kafka import consume

        assert isinstance(self.spec, KafkaTopic)
        values = [one.value() for one in consume(self.spec.connection.servers, self.spec.topic)]
        return [{**dict.fromkeys(NAMES), **json.loads(one, parse_float=str)} for one in values]


@dataclass
class JournalPlace:
    path: Path

    def __post_init__(self) -> None:
        schema = Schema.parse(COLUMNS).arrow()
        journal_at(self.path).create(schema, partitions=2, time=None, written_by="group")

    def open(self, log: JobLog | None = None, host: str = "") -> Target:
        return JournalTarget(self.path, key=None, log=log)

    def rows(self) -> list[dict[str, Any]]:
        return _read(self.path)

    def dead_letters(self) -> list[dict[str, Any]]:
        return dead_letters(self.path)


def dead_letters(path: Path) -> list[dict[str, Any]]:
    folder = dead_folder(path)
    return _read(folder) if folder.exists() else []


def _rows(table: Any) -> list[dict[str, Any]]:
    """Return rows with their moments in microseconds: Python has none after the year 9999."""
    if "text" in table.column_names:
        place = table.column_names.index("at")
        table = table.set_column(place, "at", table.column(place).cast(pa.int64()))
    return table.to_pylist()


def _read(path: Path) -> list[dict[str, Any]]:
    reader = journal_at(path).reader()
    views = [reader.partition(number) for number in range(reader.description.partitions)]
    parts = [part for view in views for part in view.read(view.begin, view.end)]
    batches = [part.batch for part in parts if part.batch is not None]
    return [row for batch in batches for row in _rows(pa.table(batch))]


def _topic(servers: str) -> KafkaTopic:
    from support.kafka import new_topic

    name = new_topic(servers, 3, max_message_bytes=str(64 << 20))
    return ms.kafka_topic(name, servers=servers, key="text")


@pytest.fixture(
    params=[
        "parquet",
        "jsonl",
        "csv",
        pytest.param("postgres", marks=pytest.mark.postgres),
        "memory",
        "console",
        "outbox",
        "journal",
        pytest.param("kafka_topic", marks=pytest.mark.kafka),
    ]
)
def make(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Callable[[], Any]:
    kind = request.param
    url = request.getfixturevalue("postgres") if kind == "postgres" else ""
    servers = request.getfixturevalue("kafka") if kind == "kafka_topic" else ""

    def made() -> Any:
        number = next(_numbers)
        root = tmp_path / str(number)
        match kind:
            case "journal":
                return JournalPlace(root)
            case "postgres":
                return PostgresPlace(root, spark, ms.postgres(url, table=f"contract_{number}"))
            case "memory":
                return MemoryPlace(root, spark, ms.memory())
            case "console":
                return ConsolePlace(root, spark, ms.console(rows=5000))
            case "outbox":
                return OutboxPlace(root, spark, ms.outbox("data", links.TARGET))
            case "kafka_topic":
                return TopicPlace(root, spark, _topic(servers))
        return FolderPlace(root, spark, getattr(ms, kind)("out"))

    made.kind = kind  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("check", TARGET_CHECKS)
def test_every_target_keeps_to_the_contract(
    spark: SparkSession, make: Callable[[], Any], check: Callable[[Trial], None]
) -> None:
    shown = make.kind == "console"  # type: ignore[attr-defined]
    with trial(make, spark, at_least_once=shown, huge_bytes=1000 if shown else 10 << 20) as one:
        check(one)


def test_a_place_that_is_left_keeps_nothing_open(
    spark: SparkSession, make: Callable[[], Any]
) -> None:
    gc.collect()
    gc.disable()  # what is closed needs no collector
    try:
        with trial(make, spark) as one:
            found = []
            for _ in range(3):
                one.write(0, some(0))
                found.append(len(open_files()))
                one.renew()
    finally:
        gc.enable()
    # Spark opens connections of its own now and then; a client of Kafka has five files.
    assert found[2] < found[0] + 5, found


class Drowsy(JobLog):
    """The log of a driver that falls asleep right before it decides, or right after."""

    asleep: Callable[[], None] | None = None
    decides_first: bool = False

    def decide(self, key: str, decided: Decided) -> Decided | None:
        sleep, self.asleep = self.asleep, None
        if sleep is not None and not self.decides_first:
            sleep()
        found = super().decide(key, decided)
        if sleep is not None and self.decides_first:
            sleep()
        return found


class Drivers:
    """Two drivers of a job on two hosts, of which the second takes over while the first sleeps."""

    def __init__(self, place: Any, spark: SparkSession) -> None:
        self.place, self.spark = place, spark
        self.storage = Folder(place.root / "job")

    def drives(self, host: str) -> tuple[Target, Drowsy]:
        log = Drowsy(self.storage)
        log.claim(wait=lambda _: None)
        target = self.place.open(log, host)
        target.prepare(self.frame([]).schema)
        target.recover()
        return target, log

    def frame(self, rows: Any) -> Any:
        empty = [None] * (len(NAMES) - 3)
        return self.spark.createDataFrame([(*row, *empty) for row in rows], COLUMNS)

    def write(self, driver: tuple[Target, Drowsy], batch: int, rows: Any) -> None:
        epoch = Epoch("job", "group", "c1", batch, None, driver[1], f"offsets of {batch}")
        driver[0].write(self.frame(rows), epoch)

    def numbers(self) -> list[int]:
        return sorted(int(row["n"]) for row in self.place.rows())


@pytest.mark.parametrize("decides_first", [False, True], ids=["undecided", "decided"])
def test_a_driver_that_slept_while_another_took_over_adds_nothing(
    spark: SparkSession, make: Callable[[], Any], decides_first: bool
) -> None:
    place = make()
    if not isinstance(place, Place):
        return  # a journal of files is written on one host, under a lock
    drivers = Drivers(place, spark)
    first = drivers.drives("first")
    drivers.write(first, 0, some(0))
    seen: list[list[int]] = []

    def sleep() -> None:
        second = drivers.drives("second")
        # The same input, as the decision has its offsets; without one, whatever there is by now.
        drivers.write(second, 1, some(10))
        drivers.write(second, 2, some(20))
        seen.append(drivers.numbers())
        second[0].close()

    first[1].asleep, first[1].decides_first = sleep, decides_first
    try:
        drivers.write(first, 1, some(10))
        woke = None
    except MillstreamError as error:
        woke = error
    assert seen == [[0, 1, 2, 10, 11, 12, 20, 21, 22]]
    if make.kind != "console" or not decides_first:  # type: ignore[attr-defined]
        # A terminal shows again what was decided.
        assert drivers.numbers() == seen[0]
    assert decides_first or isinstance(woke, TakenOver)
    first[0].close()


def test_a_target_withdraws_exactly_if_its_description_says_so(
    spark: SparkSession, make: Callable[[], Any]
) -> None:
    place = make()
    if isinstance(place, Place):
        target = place.open()
        assert isinstance(target, Withdrawing) == (place.spec.reprocessing == "withdrawn")
        target.close()


def test_every_target_that_is_installed_is_checked(request: pytest.FixtureRequest) -> None:
    checked = {"parquet", "jsonl", "csv", "postgres", "memory", "console", "outbox", "kafka_topic"}
    assert set(connector.targets()) == checked


@dataclass
class Careless:
    """A target that forgets what it has published: the checks must find that."""

    found: list[dict[str, Any]] = field(default_factory=list)

    def open(self) -> Target:
        place = self

        class Forgetful(Target):
            def write(self, frame: Any, epoch: Epoch) -> int:
                rows = frame.toArrow().to_pylist()
                place.found += rows
                return len(rows)

        return Forgetful()

    def rows(self) -> list[dict[str, Any]]:
        return self.found


def test_the_checks_find_a_target_that_publishes_twice(spark: SparkSession) -> None:
    with pytest.raises(AssertionError, match="expected"):
        check_target(Careless, spark)
