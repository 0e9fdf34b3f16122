"""Merging a part of the runs of a shard: what lies below them does not come back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.state import NO_TIME, Entry, Manifest, ShardState, StateFiles, entries
from millstream.state.manifest import load
from millstream.state.run_file import Hashes, hashed
from millstream.storage import Folder

INLINE = 2_000
VALUE = b"\xb3" + b"." * 19  # a text


def key(number: int) -> bytes:
    return b"key-%06d" % number


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(Folder(tmp_path), "totals", retain=4, inline=INLINE)


def with_base(files: StateFiles, time: int = NO_TIME) -> bytes:
    base = {key(number): Entry(VALUE, time) for number in range(5_000)}
    data = ShardState(Manifest(), files).commit(base)
    assert data is not None
    return data


def merged_above(files: StateFiles, data: bytes, entry: Entry | None) -> tuple[bytes, set[bytes]]:
    """Change keys until runs above the base were merged; return the manifest and these keys."""
    changed: set[bytes] = set()
    runs: list[int] = []
    while not (runs and len(load(data).runs) < runs[-1]):
        runs.append(len(load(data).runs))
        some = [key(len(changed) + number) for number in range(100)]
        changed.update(some)
        data = ShardState(load(data), files).commit(dict.fromkeys(some, entry)) or data
        assert len(runs) < 100
    assert len(load(data).runs) > 1, "the base is what it was"
    return data, changed


def test_a_removed_key_stays_removed_when_only_newer_runs_are_merged(files: StateFiles) -> None:
    data, removed = merged_above(files, with_base(files), None)
    assert ShardState(load(data), files).lookup(removed) == {}
    assert len(ShardState(load(data), files).lookup(map(key, range(5_000)))) == 5_000 - len(removed)
    assert {k for k, _, _ in entries(data, files.open)} == set(map(key, range(5_000))) - removed


def test_an_expired_entry_does_not_uncover_one_without_a_time(files: StateFiles) -> None:
    data, changed = merged_above(files, with_base(files), Entry(b"\x02", 10))
    after = ShardState(load(data), files).commit({}, expired=10)
    assert after is not None
    assert ShardState(load(after), files).lookup(changed) == {}
    assert len(load(after).runs) > 1, "the base is what it was"
    # Nothing is left to do, whatever the moment.
    assert ShardState(load(after), files).commit({}, expired=11) is None


def test_runs_of_which_nothing_is_left_leave_unread(files: StateFiles) -> None:
    data = with_base(files, time=5)
    after = ShardState(load(data), files).commit({key(1): Entry(b"\x02", 9)}, expired=5)
    assert after is not None
    assert load(after).runs == []
    assert {k for k, _, _ in entries(after, files.open)} == {key(1)}


def test_what_a_batch_reads_and_writes_grows_with_what_it_touches(
    files: StateFiles, tmp_path: Path
) -> None:
    data = with_base(files)
    before = {path: path.stat().st_size for path in tmp_path.rglob("*.arrow")}
    data = ShardState(load(data), files).commit({key(7): Entry(b"\x02")}) or data
    assert {path: path.stat().st_size for path in tmp_path.rglob("*.arrow")} == before
    assert len(data) < 300
    assert ShardState(load(data), files).lookup([key(7), key(8), b"none"]) == {
        key(7): Entry(b"\x02"),
        key(8): Entry(VALUE),
    }


def test_the_hashes_of_keys_are_computed_once_and_those_of_files_are_taken_from_there(
    files: StateFiles,
) -> None:
    asked: list[bytes] = []

    def hashing(keys: Sequence[bytes]) -> Hashes:
        asked.extend(keys)
        return hashed(keys)

    data = with_base(files)
    shard = ShardState(load(data), files, hashing=hashing)
    few = [key(number) for number in range(100)]
    after = shard.commit(dict.fromkeys(shard.lookup(few), (VALUE, 1)))
    assert sorted(asked) == few
    assert after is not None
    asked.clear()
    most = [key(number) for number in range(1_000, 7_000)]
    shard = ShardState(load(after), files, hashing=hashing)
    shard.lookup(most)
    shard.commit(dict.fromkeys(most, (VALUE, 2)))
    assert set(asked) == {key(number) for number in range(5_000, 7_000)}


def test_everything_may_be_in_files(tmp_path: Path) -> None:
    files, data = StateFiles(Folder(tmp_path), "totals", retain=4, inline=0), b""
    for number in range(20):
        data = ShardState(load(data), files).commit({key(number % 7): Entry(VALUE, number)}) or data
    assert load(data).fresh == {}
    found = ShardState(load(data), files).lookup(map(key, range(8)))
    assert {k: time for k, (_, time) in found.items()} == {key(n % 7): n for n in range(13, 20)}


def test_all_keys_are_touched_again_and_most_of_them_are_looked_up(files: StateFiles) -> None:
    data = with_base(files)
    for turn in range(3):
        shard = ShardState(load(data), files)
        before = shard.lookup(map(key, range(5_000)))
        assert len(before) == 5_000
        changes = {one: Entry(b"\xcd" + int(one[4:]).to_bytes(2), turn) for one in before}
        data = shard.commit(changes) or data
    assert {k: (value, time) for k, value, time in entries(data, files.open)} == {
        key(number): (number, 2) for number in range(5_000)
    }
    some = set(map(key, range(4_000)))
    assert set(ShardState(load(data), files).lookup(some)) == some
    gone = ShardState(load(data), files).commit(dict.fromkeys(map(key, range(0, 5_000, 10))))
    assert gone is not None
    found = ShardState(load(gone), files).lookup(map(key, range(6, 6_000)))
    assert set(found) == {key(number) for number in range(6, 5_000) if number % 10}
    assert all(value[1:] == int(one[4:]).to_bytes(2) for one, (value, _) in found.items())
