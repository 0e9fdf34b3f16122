from __future__ import annotations

import os
from pathlib import Path

import pytest

import millstream as ms
from millstream.connectors.files import taken
from millstream.connectors.files.reading import Place
from millstream.connectors.files.taken import TakenLog, begun
from millstream.errors import NotThere

DDL = "name string, at timestamp"


def touch(path: Path, text: str = "x", modified: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (modified, modified))
    return path


def found_names(path: Path | str, format: str = "jsonl", *, follow: bool = False) -> list[str]:
    return [one.name for one in taken.find(ms.files(path, DDL, format=format, follow=follow))]


def state(path: Path, log: TakenLog, *, settled: bool = True) -> str:
    found = taken.found(path, path.parent)
    return taken.state_of(found, log.get(found.name), settled=settled)


def done(path: Path, log: TakenLog) -> None:
    found = taken.found(path, path.parent)
    line = begun(found, Place(1, found.size))
    log.put(
        taken.TakenFile(
            **{name: getattr(line, name) for name in line.__struct_fields__ if name != "done"},
            done=True,
        )
    )


def test_a_folder_gives_its_files_of_the_format_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/2.json", "a/10.jsonl.gz", "c.csv", "README.md"):
        touch(tmp_path / name)
    assert found_names(tmp_path) == ["a/10.jsonl.gz", "a/2.json", "b.jsonl"]


def test_files_that_are_not_ready_are_passed_over(tmp_path: Path) -> None:
    for name in (".a.jsonl", "_b.jsonl", "_temporary/c.jsonl", "d.jsonl.tmp", "e.jsonl"):
        touch(tmp_path / name)
    assert found_names(tmp_path) == ["e.jsonl"]
    assert found_names(tmp_path / "*") == ["e.jsonl"]


def test_a_glob_gives_names_below_its_fixed_beginning(tmp_path: Path) -> None:
    for name in ("2013/01/a.log", "2013/02/a.log", "2014/01/a.log"):
        touch(tmp_path / name)
    assert found_names(tmp_path / "2013/*/a.log") == ["01/a.log", "02/a.log"]


def test_a_single_file_has_its_own_name(tmp_path: Path) -> None:
    assert found_names(touch(tmp_path / "events.txt")) == ["events.txt"]


def test_a_source_that_does_not_wait_wants_its_files_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="does not exist"):
        taken.there(ms.files(tmp_path / "nowhere.csv", DDL))
    with pytest.raises(NotThere, match="no file matches"):
        taken.there(ms.files(tmp_path / "*.csv", DDL))
    taken.there(ms.files(tmp_path, DDL, format="csv"))
    taken.there(ms.files(tmp_path / "nowhere.csv", DDL, follow=True))


def test_a_file_is_new_then_begun_then_done(tmp_path: Path) -> None:
    path, log = touch(tmp_path / "a.jsonl", "line\n"), TakenLog(tmp_path / "log")
    assert state(path, log) == "new"
    log.put(begun(taken.found(path, tmp_path)))
    assert state(path, log) == "begun"
    done(path, log)
    assert state(path, log) == "done"


def test_a_file_that_was_only_touched_is_still_done(tmp_path: Path) -> None:
    path, log = touch(tmp_path / "a.jsonl", "line\n"), TakenLog(tmp_path / "log")
    done(path, log)
    touch(path, "line\n", modified=2000)
    assert state(path, log) == "done"


def test_a_file_with_more_lines_has_grown(tmp_path: Path) -> None:
    path, log = touch(tmp_path / "a.jsonl", "line\n"), TakenLog(tmp_path / "log")
    done(path, log)
    touch(path, "line\nanother\n", modified=2000)
    assert state(path, log) == "grown"


@pytest.mark.parametrize("text", ["lime\n", "lime\nanother\n", "l"])
def test_a_file_that_says_something_else_was_changed(tmp_path: Path, text: str) -> None:
    path, log = touch(tmp_path / "a.jsonl", "line\n"), TakenLog(tmp_path / "log")
    done(path, log)
    touch(path, text, modified=2000)
    assert state(path, log) == "changed"


def test_a_last_line_without_its_end_counts_once_the_file_has_settled(tmp_path: Path) -> None:
    path, log = touch(tmp_path / "a.jsonl", "line\nhalf"), TakenLog(tmp_path / "log")
    line = begun(taken.found(path, tmp_path))
    log.put(
        taken.TakenFile(
            line.file, line.size, line.modified, line.digest, records=1, offset=5, done=True
        )
    )
    assert state(path, log, settled=False) == "done"
    assert state(path, log) == "grown"


def test_parquet_and_packed_files_wait_until_they_have_settled(tmp_path: Path) -> None:
    log = TakenLog(tmp_path / "log")
    for name in ("a.parquet", "a.jsonl.gz"):
        assert state(touch(tmp_path / name), log, settled=False) == "unfinished"
        assert state(tmp_path / name, log) == "new"


def test_the_log_survives_a_torn_line(tmp_path: Path) -> None:
    path, file = touch(tmp_path / "a.jsonl", "line\n"), tmp_path / "log"
    done(path, TakenLog(file))
    with file.open("ab") as torn:
        torn.write(b'{"file": "b.jso')
    done(touch(tmp_path / "c.jsonl"), TakenLog(file))
    log = TakenLog(file)
    assert state(path, log) == "done"
    assert log.get("b.jsonl") is None
    assert log.get("c.jsonl") is not None


def test_a_change_between_the_beginning_and_the_end_of_a_long_file_is_not_looked_for(
    tmp_path: Path,
) -> None:
    # The digest is of the size, the first and the last 64 KiB: reading all of a large file again
    # would cost too much.
    text = "x" * 300_000
    path = touch(tmp_path / "a.jsonl", text)
    same = touch(tmp_path / "b.jsonl", text[:150_000] + "y" + text[150_001:])
    other = touch(tmp_path / "c.jsonl", text[:-1] + "y")
    assert taken.digest(path, 300_000) == taken.digest(same, 300_000)
    assert taken.digest(path, 300_000) != taken.digest(other, 300_000)
