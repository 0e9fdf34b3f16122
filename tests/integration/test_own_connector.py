"""A connector of another package: found by its entry point, used in Python, YAML, a plan and a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.errors import InvalidOption, NotLoadable
from millstream.flow import connector
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.journal import journal_at
from millstream.journal.kinds.files.layout import dead_folder
from millstream.plan.draw import tree
from millstream.plan.groups import plan
from millstream.spark.flow_run import FlowRun, Options
from millstream.spark.io.targets import SinkContext, Target, open_target
from millstream.testing.connectors import OriginCase, check_origin, check_target
from support.letters import letters, lines
from support.letters.target import read

YAML = """
name: post
sources:
  words:
    lines: words.txt
stages:
  long:
    from: words
    sql: SELECT * FROM words WHERE length(line) > 3
sinks:
  out:
    from: long
    letters: out
    greeting: Dear reader
"""


def install(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Let entry points be found as if packages that have them were installed."""
    more = [EntryPoint(f"one_{n}", value, connector.GROUP) for n, value in enumerate(values)]
    known = entry_points(group=connector.GROUP)
    monkeypatch.setattr(connector, "entry_points", lambda **_: EntryPoints([*known, *more]))
    forget()


def forget() -> None:
    for found in (connector.sources, connector.targets, connector._installed):
        found.cache_clear()


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    forget()


def python() -> ms.Flow:
    flow = ms.Flow("post")
    words = flow.source("words", lines("words.txt"))
    long = words.sql("long", "SELECT * FROM words WHERE length(line) > 3")
    long.sink("out", letters("out", "Dear reader"))
    return flow


def loaded(tmp_path: Path) -> ms.Flow:
    file = tmp_path / "post.yaml"
    file.write_text(YAML)
    return ms.load(file)


def test_it_is_the_same_in_python_and_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "support.letters:connector")
    assert loaded(tmp_path) == python()
    (tmp_path / "post.yaml").write_text(dump(python()))
    assert ms.load(tmp_path / "post.yaml") == python()


def test_it_is_described_and_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "support.letters:connector")
    (sink,) = describe(python())["sinks"]
    assert sink["target"] == {"kind": "letters", "path": "out", "greeting": "Dear reader"}
    assert "letters out" in tree(plan(python()))


def test_without_its_package_yaml_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(NotLoadable, match='has "lines", which means nothing here') as error:
        loaded(tmp_path)
    assert "files, inbox, kafka, rate, replay, reads" in str(error.value.hint)


def test_a_package_that_cannot_be_loaded_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, "support.nowhere:connector", "support.letters:lines")
    assert set(connector.sources()) == {"files", "inbox", "kafka", "rate", "replay"}
    assert "support.nowhere:connector" in caplog.text
    assert "support.letters:lines) is function" in caplog.text


def test_two_connectors_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "support.letters:connector", "support.letters_again:connector")
    with pytest.raises(InvalidOption, match='two connectors are called "letters"'):
        connector.targets()


@pytest.mark.spark
def test_it_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "support.letters:connector")
    (tmp_path / "words.txt").write_text("one\nthree\n\nseven\n")
    for _ in range(2):  # the second time it has nothing left to do
        run = FlowRun(spark, loaded(tmp_path), Options(tmp_path / "data", tmp_path))
        run.start()
        try:
            assert run.wait(timeout=300)
        finally:
            run.stop()
        assert read(tmp_path / "out") == [{"n": 1, "line": "three"}, {"n": 3, "line": "seven"}]


@dataclass
class Place:
    root: Path

    def open(self) -> Target:
        journal_at(self.letters).create(pa.schema([("n", pa.int64())]), partitions=1, time=None)
        context = SinkContext("post", "out", self.root, self.root, letters=self.letters)
        return open_target(letters("out"), context)

    @property
    def letters(self) -> Path:
        return self.root / "journal"

    def dead_letters(self) -> list[dict[str, Any]]:
        view = journal_at(dead_folder(self.letters)).reader().partition(0)
        parts = [part.batch for part in view.read(view.begin, view.end) if part.batch is not None]
        return [row for batch in parts for row in batch.to_pylist()]

    def rows(self) -> list[dict[str, Any]]:
        return [{"text": None, **row} for row in read(self.root / "out")]


@pytest.mark.spark
def test_its_target_keeps_to_the_contract(spark: SparkSession, tmp_path: Path) -> None:
    places = (Place(tmp_path / str(number)) for number in range(100))
    check_target(lambda: next(places), spark)


def test_its_origin_keeps_to_the_contract(tmp_path: Path) -> None:
    def make(folder: Path) -> OriginCase:
        found = [{"n": n, "line": f"line {n}"} for n in range(40_000) if n != 7]
        text = "\n".join("" if n == 7 else f"line {n}" for n in range(40_000))
        (folder / "words.txt").write_text(f"{text}\n{'x' * (5 << 20)}\n")
        huge = {"n": 40_000, "line": "x" * (5 << 20)}
        return OriginCase(lines("words.txt"), [*found, huge], refused=1, root=folder)

    check_origin(make, tmp_path)
