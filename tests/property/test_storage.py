"""A storage on a disk that loses power at any operation."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from millstream.storage import Folder, StoredFile, put_together
from property.faulty_disk import Crash, FaultyDisk

OLD, NEW = b"old " * 700, b"new " * 900


@given(seed=st.integers(0, 2**32), after=st.integers(0, 14))
def test_a_crash_leaves_the_old_content_or_the_new_one(seed: int, after: int) -> None:
    with TemporaryDirectory() as folder:
        disk = FaultyDisk(seed)
        storage = Folder(Path(folder) / "some", disk)
        storage.put("record", OLD)
        disk.after = after
        done = _tried(lambda: storage.put("record", NEW))
        disk.lose_power()
        assert storage.read("record") in ((NEW,) if done else (OLD, NEW))
        assert set(storage.list()) == {"record"}


@given(seed=st.integers(0, 2**32), after=st.integers(0, 14))
def test_a_decision_is_durable_once_anyone_knows_of_it(seed: int, after: int) -> None:
    with TemporaryDirectory() as folder:
        disk = FaultyDisk(seed, after)
        storage = Folder(Path(folder), disk)
        won: list[bool] = []
        _tried(lambda: won.append(storage.put_if_absent("decision", OLD)))
        first = storage.read("decision") is not None
        disk.after = None
        if first and not won:
            # It is there, but its maker has crashed: who finds it now acts upon it.
            assert not storage.put_if_absent("decision", NEW)
            won.append(True)
        disk.lose_power()
        assert storage.read("decision") in ((OLD,) if won else (None, OLD))


@given(
    seed=st.integers(0, 2**32),
    after=st.integers(0, 30),
    contents=st.lists(st.sampled_from((NEW, b"other")), min_size=1, max_size=4),
)
def test_files_that_are_put_together_are_all_there_or_each_as_it_was(
    seed: int, after: int, contents: list[bytes]
) -> None:
    with TemporaryDirectory() as folder:
        disk = FaultyDisk(seed)
        storages = [Folder(Path(folder) / str(number), disk) for number in range(len(contents))]
        for storage in storages[::2]:
            storage.put("in/record", OLD)
        disk.after = after
        files = [
            StoredFile(one, "in/record", its) for one, its in zip(storages, contents, strict=True)
        ]
        done = _tried(lambda: put_together(files))
        disk.lose_power()
        for number, (storage, content) in enumerate(zip(storages, contents, strict=True)):
            before = None if number % 2 else OLD
            found = storage.read("in/record")
            assert found in ((content,) if done else (before, content))


def test_files_with_one_content_are_synced_once(tmp_path: Path) -> None:
    disk = FaultyDisk()
    files = [StoredFile(Folder(tmp_path / name, disk), "record", NEW) for name in "abcd"]
    named: list[int] = []
    put_together(files, lambda: named.append(len(list(tmp_path.glob("*/record")))))
    assert named == [1, 2, 3, 4]
    assert {one.stat().st_nlink for one in tmp_path.glob("*/record")} == {4}
    assert sum(len(list((tmp_path / name).iterdir())) for name in "abcd") == 4


def test_files_that_cannot_share_a_content_have_one_each(tmp_path: Path) -> None:
    class Linkless(FaultyDisk):
        def link(self, source: Path, target: Path) -> None:
            raise OSError

    files = [StoredFile(Folder(tmp_path / name, Linkless()), "record", NEW) for name in "ab"]
    put_together(files)
    assert [one.folder.read("record") for one in files] == [NEW, NEW]


def _tried(work: object) -> bool:
    try:
        work()  # type: ignore[operator]
    except Crash:
        return False
    return True
