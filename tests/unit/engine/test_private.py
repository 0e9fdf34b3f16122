"""What we keep is for the user that runs us alone; what sinks write follows the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.engine.driver.process import Log
from millstream.engine.jobs.folders import claim
from millstream.journal.kinds.files import FilesJournal
from millstream.spark.run.claim import claim as claim_flow
from millstream.storage import Folder
from millstream.storage.private import tighten

SCHEMA = pa.schema([("name", pa.string())])


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_journals_and_stores_are_made_for_their_owner(tmp_path: Path) -> None:
    journal = FilesJournal(tmp_path / "data" / "shop" / "journals" / "sent")
    journal.create(SCHEMA)
    with journal.writer() as writer:
        writer.append("a", 0, pa.record_batch([["x"]], schema=SCHEMA))
    with journal.dead_letters() as dead:
        dead.put("a", 0, "reason", "{}")
    journal.commit("reader", [0])
    Folder(tmp_path / "data" / "store").put("job.json", b"{}")
    found = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert len(found) > 20
    assert {rights(one) for one in found if one.is_dir()} == {0o700}
    assert {rights(one) for one in found if one.is_file()} == {0o600}


def test_a_log_is_for_its_owner(tmp_path: Path) -> None:
    log = Log()
    log.open(tmp_path / "run.log")
    log.write(b"line\n")
    log.close()
    assert rights(tmp_path / "run.log") == 0o600


def test_folders_of_the_version_before_are_tightened(tmp_path: Path) -> None:
    old = tmp_path / "engine"
    for folder in ("jobs/shop", "packages", "actions"):
        (old / folder).mkdir(parents=True)
    (old / "engine.lock").touch()
    claim(old).release()
    assert rights(old / "jobs") == 0o700
    assert rights(old) == (0o711 if os.geteuid() == 0 else 0o700)
    (tmp_path / "shop").mkdir()
    claim_flow(tmp_path / "shop", "shop").release()
    assert rights(tmp_path / "shop") == 0o700


def test_a_folder_that_is_not_ours_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.txt").touch()
    claim(tmp_path / "own").release()
    assert rights(tmp_path / "own") == 0o755
    assert rights(tmp_path / "own" / "jobs") == 0o700
    if os.geteuid() == 0:
        os.chown(tmp_path / "own", 65534, 65534)
        tighten(tmp_path / "own")
        assert rights(tmp_path / "own") == 0o755


def test_nothing_is_opened_wider(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    tighten(tmp_path / "closed")
    assert rights(tmp_path / "closed") == 0o500
