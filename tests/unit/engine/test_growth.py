"""Inboxes of a job on one engine whose sources get more partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.clock import SystemClock
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.errors import SchemaConflict
from millstream.journal.kinds.files.description import describe
from millstream.links.client import connect
from millstream.links.host import Listening
from support.links import declare, journal, rows, stored

LIMIT_S = 240.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    declare(tmp_path, partitions=2)
    return tmp_path / "f"


@pytest.fixture
def inboxes(tmp_path: Path, folder: Path) -> Iterator[Inboxes]:
    found = Inboxes(tmp_path / "engine", Listening(), node=0, of=1, clock=SystemClock())
    found.open("f", folder, {})
    found.start()
    yield found
    found.close()


def test_a_source_grows_while_a_program_sends(
    tmp_path: Path, folder: Path, inboxes: Inboxes
) -> None:
    with connect(str(inboxes.address), timeout=LIMIT_S) as old:
        old.send("f.s", rows(0, 20))
        waiting = [old.send_nowait("f.s", one) for one in rows(20, 40)]
        inboxes.grow("f", folder, {"s": 4, "other": 3})
        waiting += [old.send_nowait("f.s", one) for one in rows(40, 60)]
        with connect(str(inboxes.address), timeout=LIMIT_S) as new:
            new.send("f.s", rows(60, 100))
        assert sum(one.result(LIMIT_S) for one in waiting) == 40
    assert [one.partition for one in inboxes.job("f").status()] == [0, 1, 2, 3]
    found = stored(tmp_path)
    assert sorted(n for part in found for n in part) == list(range(100))
    assert all(found[2:])


def test_again_changes_nothing_and_fewer_does_not_either(
    tmp_path: Path, folder: Path, inboxes: Inboxes
) -> None:
    inboxes.grow("f", folder, {"s": 4})
    before = inboxes._jobs["f"].sources["s"]
    for partitions in (4, 1):
        inboxes.grow("f", folder, {"s": partitions})
        assert inboxes._jobs["f"].sources["s"] is before
    assert describe(journal(tmp_path)).partitions == 4


def test_what_is_paused_stays_so(folder: Path, inboxes: Inboxes) -> None:
    inboxes.job("f").pause()
    inboxes.grow("f", folder, {"s": 3})
    assert [one.free for one in inboxes.job("f").status()] == [0, 0, 0]
    inboxes.job("f").resume()
    assert all(one.free for one in inboxes.job("f").status())


def test_what_an_engine_did_not_get_to_is_done_when_it_starts(tmp_path: Path, folder: Path) -> None:
    found = Inboxes(tmp_path / "engine", Listening(), node=0, of=1, clock=SystemClock())
    found.open("f", folder, {}, partitions={"s": 3})
    assert [one.partition for one in found.job("f").status()] == [0, 1, 2]
    found.close()


def test_a_journal_that_has_grown_is_not_spread_over_engines(
    tmp_path: Path, folder: Path, inboxes: Inboxes
) -> None:
    inboxes.grow("f", folder, {"s": 4})
    inboxes.close_job("f")
    for count, fact in ((4, "has 4 partitions, and was made with 2"), (2, "and was made with 2")):
        with pytest.raises(SchemaConflict, match=fact):
            inboxes.open("f", folder, {"s": [inboxes.place] * count})
    declare(tmp_path, source="t", partitions=2)
    with pytest.raises(SchemaConflict, match='"t" has 2 partitions, not 3'):
        inboxes.open("f", folder, {"t": [inboxes.place] * 3}, only={"t"})
