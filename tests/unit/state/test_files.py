"""Run files in a folder, and elsewhere: fetched once, known by names that are used once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millstream.errors import RunError
from millstream.state import Entry, Manifest, ShardState, StateFiles, files
from millstream.state.files import retained
from millstream.state.manifest import load
from millstream.storage import S3, Folder

MANY = {b"%d" % number: Entry(b"\x01", number) for number in range(500)}


@dataclass
class Elsewhere:
    """A storage that is no folder, and counts what is read."""

    contents: dict[str, bytes] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    def put(self, name: str, content: bytes) -> None:
        self.contents[name] = content

    def read(self, name: str) -> bytes | None:
        self.reads.append(name)
        return self.contents.get(name)

    def list(self, folder: str = "") -> list[str]:
        return sorted(name for name in self.contents if name.startswith(f"{folder}/"))

    def delete(self, name: str) -> None:
        self.contents.pop(name, None)


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the host a folder of its own, and forget what this process has mapped."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(files, "_mapped", type(files._mapped)())
    return tmp_path / f"millstream-state-{os.getuid()}"


def test_a_file_from_elsewhere_is_fetched_once_by_all_processes_of_a_host(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Elsewhere()
    place = StateFiles(storage, "totals", 4, inline=100)  # type: ignore[arg-type]
    data = ShardState(Manifest(), place).commit(MANY)
    assert data is not None
    (name,) = load(data).names()
    for _ in range(2):
        assert ShardState(load(data), place).lookup([b"7"]) == {b"7": Entry(b"\x01", 7)}
        monkeypatch.setattr(files, "_mapped", type(files._mapped)())  # as another process
    assert storage.reads == [name]
    assert host.stat().st_mode & 0o777 == 0o700
    place.delete(name)
    assert list(host.iterdir()) == []
    with pytest.raises(RunError, match="which is gone"):
        place.open(name)


def test_what_was_fetched_long_ago_makes_room(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Elsewhere()
    place = StateFiles(storage, "totals", 4)  # type: ignore[arg-type]
    names = [place.put(0, touch, bytes(1000)) for touch in range(4)]
    monkeypatch.setattr(files, "_MOST", 2500)
    for number, name in enumerate(names):
        buffer = place.open(name)
        os.utime(host / name.rpartition("/")[2], (number, number))
    assert buffer.size == 1000
    assert {path.name for path in host.iterdir()} == {name.rpartition("/")[2] for name in names[2:]}


def test_a_folder_of_somebody_else_is_refused(host: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    host.symlink_to(tmp_path / "theirs")
    place = StateFiles(Elsewhere({"a": b"b"}), "totals", 4)  # type: ignore[arg-type]
    with pytest.raises(RunError, match="belongs to another user"):
        place.open("a")


def test_files_of_a_touch_and_before_are_told_by_their_names(tmp_path: Path) -> None:
    place = StateFiles(Folder(tmp_path), "totals", 4)
    names = [place.put(7, touch, b"") for touch in (1, 2, 30)]
    assert len(set(names)) == 3
    assert list(place.before(7, 30)) == names[:2]
    assert list(place.before(8, 30)) == []


def test_a_batch_may_touch_a_shard_twice() -> None:
    assert retained(10) > 2 * 10


def test_tasks_get_the_keys_of_a_bucket_and_do_not_show_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "its-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "its-secret")
    carried = S3("bucket", "prefix").with_keys()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "that of another host")
    assert carried.settings["secret_access_key"] == "its-secret"
    assert "its-secret" not in repr(carried)
    assert carried.address == "s3://bucket/prefix"
