from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream import ingest
from millstream.clock import ManualClock
from millstream.connectors.files import reading
from millstream.errors import AlreadyWriting, FileChanged, NotThere, SourceFailed, UnplaceableKey
from millstream.flow.stages import Source
from millstream.journal.base import Kind
from millstream.journal.kinds.files.writer import Writer
from support.ingest import (
    NOON,
    NOON_US,
    SCHEMA,
    Steps,
    all_rows,
    kinds_of,
    letters_of,
    rows_of,
    source,
)

DDL = SCHEMA.ddl


def event(name: str, n: int = 0, seconds: int = 0) -> str:
    return json.dumps({"name": name, "n": n, "at": str(NOON + timedelta(seconds=seconds))}) + "\n"


def settled(path: Path, text: str) -> Path:
    """Write a file that looks as if nobody had touched it for a while."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(0, (NOON_US - 10_000_000) * 1000))
    return path


def run(
    stage: Source, journal: Path, clock: ManualClock, steps: Steps | None = None
) -> ingest.Ingest:
    """Run a source to its end, or until its steps are used up, in this thread."""
    found = ingest.open(stage, journal, clock=clock)
    found.pause = steps or Steps(clock)  # type: ignore[method-assign]
    if found._work is not None and not found.ended:
        found._run(found._work)
    found.check()
    return found


def names(journal: Path) -> list[str]:
    return sorted(row["name"] for row in all_rows(journal))


# Files


def test_files_come_in_order_and_the_stream_ends(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    settled(tmp_path / "in/2.jsonl", event("c"))
    settled(tmp_path / "in/1.jsonl", event("a") + event("b"))
    statistics = run(
        source(ms.files(tmp_path / "in", DDL, format="jsonl")), journal, clock
    ).statistics()
    assert [row["name"] for row in rows_of(journal)] == ["a", "b", "c"]
    assert kinds_of(journal) == [Kind.ROWS, Kind.ROWS, Kind.END_OF_STREAM]
    assert (statistics.rows, statistics.refused, statistics.ended, statistics.error) == (
        3,
        0,
        True,
        None,
    )
    assert statistics.bytes > 0


def test_bad_records_go_to_the_dead_letters_with_reason_and_place(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    settled(tmp_path / "in/a.jsonl", event("a") + "{\n" + '{"name": "no time"}\n' + event("d"))
    assert (
        run(source(ms.files(tmp_path / "in", DDL, format="jsonl")), journal, clock)
        .statistics()
        .refused
        == 2
    )
    assert names(journal) == ["a", "d"]
    assert [(one["origin"], one["position"], one["reason"]) for one in letters_of(journal)] == [
        (
            "file:a.jsonl",
            1,
            "malformed record: expecting property name enclosed in double quotes at character 2",
        ),
        ("file:a.jsonl", 2, 'time "at" is null'),
    ]


def test_a_source_that_has_ended_does_nothing_when_it_is_started_again(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    settled(tmp_path / "in/a.jsonl", event("a"))
    stage = source(ms.files(tmp_path / "in", DDL, format="jsonl"))
    run(stage, journal, clock)
    assert run(stage, journal, clock).statistics().ended
    assert kinds_of(journal) == [Kind.ROWS, Kind.END_OF_STREAM]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("key", [None, "name"])
def test_a_source_stopped_anywhere_goes_on_without_losing_or_repeating(
    tmp_path: Path,
    journal: Path,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    key: str | None,
) -> None:
    monkeypatch.setattr(reading, "CHUNK", 3)
    lines = [event(f"{n:03}", n) if n % 5 else "{\n" for n in range(40)]
    for file in range(3):
        settled(tmp_path / f"in/{file}.jsonl", "".join(lines[file::3]))
    stage = source(ms.files(tmp_path / "in", DDL, format="jsonl"), key=key, partitions=partitions)
    for stop_after in [*range(8), None]:
        # Blocks are cut elsewhere each time: what is repeated must not depend on them.
        monkeypatch.setattr(reading, "CHUNK", 2 + (stop_after or 0) % 3)
        run(stage, journal, clock, Steps(clock, stop_after))
    assert names(journal) == [f"{n:03}" for n in range(40) if n % 5]
    assert len(letters_of(journal)) == 8
    assert all(kinds_of(journal, number)[-1] is Kind.END_OF_STREAM for number in range(partitions))


def test_rows_of_a_key_stay_together_and_in_order(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    settled(
        tmp_path / "in/a.jsonl",
        "".join(event(name, n) for n in range(10) for name in ("JFK", "LGA", "EWR")),
    )
    run(
        source(ms.files(tmp_path / "in", DDL, format="jsonl"), key="name", partitions=3),
        journal,
        clock,
    )
    assert [(row["name"], row["n"]) for row in rows_of(journal, 1)] == [
        ("LGA", n) for n in range(10)
    ]
    assert [row["n"] for row in rows_of(journal, 2) if row["name"] == "EWR"] == list(range(10))
    assert rows_of(journal, 0) == []


def test_a_source_that_follows_takes_what_appears_and_what_grows(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    path = settled(tmp_path / "in/a.jsonl", event("a"))
    steps = Steps(clock, stop_after=30)
    things: list[Callable[[], object]] = [
        lambda: settled(path, event("a") + event("b")),
        lambda: settled(tmp_path / "in/sub/b.jsonl", event("c")),
        lambda: settled(tmp_path / "in/sub/b.jsonl", event("c") + event("d")),
    ]
    steps.between = lambda: things.pop(0)() if things else None  # type: ignore[return-value]
    found = run(
        source(ms.files(tmp_path / "in", DDL, format="jsonl", follow=True)),
        journal,
        clock,
        steps,
    )
    assert [row["name"] for row in rows_of(journal)] == ["a", "b", "c", "d"]
    assert letters_of(journal) == []
    assert not found.statistics().ended


def test_a_line_that_is_being_written_is_taken_when_it_is_whole(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    path = tmp_path / "in/a.jsonl"
    path.parent.mkdir()
    whole = event("a") + event("b")

    def grow(text: str) -> None:
        path.write_text(text)
        os.utime(path, ns=(0, clock.now_us() * 1000))

    grow(whole[:-5])
    steps = Steps(clock, stop_after=12)
    steps.between = lambda: grow(whole)
    run(
        source(ms.files(tmp_path / "in", DDL, format="jsonl", follow=True)),
        journal,
        clock,
        steps,
    )
    assert [row["name"] for row in rows_of(journal)] == ["a", "b"]
    assert letters_of(journal) == []


def test_a_file_that_was_changed_is_noticed_and_left_alone(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    path = settled(tmp_path / "in/a.jsonl", event("a"))
    stage = source(ms.files(tmp_path / "in", DDL, format="jsonl", follow=True))
    run(stage, journal, clock, Steps(clock, 6))
    settled(path, event("z"))
    os.utime(path, ns=(0, NOON_US * 900))
    run(stage, journal, clock, Steps(clock, 6))
    run(stage, journal, clock, Steps(clock, 6))
    assert names(journal) == ["a"]
    (letter,) = letters_of(journal)
    assert letter["record"] == "a.jsonl"
    assert letter["reason"].startswith("the file was changed after it had been taken")


def test_files_that_are_not_there_are_missed_at_once(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    with pytest.raises(NotThere, match="does not exist"):
        ingest.open(source(ms.files("nowhere.csv", DDL)), journal, root=tmp_path, clock=clock)
    with pytest.raises(NotThere, match="recording"):
        ingest.open(source(ms.replay("nowhere.csv", DDL)), journal, root=tmp_path, clock=clock)


def test_paths_are_relative_to_the_root(tmp_path: Path, journal: Path) -> None:
    settled(tmp_path / "in/a.jsonl", event("a"))
    with ingest.open(source(ms.files("in", DDL, format="jsonl")), journal, root=tmp_path) as found:
        assert found.wait(120)
        found.check()
    assert names(journal) == ["a"]


# Replay


def recording(path: Path, seconds: list[int]) -> Path:
    table = pa.table(
        {"name": [str(s) for s in seconds], "at": [NOON + timedelta(seconds=s) for s in seconds]}
    )
    pq.write_table(table, path)
    return path


def test_a_replay_without_speed_is_taken_at_once(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    path, steps = recording(tmp_path / "r.parquet", [0, 3600, 7200]), Steps(clock)
    run(source(ms.replay(path, DDL)), journal, clock, steps)
    assert len(rows_of(journal)) == 3
    assert steps.waited == []


def test_a_replay_hands_out_rows_when_they_are_due(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    path, steps = recording(tmp_path / "r.parquet", [0, 10, 5, 20]), Steps(clock)
    run(source(ms.replay(path, DDL, speed=2.0)), journal, clock, steps)
    # In the recording's own order: the third row was late, and is so again.
    assert [row["name"] for row in rows_of(journal)] == ["0", "10", "5", "20"]
    assert sum(steps.waited) == pytest.approx(10, abs=1)


def test_a_replay_goes_on_at_its_pace_after_a_restart(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    path = recording(tmp_path / "r.parquet", list(range(0, 100, 10)))
    stage = source(ms.replay(path, DDL, speed=10.0), partitions=2)
    run(stage, journal, clock, Steps(clock, stop_after=6))
    taken = len(all_rows(journal))
    assert 0 < taken < 10
    clock.advance_us(3600 * 1_000_000)
    steps = Steps(clock)
    run(stage, journal, clock, steps)
    assert sorted(int(row["name"]) for row in all_rows(journal)) == list(range(0, 100, 10))
    assert 0 < sum(steps.waited) < 10


def test_a_row_that_will_be_refused_does_not_hold_up_a_replay(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    path, steps = recording(tmp_path / "r.parquet", [0, 10**9, 10]), Steps(clock)
    run(source(ms.replay(path, DDL, speed=1.0)), journal, clock, steps)
    assert sum(steps.waited) == pytest.approx(10, abs=1)


def test_a_recording_that_was_changed_is_refused(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    stage = source(ms.replay(recording(tmp_path / "r.parquet", [0, 10]), DDL, speed=1.0))
    run(stage, journal, clock, Steps(clock, stop_after=2))
    recording(tmp_path / "r.parquet", [0, 10, 20])
    with pytest.raises(SourceFailed, match="was changed after its replay had begun") as caught:
        run(stage, journal, clock)
    assert isinstance(caught.value.__cause__, FileChanged)


# Rate


def test_a_rate_counts_on_from_what_the_journal_has(journal: Path, clock: ManualClock) -> None:
    stage = source(ms.rate(10, rows=25))
    run(stage, journal, clock, Steps(clock, stop_after=20))
    taken = len(rows_of(journal))
    assert 0 < taken < 25
    run(stage, journal, clock)
    assert [row["value"] for row in rows_of(journal)] == list(range(25))
    assert kinds_of(journal)[-1] is Kind.END_OF_STREAM


def test_a_rate_keeps_its_pace(journal: Path, clock: ManualClock) -> None:
    steps = Steps(clock)
    run(source(ms.rate(1000, rows=5000), partitions=2), journal, clock, steps)
    assert sum(steps.waited) == pytest.approx(5, abs=0.1)
    rows = sorted(all_rows(journal), key=lambda row: row["value"])
    assert [row["value"] for row in rows] == list(range(5000))
    assert rows[4000]["at"] - rows[0]["at"] == timedelta(seconds=4)


# Inboxes, threads, errors


def test_an_inbox_has_no_thread_and_ends_when_its_journal_does(
    journal: Path, clock: ManualClock
) -> None:
    found = ingest.open(source(ms.inbox(DDL)), journal, clock=clock)
    found.start()
    assert found._thread is None
    assert not found.statistics().ended
    with Writer.open(journal, 0) as writer:
        writer.instruct(Kind.END_OF_STREAM)
    assert found.statistics().ended


def test_idle_partitions_of_a_source_are_levelled_while_it_waits(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    settled(tmp_path / "in/a.jsonl", event("LGA"))
    stage = source(
        ms.files(tmp_path / "in", DDL, format="jsonl", follow=True), key="name", partitions=3
    )
    steps = Steps(clock, stop_after=60)
    found = ingest.open(stage, journal, clock=clock)
    steps.between = lambda: found.feed.tick() if found.feed else None
    found.pause = steps  # type: ignore[method-assign]
    assert found._work is not None
    found._run(found._work)
    assert [kinds_of(journal, number) for number in range(3)] == [
        [Kind.IDLE],
        [Kind.ROWS],
        [Kind.IDLE],
    ]


def test_a_second_process_is_told_that_the_source_is_taken(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    stage = source(ms.rate(10, rows=25))
    ingest.declare(stage, journal)
    with Writer.open(journal, 0), pytest.raises(SourceFailed) as caught:
        run(stage, journal, clock)
    assert isinstance(caught.value.__cause__, AlreadyWriting)


def test_an_error_in_the_thread_surfaces_at_the_next_check(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(tmp_path / "in/a.jsonl", event("a"))

    def broken(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("millstream.connectors.files.origin.read", broken)
    with ingest.open(source(ms.files(tmp_path / "in", DDL, format="jsonl")), journal) as found:
        assert found.wait(120)
        with pytest.raises(SourceFailed, match='source "events" has stopped: the disk is gone'):
            found.check()
        assert found.statistics().error == "the disk is gone"
    Writer.open(journal, 0).close()


def test_a_thread_stops_promptly(journal: Path) -> None:
    with ingest.open(source(ms.rate(0.01)), journal) as found:
        time.sleep(0.05)
        began = time.monotonic()
        found.stop()
        assert time.monotonic() - began < 60
    found.check()


def test_a_key_without_a_place_is_refused_before_anything_runs(journal: Path) -> None:
    with pytest.raises(UnplaceableKey):
        ingest.open(source(ms.inbox("x double, at timestamp"), key="x", partitions=2), journal)


def test_what_a_source_asks_of_its_rows_is_kept_beside_its_journal(journal: Path) -> None:
    stage = source(ms.inbox(DDL), key="name", partitions=2)
    assert ingest.declare(stage, journal) == ingest.declared(journal)
    _, settings = ingest.declared(journal)
    assert (settings.rules.key, settings.idleness.lateness) == ("name", timedelta(minutes=1))


def test_a_line_that_is_nested_deeply_stops_no_source(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    deep = '{"name":' + "[" * 3000 + "]" * 3000 + "}\n"
    settled(tmp_path / "in" / "a.jsonl", event("a") + deep + event("b"))
    stage = source(ms.files(tmp_path / "in", DDL, format="jsonl"), time="at")
    run(stage, journal, clock)
    assert names(journal) == ["a", "b"]
    (letter,) = letters_of(journal)
    assert letter["reason"] == "malformed record: it is nested more than 200 deep"
    assert letter["record"] == deep.strip()


def test_a_folder_with_files_of_another_format_only_is_refused_with_what_is_there(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    for name in ("a.csv", "b.CSV", "c.csv.gz", "notes.txt", "_hidden.jsonl"):
        settled(tmp_path / "in" / name, "name,n,at\n")
    stage = source(ms.files(tmp_path / "in", DDL, format="jsonl"), time="at")
    with pytest.raises(NotThere, match='no file of format "jsonl"') as error:
        run(stage, journal, clock)
    assert "3 .csv" in str(error.value)
    assert 'format="csv"' in str(error.value.hint)
    settled(tmp_path / "in" / "d.jsonl", event("a"))
    run(stage, journal, clock)
    assert names(journal) == ["a"]


def test_an_empty_folder_is_an_end_and_not_a_mistake(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    (tmp_path / "in").mkdir()
    assert run(source(ms.files(tmp_path / "in", DDL, format="jsonl")), journal, clock).ended


def test_a_folder_that_is_followed_waits_for_its_format(
    tmp_path: Path, journal: Path, clock: ManualClock
) -> None:
    settled(tmp_path / "in" / "a.csv", "name,n,at\n")
    stage = source(ms.files(tmp_path / "in", DDL, format="jsonl", follow=True), time="at")
    run(stage, journal, clock, Steps(clock, 3))
    settled(tmp_path / "in" / "d.jsonl", event("a"))
    run(stage, journal, clock, Steps(clock, 9))
    assert names(journal) == ["a"]
