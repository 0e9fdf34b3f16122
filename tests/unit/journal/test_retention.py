from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.errors import JournalError
from millstream.journal.kinds.files.layout import readers_folder, segment_positions
from millstream.journal.kinds.files.reader import Reader
from millstream.journal.kinds.files.retention import commit, committed, forget, trim
from millstream.journal.kinds.files.writer import Writer

SECOND = 1_000_000


@pytest.fixture
def segments(journal: Path, batch: Any) -> list[int]:
    """Twenty rows, a second apart in both times, in several segments."""
    clock = ManualClock(0)
    with Writer.open(journal, segment_bytes=800, clock=clock) as writer:
        for n in range(20):
            clock.advance_us(SECOND)
            writer.append("a", n, batch((n + 1) * SECOND))
    found = segment_positions(journal / "p0000")
    assert len(found) > 4
    return found


def begin(path: Path) -> int:
    return Reader(path).partition(0).begin


def test_a_reader_is_known_by_what_it_has_committed(journal: Path) -> None:
    commit(journal, "flow.group/a b", {0: 5})
    commit(journal, "flow.group/a b", [7], clock=ManualClock(3))
    (found,) = committed(journal)
    assert (found.reader, dict(found.positions), found.at) == ("flow.group/a b", {0: 7}, 3)
    forget(journal, "flow.group/a b")
    assert committed(journal) == []


def test_everything_is_kept_unless_asked_otherwise(journal: Path, segments: list[int]) -> None:
    commit(journal, "one", [20])
    assert trim(journal).segments == 0
    assert begin(journal) == 0


def test_what_a_reader_has_not_passed_is_kept(journal: Path, segments: list[int]) -> None:
    commit(journal, "fast", [20])
    commit(journal, "slow", [segments[2]])
    assert trim(journal, keep_bytes=0).segments == 2
    assert begin(journal) == segments[2]
    commit(journal, "slow", [segments[3] - 1])
    assert trim(journal, keep_bytes=0).segments == 0


def test_a_reader_that_has_not_said_anything_about_a_partition_holds_all_of_it(
    journal: Path, segments: list[int]
) -> None:
    commit(journal, "new", {})
    assert trim(journal, keep_bytes=0).segments == 0


def test_the_last_segment_stays(journal: Path, segments: list[int]) -> None:
    trimmed = trim(journal, keep_bytes=0)
    assert (trimmed.segments, trimmed.positions) == (len(segments) - 1, segments[-1])
    assert begin(journal) == segments[-1]


def test_young_segments_are_kept(journal: Path, segments: list[int]) -> None:
    # The segment before the one that begins at position n ends with the row of second n.
    now = (segments[2] + 10) * SECOND
    assert trim(journal, keep_for=timedelta(seconds=10), now=now).segments == 1
    assert trim(journal, keep_for=timedelta(seconds=10), now=now + 1).segments == 1
    assert begin(journal) == segments[2]


def test_segments_go_until_the_size_is_right(journal: Path, segments: list[int]) -> None:
    folder = journal / "p0000"
    whole = sum(f.stat().st_size for f in folder.iterdir() if f.suffix in (".arrow", ".index"))
    assert trim(journal, keep_bytes=whole).segments == 0
    assert trim(journal, keep_bytes=whole - 1).segments == 1


def test_a_look_back_keeps_what_lies_behind_a_readers_position(
    journal: Path, segments: list[int]
) -> None:
    commit(journal, "one", [segments[-1]])
    back = timedelta(seconds=segments[-1] - segments[1] - 1)
    trim(journal, keep_bytes=0, look_back=back)
    assert begin(journal) == segments[1]


def test_what_was_trimmed_is_still_known_to_the_writer(
    journal: Path, batch: Any, segments: list[int]
) -> None:
    trim(journal, keep_bytes=0)
    with Writer.open(journal) as writer:
        assert (writer.highest("a"), writer.running_max) == (19, 20 * SECOND)
        assert writer.append("a", 19, batch(20 * SECOND)).stored == 0


def test_a_damaged_registration_keeps_everything(journal: Path, segments: list[int]) -> None:
    commit(journal, "one", [20])
    next(readers_folder(journal).iterdir()).write_text("{")
    with pytest.raises(JournalError, match="damaged"):
        trim(journal, keep_bytes=0)


def test_a_writer_trims_its_own_partition_by_its_clock(
    journal: Path, batch: Any, segments: list[int]
) -> None:
    with Writer.open(journal, clock=ManualClock(3600 * SECOND)) as writer:
        assert writer.trim(keep_for=timedelta(hours=2)).segments == 0
        assert writer.trim(keep_for=timedelta(minutes=1)).segments == len(segments) - 1
