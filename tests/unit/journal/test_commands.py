from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millstream.cli.journal import app
from millstream.errors import JournalMissing, MillstreamError, SchemaConflict
from millstream.journal.base import Kind
from millstream.journal.kinds.files.dead import DeadLetters
from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.layout import data_file, index_file
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.retention import commit
from millstream.journal.kinds.files.writer import Writer


@pytest.fixture
def data(tmp_path: Path, schema: pa.Schema, batch: Any) -> Path:
    path = tmp_path / "flights" / "journals" / "departures"
    create(path, schema, time="at", partitions=2)
    with Writer.open(path, 0) as first, Writer.open(path, 1) as second:
        first.append("feed", 0, batch(1_000_000, 2_000_000, 3_000_000, names=["a", "b", "c"]))
        second.append("feed", 0, batch(4_000_000, names=["d"]))
        second.instruct(Kind.END_OF_STREAM)
    commit(path, "flights.hourly", [1, 1])
    with DeadLetters.open(path) as dead:
        dead.put("late:departures", 7, "late", {"name": "z"})
    return tmp_path


def run(data: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*words, "--data", str(data)])
    if isinstance(result.exception, MillstreamError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_journals_are_listed(data: Path) -> None:
    assert "flights.departures" in run(data, "ls")
    (found,) = json.loads(run(data, "ls", "--json"))
    assert (found["name"], found["rows"], found["dead"], found["lost"]) == (
        "flights.departures",
        4,
        {"late": 1},
        0,
    )


def test_a_damaged_journal_does_not_hide_the_others(data: Path, schema: pa.Schema) -> None:
    path = data / "flights" / "journals" / "harmed"
    create(path, schema)
    Writer.open(path).close()
    index_file(path / "p0000", 0).write_bytes(b"rubbish")
    listed = run(data, "ls")
    assert "flights.departures" in listed
    assert "flights.harmed: the header" in listed


@pytest.fixture
def engine(data: Path, schema: pa.Schema) -> Path:
    """The data folder of an engine with two jobs."""
    for job in ("flights", "parcels"):
        (data / "engine" / "jobs" / job / job).mkdir(parents=True)
    (data / "flights" / "journals").rename(
        data / "engine" / "jobs" / "flights" / "flights" / "journals"
    )
    create(data / "engine" / "jobs" / "parcels" / "parcels" / "journals" / "scans", schema)
    return data / "engine"


def test_the_journals_of_the_jobs_of_an_engine_are_found(engine: Path) -> None:
    found = json.loads(run(engine, "ls", "--json"))
    assert [one["name"] for one in found] == ["flights.departures", "parcels.scans"]
    (only,) = json.loads(run(engine, "ls", "--json", "--job", "parcels"))
    assert only["name"] == "parcels.scans"
    assert "4 rows" in run(engine, "show", "flights.departures")
    assert "sound; 4 rows" in run(engine, "verify", "flights.departures")
    assert run(engine, "repair", "flights.departures").endswith("nothing to repair\n")


def test_with_a_job_the_name_of_its_journal_is_enough(engine: Path) -> None:
    rows = lines(run(engine, "cat", "departures", "--job", "flights"))
    assert rows == lines(run(engine, "cat", "flights.departures", "--job", "flights"))
    assert len(rows) == 4
    assert len(lines(run(engine, "cat", "departures.dead", "--job", "flights"))) == 1
    with pytest.raises(JournalMissing, match=r"parcels\.departures") as told:
        run(engine, "cat", "departures", "--job", "parcels")
    assert "there are parcels.scans" in str(told.value.hint)


def test_an_engine_in_this_folder_is_found_without_data(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.rename(engine.parent / ".millstream-engine")
    monkeypatch.chdir(engine.parent)
    shown = CliRunner().invoke(app, ["ls"])
    assert "parcels.scans" in shown.output


def test_an_empty_folder_has_no_journals(tmp_path: Path) -> None:
    assert "no journals" in run(tmp_path, "ls")


def test_a_journal_is_shown_in_numbers(data: Path) -> None:
    shown = run(data, "show", "flights.departures")
    for word in ("4 rows", "feed", "ended", "flights.hourly", "dead letters  1  late"):
        assert word in shown
    found = json.loads(run(data, "show", "flights.departures", "--json"))
    assert [part["running_max"] for part in found["partitions"]] == [3_000_000, 4_000_000]
    assert found["readers"] == [
        {"reader": "flights.hourly", "positions": {"0": 1, "1": 1}, "lag": 3}
    ]


def test_rows_are_printed_as_json_lines(data: Path) -> None:
    rows = lines(run(data, "cat", "flights.departures"))
    assert [row["name"] for row in rows] == ["a", "b", "c", "d"]
    assert rows[0]["at"] == "1970-01-01T00:00:01+00:00"


def test_rows_are_printed_from_a_position_and_up_to_a_number(data: Path) -> None:
    asked = (
        "cat",
        "flights.departures",
        "--partition",
        "0",
        "--from",
        "1",
        "--limit",
        "1",
        "--columns",
        "name",
    )
    assert lines(run(data, *asked)) == [{"name": "b"}]
    placed = lines(run(data, *asked, "--positions"))
    assert placed == [{"_partition": 0, "_position": 1, "name": "b"}]
    assert len(lines(run(data, "cat", "flights.departures", "--limit", "4"))) == 4
    assert run(data, "cat", "flights.departures", "--limit", "0") == ""


def test_dead_letters_are_printed(data: Path) -> None:
    (letter,) = lines(run(data, "cat", "flights.departures.dead"))
    assert (letter["reason"], letter["position"], json.loads(letter["record"])) == (
        "late",
        7,
        {"name": "z"},
    )


def test_unknown_names_and_columns_are_told_with_those_that_are_there(
    data: Path, schema: pa.Schema
) -> None:
    with pytest.raises(JournalMissing) as caught:
        run(data, "cat", "flights.arrivals")
    assert "flights.departures" in str(caught.value.hint)
    with pytest.raises(SchemaConflict, match='"delay"'):
        run(data, "cat", "flights.departures", "--columns", "name,delay")
    create(data / "flights" / "journals" / "clean", schema)
    with pytest.raises(JournalMissing, match="no dead letters"):
        run(data, "cat", "flights.clean.dead")


def test_damage_is_told_with_its_place_and_mended(data: Path) -> None:
    assert "sound" in run(data, "verify", "flights.departures")
    path = data / "flights" / "journals" / "departures"
    entry = next(Reader(path).partition(0).entries(0, 1))
    raw = bytearray(entry.file.read_bytes())
    raw[entry.offset + 30] ^= 1
    data_file(path / "p0000", 0).write_bytes(raw)

    told = run(data, "verify", "flights.departures", code=1)
    assert f"byte {entry.offset}" in told.replace("\n", "")
    found = json.loads(run(data, "verify", "flights.departures", "--json", code=1))
    assert [damage["position"] for damage in found["damages"]] == [0]

    assert "1 place repaired" in run(data, "repair", "flights.departures")
    assert "nothing to repair" in run(data, "repair", "flights.departures")
    assert "3 positions lost before" in run(data, "verify", "flights.departures")
    assert "lost          3 positions" in run(data, "show", "flights.departures")
    assert "positions 0 to 2 are lost" in run(data, "cat", "flights.departures")
