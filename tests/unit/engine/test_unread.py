"""How many more rows a job lets wait: what came since its driver has counted waits too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.engine.jobs.folders import Folders
from millstream.engine.managed_job import ManagedJob
from millstream.engine.unread import allowance


def managed(most: int | None, *, driver: bool = True) -> ManagedJob:
    options = {} if most is None else {"most_unread": most}
    job = SimpleNamespace(driver=driver, ready_at=1.0)
    stored: Any = SimpleNamespace(job=job, name="shop", settings=SimpleNamespace(options=options))
    return ManagedJob(stored)


def lag(rows: int) -> dict[str, Any]:
    return {"groups": [{"name": "counts", "lag_rows": rows}]}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_there_is_no_limit_unless_one_is_given(folders: Folders) -> None:
    assert allowance(managed(None), folders, 0) is None
    assert allowance(managed(10, driver=False), folders, 0) is None


def test_what_the_driver_counts_and_what_came_since_then_count(folders: Folders) -> None:
    job = managed(1_000)
    assert allowance(job, folders, 0) == 1_000
    job.report(lag(100), taken=500)
    # It may have counted before any of them was there.
    assert allowance(job, folders, 500) == 400
    job.report(lag(300), taken=700)
    assert allowance(job, folders, 700) == 500
    assert allowance(job, folders, 1_500) == 0


def test_inboxes_that_were_opened_again_count_from_nothing(folders: Folders) -> None:
    job = managed(1_000)
    job.report(lag(0), taken=500)
    job.report(lag(0), taken=500)
    assert allowance(job, folders, 20) == 1_000
