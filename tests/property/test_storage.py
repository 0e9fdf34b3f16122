"""A storage on a disk that loses power at any operation."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from millstream.storage import Folder
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


def _tried(work: object) -> bool:
    try:
        work()  # type: ignore[operator]
    except Crash:
        return False
    return True
