"""Orders and answers between the driver and the sources of a version."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import convert
from pyspark.sql.streaming.datasource import ReadMaxRows

from millstream.journal import Kind
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.writer import Writer
from millstream.spark.io.control import Answer, Control, Orders, Question
from millstream.spark.io.ranges import Range
from millstream.spark.io.source import JournalStreamReader, Offset, ReadSettings, _kept
from millstream.switch.cut import WHOLE

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC"))])
ALL = ((None, None, 0, WHOLE),)


@pytest.fixture
def reader(tmp_path: Path) -> JournalStreamReader:
    """A source of two partitions, with times 10, 20, ... 60 and 15, 25, ... 65, that looks for orders."""
    create(tmp_path / "j", SCHEMA, partitions=2, time="at", written_by="inbox")
    for partition, start in enumerate((10, 15)):
        with Writer.open(tmp_path / "j", partition) as writer:
            times = pa.array(range(start, start + 60, 10), SCHEMA[0].type)
            writer.append("s", 0, pa.RecordBatch.from_arrays([times], schema=SCHEMA))
            writer.instruct(Kind.IDLE, 100)
    Control(tmp_path / "c").order(Orders())
    settings = ReadSettings(
        "j", str(tmp_path / "j"), ("at",), "{}", "at", 0, False, 100, 1, control=str(tmp_path / "c")
    )
    return JournalStreamReader(settings)


def told(reader: JournalStreamReader, orders: Orders) -> None:
    assert reader._control is not None
    reader._control.order(orders)


def following(reader: JournalStreamReader, start: Offset | None = None, rows: int = 100) -> Offset:
    known = reader.initialOffset() if start is None else start
    plain = (
        known
        if isinstance(known, dict)
        else {n: getattr(known, n) for n in Offset.__struct_fields__}
    )
    return convert(reader.latestOffset(plain, ReadMaxRows(rows)), Offset)


def test_without_a_switch_offsets_are_what_they_always_were(reader: JournalStreamReader) -> None:
    found = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    assert sorted(found) == ["floor", "journal", "positions", "starts"]
    assert found["floor"] == 100


def test_a_version_that_is_held_reads_nothing(reader: JournalStreamReader) -> None:
    told(reader, Orders(held=True, question=Question("report", 1, 10)))
    found = following(reader)
    assert (found.positions, found.starts, found.floor) == ((0, 0), 1, None)
    assert reader._control is not None
    assert reader._control.answered("j") is None


def test_a_version_begins_where_it_is_told_and_its_offset_says_so(
    reader: JournalStreamReader,
) -> None:
    told(reader, Orders(held=True))
    held = following(reader)
    told(reader, Orders(first={"j": (3, 2)}, owns=ALL))
    found = following(reader, held)
    assert found.first == (3, 2)
    assert found.owns == ALL
    assert [(one.partition, one.start) for one in read(reader, held, found)] == [(0, 3), (1, 2)]
    again = following(reader, found)
    assert [one for one in read(reader, found, again) if one.start < one.stop] == []


def read(reader: JournalStreamReader, before: Offset, after: Offset) -> list[Range]:
    tasks = reader.partitions(as_data(before), as_data(after))
    return [one for task in tasks for one in task.ranges]


def as_data(offset: Offset) -> dict[str, object]:
    return {name: getattr(offset, name) for name in Offset.__struct_fields__}


def test_a_source_reports_what_it_is_about_to_hand_out(reader: JournalStreamReader) -> None:
    first = following(reader, rows=2)
    told(reader, Orders(question=Question("report", 7, 10)))
    second = following(reader, first, rows=2)
    assert reader._control is not None
    assert reader._control.answered("j") == Answer("report", 7, (2, 2), False)
    # So it has not passed a cut that is put behind its report, however much a batch reads.
    told(reader, Orders(question=Question("confirm", 7, 10, bound=3, cut_us=40)))
    following(reader, second)
    answer = reader._control.answered("j")
    assert answer is not None
    assert not answer.passed


def test_a_source_that_confirms_stays_below_the_cut_until_it_knows_more(
    reader: JournalStreamReader,
) -> None:
    first = following(reader, rows=2)
    question = Question("confirm", 1, 10, bound=3, cut_us=40)
    told(reader, Orders(question=question))
    found = following(reader, first)
    # 40 and 45 are at or after the cut, and so is the floor of the IDLE record behind them.
    assert found.positions == (3, 3)
    assert found.floor == 30
    assert reader._control is not None
    answer = reader._control.answered("j")
    assert answer is not None
    assert not answer.passed
    assert following(reader, found).positions == (3, 3)
    told(reader, Orders(owns=((None, 40, 0, WHOLE),)))
    assert following(reader, found).positions == (7, 7)


def test_a_source_that_has_passed_the_cut_says_so_and_goes_on(reader: JournalStreamReader) -> None:
    first = following(reader, rows=8)
    told(reader, Orders(question=Question("confirm", 1, 10, bound=1, cut_us=20)))
    assert following(reader, first).positions == (7, 7)
    assert reader._control is not None
    answer = reader._control.answered("j")
    assert answer is not None
    assert answer.passed


def test_a_floor_past_the_cut_counts_as_passed(reader: JournalStreamReader) -> None:
    everything = following(reader)
    told(reader, Orders(question=Question("confirm", 1, 10, bound=7, cut_us=80)))
    following(reader, everything)
    assert reader._control is not None
    answer = reader._control.answered("j")
    assert answer is not None
    assert answer.passed


def test_a_source_that_is_stopped_reads_nothing_more_and_answers(
    reader: JournalStreamReader,
) -> None:
    first = following(reader, rows=2)
    told(reader, Orders(question=Question("report", 4, 10, stop=True)))
    assert following(reader, first).positions == first.positions
    assert reader._control is not None
    assert reader._control.answered("j") is not None


def test_a_closing_marker_lifts_the_floor_of_its_version_alone(reader: JournalStreamReader) -> None:
    told(reader, Orders(close_us=500))
    assert following(reader).floor == 500
    told(reader, Orders(close_us=50))
    assert following(reader).floor == 100


def test_new_orders_are_seen_at_once_and_old_ones_are_not_read_again(tmp_path: Path) -> None:
    driver, source = Control(tmp_path / "c"), Control(tmp_path / "c")
    driver.order(Orders(held=True))
    assert source.orders() is source.orders()
    driver.order(Orders(close_us=5))
    assert source.orders() == Orders(close_us=5)


def test_two_versions_have_the_rows_on_either_side_of_a_cut(reader: JournalStreamReader) -> None:
    assert reader._control is not None
    begin, both = convert(reader.initialOffset(), Offset), []
    for orders in (Orders(until_us=35), Orders(since_us=35)):
        told(reader, orders)
        found = following(reader)
        assert (found.since, found.until) == (orders.since_us, orders.until_us)
        tasks = reader.partitions(as_data(begin), as_data(found))
        assert {one.span for one in tasks} == {(orders.since_us, orders.until_us)}
        parts = [part.batch for one in tasks for part in _kept(reader.settings, one)]
        both.append(
            sorted(at for batch in parts for at in batch.column(0).cast("int64").to_pylist())
        )
    assert both == [[10, 15, 20, 25, 30], [35, 40, 45, 50, 55, 60, 65]]


def test_a_version_that_ends_at_a_cut_lifts_its_floor_no_further(
    reader: JournalStreamReader,
) -> None:
    told(reader, Orders(until_us=35, close_us=9_000_000))
    assert following(reader).floor == 35 + 1000
    told(reader, Orders(until_us=9_000_000))
    assert following(reader).floor == 100, "nor higher than its journal says"
