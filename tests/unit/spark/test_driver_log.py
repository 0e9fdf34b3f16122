"""A job goes on where it began, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from millstream.clock import SystemClock
from millstream.errors import InvalidStorage
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.run.driver_log import check_place, release_job, take_job
from millstream.spark.run.version import RunContext


def driven(folder: Path, storage: str | None) -> RunContext:
    ground = RunContext(cast("Any", None), folder, folder, 1)
    take_job(ground, storage, folder.name, SystemClock())
    release_job(ground)
    return ground


def test_a_new_job_begins_anywhere(tmp_path: Path) -> None:
    check_place(tmp_path / "shop", None)
    assert driven(tmp_path / "shop", None).address is None
    there = str(tmp_path / "there")
    for _ in range(2):
        assert driven(tmp_path / "shop", f"{there}/").address == f"{there}/shop"
    assert driven(tmp_path / "another host" / "shop", there).address == f"{there}/shop"


def test_a_job_that_runs_with_a_storage_does_not_begin_again_without_it(tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    driven(tmp_path / "shop", there)
    for other in (None, str(tmp_path / "elsewhere")):
        with pytest.raises(InvalidStorage, match=f"checkpoints in {there}") as found:
            driven(tmp_path / "shop", other)
        assert f"--storage {there}" in str(found.value.hint)


def test_a_job_that_runs_without_a_storage_does_not_begin_again_with_one(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "shop" / "groups" / "sums", "sums", "abc", {}).begin()
    driven(tmp_path / "shop", None)
    with pytest.raises(InvalidStorage, match="has its checkpoints in") as found:
        driven(tmp_path / "shop", str(tmp_path / "there"))
    assert "leave --storage out" in str(found.value.hint)
    assert not (tmp_path / "there").exists(), "nothing is claimed"
