"""Drivers stage in folders of their own, and the job's log says what of it is published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.connectors.files.target import FilesTarget
from millstream.errors import InternalError
from millstream.joblog import Decided, JobLog
from millstream.spark.io.targets import SinkContext
from millstream.storage import Folder

OWNER = "shop.lines"
KEY = f"shop/sums/abc#{OWNER}"


def driver(root: Path, *, claims: bool = True) -> tuple[FilesTarget, JobLog]:
    log = JobLog(Folder(root / "job"))
    if claims:
        log.claim(wait=lambda _: None)
    context = SinkContext("shop", "lines", root, root / "group", log=log)
    return FilesTarget(root / "out", "jsonl", context), log


def staged(root: Path, log: JobLog, batch: int) -> str:
    """Let a task of a driver stage a file, and return what a decision calls it."""
    name = f"{log.generation}/{OWNER}-abc-{batch:09d}-0123abcd.jsonl"
    file = root / "out" / "_millstream" / OWNER / "staged" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{batch}\n")
    return name


def published(root: Path) -> list[str]:
    return sorted(path.read_text() for path in (root / "out").glob("*.jsonl"))


def left(root: Path) -> list[str]:
    folder = root / "out" / "_millstream" / OWNER / "staged"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jsonl"))


def test_what_others_have_staged_is_removed_after_ones_own_claim(tmp_path: Path) -> None:
    first, log = driver(tmp_path)
    first.recover()
    name = staged(tmp_path, log, 0)
    early, _ = driver(tmp_path, claims=False)
    with pytest.raises(InternalError, match="before the job is claimed"):
        early.recover()
    assert left(tmp_path) == [name]
    second, _ = driver(tmp_path)
    second.recover()
    assert left(tmp_path) == published(tmp_path) == []


def test_what_was_decided_is_published_by_the_next_driver(tmp_path: Path) -> None:
    first, log = driver(tmp_path)
    first.recover()
    decided, undecided = staged(tmp_path, log, 0), staged(tmp_path, log, 1)
    log.decide(KEY, Decided(0, json.dumps([decided])))
    assert undecided in left(tmp_path)
    for _ in range(2):
        driver(tmp_path)[0].recover()
        assert published(tmp_path) == ["0\n"]
        assert left(tmp_path) == []


def test_what_a_driver_stages_after_it_was_replaced_is_never_published(tmp_path: Path) -> None:
    first, log = driver(tmp_path)
    first.recover()
    second, later = driver(tmp_path)
    second.recover()
    late, own = staged(tmp_path, log, 0), staged(tmp_path, later, 0)
    assert late != own, "the same batch, and not the same file"
    later.decide(KEY, Decided(0, json.dumps([own])))
    second.recover()
    assert published(tmp_path) == ["0\n"]
    assert left(tmp_path) == [late], "what is staged while it runs may be another version's"
    driver(tmp_path)[0].recover()
    assert published(tmp_path) == ["0\n"]
    assert left(tmp_path) == []
