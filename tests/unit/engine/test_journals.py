"""Journals of jobs over HTTP: numbers, pages of rows, checksums; and the commands that ask for them."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner, Result

from millstream.cli.app import app
from millstream.errors import JournalMissing, MillstreamError
from millstream.journal import DeadLetter, journal_at
from support.links import TARGET, batch
from support.served import Served, serving

JOURNAL = "/jobs/f/journals/s"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An engine whose job "f" has a source with rows in both partitions, and a dead letter."""
    with serving(tmp_path) as served:
        served.deploy()
        for partition in (0, 1):
            inbox = served.engine._host.inbox("s", partition)
            assert (
                inbox.enqueue("till", range(3000), batch(3000 * partition, 3000 * (partition + 1)))
                == 3000
            )
        with journal_at(tmp_path / "f" / "journals" / "s").dead_letters() as dead:
            dead.put_all([DeadLetter("till", 7, "no row", "{}")])
        yield served


def _jsonl(content: bytes) -> pa.Table:
    return pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])


def _csv(content: bytes) -> pa.Table:
    return csv.read_csv(io.BytesIO(content))


def _parquet(content: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(content))


def run(served: Served, *words: str, token: str | None = None) -> Result:
    found = CliRunner().invoke(
        app,
        ["journal", *words, "--engine", served.server.url],
        env={"MILLSTREAM_TOKEN": token or served.server.token},
    )
    if isinstance(found.exception, MillstreamError):
        raise found.exception
    return found


def test_a_journal_is_shown_with_its_partitions_and_senders(served: Served) -> None:
    found = served.http.get(JOURNAL).json()
    assert [part["highest"] for part in found["partitions"]] == [{"till": 2999}] * 2
    assert (found["name"], found["dead"]) == ("s", {"no row": 1})
    assert served.http.get(f"{JOURNAL}.dead").json()["columns"]["reason"] == "string"


def test_rows_come_in_pages_from_a_position_on(served: Served) -> None:
    seen: list[int] = []
    start: int | None = 10
    while start is not None:
        query = {"partition": 1, "from": start, "limit": 700, "columns": "n"}
        page = served.http.get(f"{JOURNAL}/rows", params=query).json()
        assert len(page["rows"]) <= 700
        assert page["rows"][0]["position"] == start
        seen += [one["row"]["n"] for one in page["rows"]]
        start = page["next"]
    assert seen == list(range(3010, 6000))
    past = served.http.get(f"{JOURNAL}/rows?from=99999").json()
    assert (past["rows"], past["next"], past["end"]) == ([], None, 3000)


def test_rows_with_a_text_are_found_with_their_positions(served: Served) -> None:
    every = served.http.get(f"{JOURNAL}/rows?limit=10000").json()["rows"]
    wanted = [one for one in every if '"n":77' in json.dumps(one["row"], separators=(",", ":"))]
    assert len(wanted) > 2
    query: dict[str, str | int] = {"contains": '"N":77', "limit": len(wanted) - 1}
    page = served.http.get(f"{JOURNAL}/rows", params=query).json()
    assert page["rows"] == wanted[:-1]
    more = served.http.get(f"{JOURNAL}/rows", params={**query, "from": page["next"]}).json()
    assert (more["rows"], more["next"]) == (wanted[-1:], None)
    lines = served.http.get(f"{JOURNAL}/file", params={"contains": '"n":77'}).text.splitlines()
    assert [json.loads(line)["n"] for line in lines] == [one["row"]["n"] for one in wanted]


def test_rows_begin_at_an_event_time(served: Served) -> None:
    rows = served.http.get(f"{JOURNAL}/rows", params={"from": 5, "limit": 1}).json()["rows"]
    moment = rows[0]["row"]["at"].replace("+00:00", "Z")
    page = served.http.get(f"{JOURNAL}/rows", params={"since": moment, "limit": 2}).json()
    assert [one["row"]["at"] >= rows[0]["row"]["at"] for one in page["rows"]] == [True, True]
    assert page["rows"][0]["row"] == rows[0]["row"]
    late = served.http.get(f"{JOURNAL}/rows?since=2999-01-01T00:00:00Z").json()
    assert (late["rows"], late["next"]) == ([], None)
    wrong = served.http.get(f"{JOURNAL}/rows?since=2026-13-01T00:00:00Z")
    assert (wrong.status_code, "month" in wrong.json()["message"]) == (400, True)


@pytest.mark.parametrize("read", [_jsonl, _csv, _parquet])
def test_rows_are_downloaded_as_files(served: Served, read: Callable[[bytes], pa.Table]) -> None:
    query = {"from": 7, "limit": 30, "columns": "n", "format": read.__name__.strip("_")}
    found = served.http.get(f"{JOURNAL}/file", params=query)
    assert read(found.content).column("n").to_pylist() == list(range(7, 37))
    none = served.http.get(f"{JOURNAL}/file", params={**query, "from": 99999})
    assert none.status_code == 200


def test_an_answer_has_some_megabytes_at_most(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millstream.engine.http import journal_operations

    monkeypatch.setattr(journal_operations, "_PAGE_BYTES", 1000)
    page = served.http.get(f"{JOURNAL}/rows?limit=10000").json()
    assert 0 < len(page["rows"]) <= 1000
    assert page["next"] == len(page["rows"])


def test_rows_need_a_token_even_here_and_numbers_do_not(served: Served) -> None:
    served.http.headers.pop("authorization")
    assert served.http.get(JOURNAL).status_code == 200
    assert served.http.get(f"{JOURNAL}/rows").status_code == 401
    assert served.http.get(f"{JOURNAL}/file").status_code == 401
    assert served.http.post(f"{JOURNAL}/verify").status_code == 401


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/f/journals/x", 404),
        ("/jobs/f/journals/..%2Fs", 404),
        ("/jobs/f/journals/x.dead/rows", 404),
        ("/jobs/g/journals/s", 404),
        (f"{JOURNAL}/rows?partition=2", 404),
        (f"{JOURNAL}/rows?columns=x", 400),
        (f"{JOURNAL}/rows?limit=0", 400),
        (f"{JOURNAL}/rows?from=-1", 400),
    ],
)
def test_what_is_not_there_is_refused(served: Served, path: str, status: int) -> None:
    assert served.http.get(path).status_code == status


def test_verifying_reads_all_of_it_and_says_what_is_damaged(served: Served) -> None:
    assert served.http.post(f"{JOURNAL}/verify").json() == {
        **served.http.post(f"{JOURNAL}/verify").json(),
        "damages": [],
        "rows": 6000,
    }
    (file,) = (served.data / "f" / "journals" / "s" / "p0001").glob("*.arrow")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    (damage,) = served.http.post(f"{JOURNAL}/verify").json()["damages"]
    assert (damage["partition"], damage["file"]) == (1, file.name)


def test_commands_show_what_an_engine_has(served: Served) -> None:
    assert "6,000 rows" in run(served, "show", "f.s").stdout
    assert json.loads(run(served, "show", "s", "--job", "f", "--json").stdout)["rows"] == 6000
    lines = run(
        served, "cat", "s", "--job", "f", "--from", "2990", "--positions"
    ).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["_partition"], one["_position"], one["n"]) for one in found] == [
        *((0, n, n) for n in range(2990, 3000)),
        *((1, n, 3000 + n) for n in range(2990, 3000)),
    ]
    assert len(run(served, "cat", "f.s", "--limit", "1500").stdout.splitlines()) == 1500
    assert json.loads(run(served, "cat", "f.s.dead").stdout)["reason"] == "no row"
    assert "f.s: sound; 6,000 rows" in run(served, "verify", "f.s").stdout
    with pytest.raises(JournalMissing, match='job "f" has no journal "sales"'):
        run(served, "cat", "f.sales")


def test_cat_prints_the_same_with_and_without_an_engine(served: Served) -> None:
    def cat(*words: str) -> str:
        return CliRunner().invoke(app, ["journal", "cat", TARGET, *words]).stdout

    assert cat("--data", str(served.data)) == run(served, "cat", TARGET).stdout


def test_what_is_no_number_is_text(tmp_path: Path) -> None:
    import pyarrow as pa

    with serving(tmp_path) as served:
        served.deploy()
        journal = journal_at(tmp_path / "f" / "journals" / "odd")
        journal.create(pa.schema([("x", pa.float64()), ("b", pa.binary())]))
        with journal.writer() as writer:
            rows = {"x": [math.nan, math.inf, 1.5], "b": [b"a", None, b"\xff"]}
            writer.append("me", 0, pa.RecordBatch.from_pydict(rows, journal.describe().schema))
        page = served.http.get("/jobs/f/journals/odd/rows").json()
        assert [one["row"] for one in page["rows"]] == [
            {"x": "NaN", "b": "YQ=="},
            {"x": "Infinity", "b": None},
            {"x": 1.5, "b": "/w=="},
        ]


def test_the_docs_page_lists_them(served: Served) -> None:
    page = served.http.get("/docs").text
    for path in (f"{JOURNAL}/rows", f"{JOURNAL}/verify"):
        assert path.replace("/f/", "/{job}/").replace("/s/", "/{journal}/") in page
