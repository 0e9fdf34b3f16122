"""The state of a shard that earlier versions stored is read, and goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from millstream.errors import InternalError
from millstream.spark.stages.distinct import Keeping
from millstream.state import Entry, ShardState, StateFiles, entries
from millstream.state.manifest import load
from millstream.storage import Folder
from upgrade.state.make import key

HERE = Path(__file__).parent
#: Before there were run files, msgpack of [[key, value], ...]: of a fold, and of a distinct.
FOLDED = bytes.fromhex("9292c40491a26b3182a16e01a17892010292c40491a26b3282a16e02a17890")
SEEN = bytes.fromhex("9292c40491a26b31ce000f424092c40491a26b32ce001e8480")


def no_files(name: str) -> None:
    raise AssertionError(name)


def test_format_0_has_everything_in_one_value() -> None:
    expected = {key(1): {"n": 1, "x": [1, 2]}, key(2): {"n": 2, "x": []}}
    assert {k: v for k, v, time in entries(FOLDED, no_files) if time is None} == expected  # type: ignore[arg-type]


def test_keys_of_a_distinct_in_format_0_still_expire() -> None:
    rule = Keeping(("k",), "at", 500_000)
    shard = ShardState(load(SEEN, rule.old_time))
    _, time = shard.lookup([key(1)])[key(1)]
    assert time == 1_000_000
    after = shard.commit({}, expired=1_500_000 - rule.keep)
    assert after is not None
    assert [k for k, _, _ in entries(after, no_files)] == [key(2)]  # type: ignore[arg-type]


def test_format_1_goes_on(tmp_path: Path) -> None:
    shutil.copytree(HERE / "format_1", tmp_path / "saved")
    files = StateFiles(Folder(tmp_path / "saved"), "totals", retain=2, inline=400)
    data = (tmp_path / "saved" / "manifest.bin").read_bytes()
    assert load(data).runs
    assert load(data).fresh
    expected = {key(n): ({"n": n}, n) for n in range(1, 30)}
    expected |= {key(n): ({"n": -n}, 100) for n in range(30, 45)}
    found = {k: (value, time) for k, value, time in entries(data, files.open)}
    assert found == {**expected, key(50): (None, None)}
    shard = ShardState(load(data), files, 3)
    assert shard.lookup([key(0), key(7)]) == {key(7): Entry(msgspec.msgpack.encode({"n": 7}), 7)}
    after = shard.commit({}, expired=29)
    assert after is not None
    left = {k for k, _, _ in entries(after, files.open)}
    assert left == {key(n) for n in (*range(30, 45), 50)}


def test_a_format_of_a_later_version_is_refused() -> None:
    with pytest.raises(InternalError, match="has the format 9"):
        load(b"\xc1\x09")
