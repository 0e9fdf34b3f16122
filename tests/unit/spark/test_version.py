"""Where versions keep their groups and journals, and what is left of one that is gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millstream.journal import journal_at
from millstream.spark.run.version import (
    forget_readers,
    placed,
    remove_leftovers,
    remove_unless,
)
from millstream.switch.record import Homes

OLD = Homes(
    {"rows": "", "hours": "", "gone": "", "kept": ""}, {"inner": "", "outer": "", "dropped": ""}
)
NEW = Homes(
    {"rows": "2", "hours": "2", "kept": "", "added": "2"}, {"inner": "2", "outer": "", "fresh": ""}
)


def folders(root: Path, homes: Homes) -> set[Path]:
    groups = {root / "groups" / placed(name, homes.groups) for name in homes.groups}
    return groups | {root / "journals" / placed(name, homes.journals) for name in homes.journals}


def made(root: Path) -> set[Path]:
    everything = folders(root, OLD) | folders(root, NEW) | {root / "journals" / "events"}
    for folder in everything:
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    return everything


def left(root: Path) -> set[Path]:
    return {path for path in root.glob("*/*") if path.is_dir()}


def test_a_version_that_retires_takes_what_only_it_had_and_leaves_named_journals(
    tmp_path: Path,
) -> None:
    made(tmp_path)
    for _ in range(2):
        remove_unless(tmp_path, OLD, NEW, new=False)
        journals = {tmp_path / "journals" / name for name in ("events", "dropped")}
        assert left(tmp_path) == folders(tmp_path, NEW) | journals


def test_what_retires_leaves_the_bucket_too(tmp_path: Path) -> None:
    there = tmp_path / "there"
    made(there)
    for _ in range(2):
        remove_unless(tmp_path / "here", OLD, NEW, new=False, address=str(there))
    groups = {path for path in left(there) if path.parent.name == "groups"}
    assert groups == {path for path in folders(there, NEW) if path.parent.name == "groups"}
    assert left(there) >= {there / "journals" / "inner"}, "journals are not kept there"


def test_a_version_that_was_not_wanted_leaves_nothing(tmp_path: Path) -> None:
    made(tmp_path)
    for _ in range(2):
        remove_unless(tmp_path, NEW, OLD, new=True)
        assert left(tmp_path) == folders(tmp_path, OLD) | {tmp_path / "journals" / "events"}


def test_a_snapshot_that_comes_after_its_group_was_removed_is_removed_too(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    for name in ("rows", "rows@2", "rows@3"):
        (groups / name / "state" / "0").mkdir(parents=True)
        (groups / name / "state" / "0" / "7.zip").write_text("x")
    (groups / "rows@2" / "group.json").write_text("{}")
    for _ in range(2):
        remove_leftovers(tmp_path, {"rows@3"})
        assert left(tmp_path) == {groups / "rows@2", groups / "rows@3"}
    remove_leftovers(tmp_path / "no such flow", set())


def test_readers_that_are_gone_hold_nothing_back_and_those_of_others_do(tmp_path: Path) -> None:
    path = tmp_path / "events"
    journal_at(path).create(pa.schema([("v", pa.int64())]))
    for reader in ("flow.rows", "flow.rows@2", "other.rows"):
        journal_at(path).commit(reader, [0])
    forget_readers([path, tmp_path / "missing"], "flow", {(path, "flow.rows@2")})
    assert {one.reader for one in journal_at(path).committed()} == {"flow.rows@2", "other.rows"}
