"""State in files of all kinds, there and back."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RunError
from millstream.spark.inspection.columns import layout_of
from millstream.spark.inspection.importing import differences
from millstream.spark.inspection.table_files import kind_of, read, writing

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=5)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
#: Columns that every kind of file holds, and those that CSV cannot.
PLAIN: dict[str, tuple[pa.DataType, Any]] = {
    "k": (pa.string(), TEXTS),
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "mean": (pa.float64(), st.floats()),
    "yes": (pa.bool_(), st.booleans()),
    "at": (pa.timestamp("us", tz="UTC"), TIMES),
}
NESTED: dict[str, tuple[pa.DataType, Any]] = {
    "raw": (pa.binary(), st.binary(max_size=5)),
    "tags": (pa.list_(pa.float64()), st.lists(st.none() | st.floats(), max_size=3)),
    "last": (
        pa.struct([("at", PLAIN["at"][0]), ("v", pa.int64())]),
        st.fixed_dictionaries({"at": st.none() | TIMES, "v": st.none() | st.integers(0, 9)}),
    ),
}


def table_of(columns: dict[str, tuple[pa.DataType, Any]], data: st.DataObject) -> pa.Table:
    row = st.fixed_dictionaries({n: st.none() | values for n, (_, values) in columns.items()})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    return pa.Table.from_pylist(rows, pa.schema([(n, kind) for n, (kind, _) in columns.items()]))


def written(file: Path, table: pa.Table) -> Path:
    with file.open("wb") as opened, writing(file, opened, table.schema) as write:
        write(table)
    return file


def texts(table: pa.Table) -> str:
    return str(table.to_pylist())  # NaN is NaN here


@given(data=st.data(), kind=st.sampled_from(["parquet", "jsonl", "csv"]))
def test_what_is_written_is_read_with_its_types(
    data: st.DataObject, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = table_of(PLAIN if kind == "csv" else PLAIN | NESTED, data)
    file = written(tmp_path_factory.getbasetemp() / f"state.{kind}", table)
    found = read(file, table.schema)
    assert found.schema.equals(table.schema)
    assert texts(found) == texts(table)


def test_a_file_that_says_nothing_by_its_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no file of state by its name") as refused:
        kind_of(tmp_path / "state.json")
    assert "let its name end with .parquet, .jsonl, .csv" in str(refused.value.__notes__)
    assert kind_of(tmp_path / "State.CSV") == ".csv"


def test_csv_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    table = pa.table({"k": ["a"], "tags": [["x"]]})
    with pytest.raises(RunError, match=r'CSV cannot hold column "tags", which is list'):
        written(tmp_path / "state.csv", table)


def test_values_that_do_not_fit_are_differences_and_lines_that_cannot_be_read_are_errors(
    tmp_path: Path,
) -> None:
    layout = layout_of(["k"], [["a"]], [{"n": 1, "mean": 0.5}])
    file = tmp_path / "state.jsonl"
    file.write_text('{"k": "a", "n": 1.5, "mean": "high", "more": 1}\n\n{"k": "b"}\n')
    assert differences(layout, read(file, layout.schema).schema) == [
        'column "more" is not known',
        'column "n" is double, and the state has int64',
        'column "mean" is string, and the state has double',
    ]
    mixed = '{"k": "a", "n": [1]}\n{"k": "b", "n": "x"}'
    for wrong, why in (
        ("[1]", "line 1 is not a JSON object"),
        ('{"k": ', "Expecting value"),
        (mixed, "cannot be read"),
    ):
        file.write_text(wrong)
        with pytest.raises(RunError, match=why):
            read(file, layout.schema)
    with pytest.raises(RunError, match="has no types, and the stage has no state yet"):
        read(file, None)
    file = tmp_path / "state.csv"
    file.write_text("k,n,mean\na,1.5,2\n")
    with pytest.raises(RunError, match=r"1\.5"):
        read(file, layout.schema)
    file.write_text("k,n,mean\na,2,nan\n")
    assert math.isnan(read(file, layout.schema).column("mean")[0].as_py())
