"""The state of a shard against a plain dictionary: changes, expiry, failed and late attempts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import RunError
from millstream.state import NO_TIME, Entry, Manifest, ShardState, StateFiles, entries
from millstream.state.manifest import dump, load
from millstream.state.run_file import hashed
from millstream.storage import Folder
from millstream.storage.disk import DiskFile, RealDisk, RealFile

RETAIN = 6
#: Bytes, so that every few batches write a run file, and there are some before all are merged.
SMALL = 400
MANY = 200

Model = dict[bytes, tuple[int, int]]

keys = st.integers(0, MANY).map(lambda number: b"k%d" % number)
#: What is put at a key, None if it is removed.
puts = st.dictionaries(keys, st.one_of(st.integers(0, 10**6), st.none()), max_size=12)


def weak(found: Sequence[bytes]) -> Any:
    """Return hashes of which many are the same."""
    return np.array([zlib.crc32(key) % 5 for key in found], np.uint64)


class Unsynced(RealDisk):
    """A disk that need not survive a loss of power."""

    def open(self, path: Path) -> DiskFile:
        file = RealFile(path)
        file.sync = lambda: None  # type: ignore[method-assign]
        return file

    def sync_folder(self, path: Path) -> None:
        """Not now."""


def stored(folder: Path) -> StateFiles:
    return StateFiles(Folder(folder, Unsynced()), "totals", RETAIN, SMALL)


@dataclass(frozen=True)
class Batch:
    """What one batch does, and how many attempts at it fail before."""

    puts: dict[bytes, int | None]
    at: int
    failed: int
    late: int
    """So many touches ago began another attempt, which is carried out only now."""


batches = st.lists(
    st.builds(Batch, puts, st.integers(0, 4), st.integers(0, 2), st.integers(0, RETAIN - 1)),
    max_size=40,
)


def changes(batch: Batch, now: int) -> dict[bytes, Entry | None]:
    return {
        key: None if value is None else Entry(encoded(value), now)
        for key, value in batch.puts.items()
    }


def encoded(value: int) -> bytes:
    return msgspec.msgpack.encode([value, "." * 30])


def decoded(entry: tuple[bytes, int]) -> int:
    return int(msgspec.msgpack.decode(entry[0])[0])


def alive(model: Model, expired: int | None) -> Model:
    return {k: v for k, v in model.items() if expired is None or v[1] > expired}


@given(batches, st.one_of(st.none(), st.integers(1, 12)), st.sampled_from([hashed, weak]))
@settings(max_examples=30, deadline=None)
def test_a_shard_is_a_dictionary_whatever_fails(
    tmp_path_factory: pytest.TempPathFactory,
    given_batches: list[Batch],
    keep: int | None,
    hashing: Any,
) -> None:
    folder = tmp_path_factory.mktemp("state")
    files = stored(folder)

    def opened(data: bytes) -> ShardState:
        return ShardState(load(data), files, 3, hashing)

    model: Model = {}
    now = 0
    # Every version that somebody may go back to, with what it must have.
    versions: list[tuple[bytes, Model, int | None]] = [(b"", {}, None)]
    strays: list[tuple[int, bytes, Model]] = []
    for number, batch in enumerate(
        [Batch(dict.fromkeys(map(b"k%d".__mod__, range(MANY)), 0), 0, 0, 0), *given_batches]
    ):
        now += batch.at
        expired = None if keep is None else now - keep
        late, _, then = versions[max(0, len(versions) - 1 - batch.late)]
        for _ in range(batch.failed):
            stray = opened(versions[-1][0]).commit(changes(batch, now), expired)
            strays.append((number, stray or versions[-1][0], after(model, batch, now)))
        opened(late).commit({}, then)
        opened(late).commit(changes(batch, now), then)
        shard = opened(versions[-1][0])
        found = {key: (decoded(entry), entry[1]) for key, entry in shard.lookup(batch.puts).items()}
        known = {key: model[key] for key in batch.puts if key in model}
        assert alive(found, expired) == alive(known, expired)
        data = shard.commit(changes(batch, now), expired)
        model = after(model, batch, now)
        versions.append((versions[-1][0] if data is None else data, model, expired))
        for data, expected, moment in versions[-RETAIN:]:
            assert held(data, files, moment, hashing) == alive(expected, moment)
        # What an attempt stored that was given up may still get in place of what counts.
        for at, data, expected in strays:
            if number - at < RETAIN:
                assert held(data, files, expired, hashing) == alive(expected, expired)


def after(model: Model, batch: Batch, now: int) -> Model:
    put = {key: None if value is None else (value, now) for key, value in batch.puts.items()}
    return {key: found for key, found in {**model, **put}.items() if found is not None}


def held(data: bytes, files: StateFiles, moment: int | None, hashing: Any = hashed) -> Model:
    found = entries(data, files.open, moment, hashing)
    return {key: (value[0], time) for key, value, time in found if time is not None}


@given(st.lists(puts, min_size=20, max_size=60), st.integers(0, 63))
@settings(max_examples=20, deadline=None)
def test_few_files_stay_and_all_are_named(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[bytes, int | None]], shard: int
) -> None:
    folder = tmp_path_factory.mktemp("state")
    files = stored(folder)
    data = b""
    for number, batch in enumerate(rounds):
        given_ = changes(Batch(batch, 0, 0, 0), number)
        data = ShardState(load(data), files, shard).commit(given_) or data
        manifest = load(data)
        there = {str(path.relative_to(folder)) for path in folder.rglob("*.arrow")}
        assert there == set(manifest.names())
        assert len(manifest.runs) <= 1 + 2 * 8


@given(st.dictionaries(keys, st.integers(0, 10**6), max_size=40), puts)
@settings(max_examples=50, deadline=None)
def test_the_format_before_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[bytes, int],
    batch: dict[bytes, int | None],
) -> None:
    files = stored(tmp_path_factory.mktemp("state"))
    data = msgspec.msgpack.encode([(key, [value, ""]) for key, value in before.items()])
    assert {k: v[0] for k, v, _ in entries(data, files.open)} == before
    shard = ShardState(load(data), files)
    found = shard.lookup(before)
    assert {k: decoded(e) for k, e in found.items()} == before
    # What has no time does not expire.
    following = shard.commit(changes(Batch(batch, 0, 0, 0), 5), expired=2)
    model = {k: v for k, v in {**before, **batch}.items() if v is not None}
    assert {k: v[0] for k, v, _ in entries(following or data, files.open)} == model


def test_a_file_that_is_gone_is_an_error_and_not_an_absent_key(tmp_path: Path) -> None:
    files = stored(tmp_path)
    many = {b"%d" % number: Entry(b"\x01") for number in range(200)}
    data = ShardState(Manifest(), files).commit(many)
    assert data is not None
    (name,) = load(data).names()
    files.delete(name)
    with pytest.raises(RunError, match=r'stage "totals" keeps state in .*, which is gone'):
        ShardState(load(data), files).lookup([b"1"])


def test_without_files_everything_stays_in_the_manifest() -> None:
    many = {b"%d" % number: Entry(b"\x01", NO_TIME) for number in range(1000)}
    data = ShardState(Manifest()).commit(many)
    assert data is not None
    assert ShardState(load(data)).lookup([b"7", b"x"]) == {b"7": Entry(b"\x01", NO_TIME)}
    assert dump(load(data)) == data
