"""The state of a stage by key, whatever the format that its shards are kept in."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millstream.clock import moment_of
from millstream.spark.inspection.key_states import KeyStates, names_key
from millstream.state import Entry, ShardState, StateFiles
from millstream.state.manifest import load
from millstream.storage import Folder

encode = msgspec.msgpack.encode


def states(shards: list[bytes], files: StateFiles, kind: str = "fold", **more: int) -> KeyStates:
    return KeyStates("sums", kind, ("k",), 7, dict(enumerate(shards)), files, **more)


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(Folder(tmp_path), "sums", retain=0, inline=100)


def test_keys_are_read_from_manifests_and_the_files_that_they_name(
    files: StateFiles, tmp_path: Path
) -> None:
    data = b""
    for turn in range(3):
        changes = {encode([f"k{n}"]): Entry(encode({"n": n + turn}), n) for n in range(20 - turn)}
        data = ShardState(load(data), files).commit(changes) or data
    assert list(tmp_path.rglob("*.arrow")), "files were written"
    old = encode([(encode(["old"]), {"n": 5})])  # as the first version has stored it
    found = states([data, old], files)
    assert found.keys == 21
    assert found.plain(2, "k3") == [{"k": "k3", "n": 5}]
    assert found.plain(2, "k18") == [{"k": "k18", "n": 19}]
    assert found.plain(2, "old") == [{"k": "old", "n": 5}]


def test_what_event_time_has_left_behind_is_not_there(files: StateFiles) -> None:
    changes = {encode([f"k{n}"]): Entry(encode({"n": n}), n * 1_000_000) for n in range(9)}
    data = ShardState(load(b""), files).commit(changes)
    assert data is not None
    assert states([data], files, expired_us=5_000_000).keys == 3
    old = encode([(encode(["a"]), 4_000_000), (encode(["b"]), 6_000_000)])
    first = states([old], files, "distinct", expired_us=5_000_000)
    assert first.head(9).to_pylist() == [{"k": "b", "first_at": moment_of(6_000_000)}]


def test_a_text_names_a_key_by_its_values_or_as_json() -> None:
    assert names_key("a", ["a"])
    assert names_key("a,7", ["a", 7])
    assert names_key('["a", 7]', ["a", 7])
    assert names_key("7", [7])
    assert not names_key("a", ["a", 7])
