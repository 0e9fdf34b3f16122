from __future__ import annotations

from pathlib import Path

import pytest

from millstream.engine.http import tail
from millstream.errors import RequestRefused


def test_the_last_lines_are_whole_ones(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("a\nb\nc\nhal")
    lines, place = tail.last(log, 2)
    assert lines == ["b", "c"]
    with log.open("a") as more:
        more.write("f\nd\n")
    assert tail.since(log, place)[0] == ["half", "d"]


def test_a_log_that_begins_anew_is_followed_through_the_older_file(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("a\n")
    _, place = tail.last(log, 10)
    with log.open("a") as more:
        more.write("b\n")
    log.rename(tmp_path / "run.log.1")
    log.write_text("c\n")
    lines, place = tail.since(log, place)
    assert lines == ["b", "c"]
    assert tail.since(log, place)[0] == []
    assert tail.last(log, 2)[0] == ["b", "c"]


def test_lines_are_searched_before_they_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("Error one\n" + "well\n" * 50 + "error two\n")
    lines, place = tail.last(log, 2, "ERROR")
    assert lines == ["Error one", "error two"]
    with log.open("a") as more:
        more.write("well\nERROR three\n")
    assert tail.since(log, place, "error")[0] == ["ERROR three"]


def test_one_who_was_away_for_long_gets_what_there_is(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("a\nb\n")
    assert tail.since(log, "1:5")[0] == ["a", "b"]


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    lines, place = tail.last(tmp_path / "run.log", 10)
    assert (lines, place) == ([], "")
    (tmp_path / "run.log").write_text("a\n")
    assert tail.since(tmp_path / "run.log", place)[0] == ["a"]


def test_much_comes_in_parts(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"{number:099}\n" for number in range(30_000)))
    found, place = tail.since(log, "")
    while (more := tail.since(log, place))[0]:
        assert len(more[0]) < 12_000
        found, place = found + more[0], more[1]
    assert [int(line) for line in found] == list(range(30_000))


def test_a_line_without_an_end_does_not_stop_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(b"x" * (3 << 20) + b"\nend\n")
    place, found = "", ""
    for _ in range(5):
        lines, place = tail.since(log, place)
        found += "\n".join(lines)
    assert found.endswith("end")


@pytest.mark.parametrize("place", ["x", "1", "1:x", "-1:0"])
def test_what_is_no_place_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(RequestRefused):
        tail.since(tmp_path / "run.log", place)
