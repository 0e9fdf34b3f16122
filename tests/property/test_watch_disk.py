"""A device's disk that loses power, is killed, is cut short or rots."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import AlreadyRunning, StateDamaged, StateNotWritten
from millstream.storage.disk import REAL, Disk, DiskFile
from millstream.watch.disk import Recovered, Store
from property.faulty_disk import Crash, FaultyDisk

LIMIT = 300
NOTE = 16


def content(number: int) -> bytes:
    return str(number).encode() * (1 + number * 7 % 90)


def numbers(found: Recovered) -> list[int]:
    """Return the numbers that a folder holds: a snapshot stands for all up to its own."""
    upto = int(found.snapshot or b"-1")
    rest = [next(n for n in range(1000) if content(n) == record) for record in found.records]
    assert rest == list(range(upto + 1, upto + 1 + len(rest)))
    return list(range(upto + 1)) + rest


def write(store: Store, first: int, last: int, done: Callable[[int], None]) -> None:
    """Append numbers as a device does: a new snapshot when the log is full."""
    for number in range(first, last):
        if store.full:
            store.begin(str(number).encode())
        else:
            store.append(content(number))
        done(number)


def filled(folder: Path, count: int, *, limit: int = 1_000_000) -> list[int]:
    """Write numbers, and return where in the log each record ends; a note follows it."""
    store, ends = Store(folder, limit=limit), []
    store.recover()
    store.begin(b"-1")
    for number in range(count):
        store.append(content(number))
        ends.append(store.log_bytes - NOTE)
    store.close()
    return ends


def recovered(folder: Path, disk: Disk = REAL) -> Recovered:
    store = Store(folder, limit=LIMIT, disk=disk)
    try:
        return store.recover()
    finally:
        store.close()


@given(seed=st.integers(0, 2**32), after=st.integers(0, 90), again=st.integers(0, 40))
def test_what_was_synced_survives_a_loss_of_power_at_any_operation(
    seed: int, after: int, again: int
) -> None:
    with TemporaryDirectory() as name:
        folder, disk = Path(name), FaultyDisk(seed)
        synced: list[int] = []
        for crash in (after, again):  # the second one while it recovers, or soon after
            disk.after = crash
            store = Store(folder, limit=LIMIT, disk=disk)
            try:
                known = numbers(store.recover())
                write(store, len(known), len(known) + 12, synced.append)
            except Crash:
                pass
            store.close()
            disk.lose_power()
            disk.after = None
            found = numbers(recovered(folder, disk))
            assert found[: len(synced)] == synced
            assert len(found) <= len(synced) + 1
            synced = found  # one more may be there, and then it stays


def test_files_are_bounded_and_old_ones_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=LIMIT)
    store.recover()
    for number in range(200):
        write(store, number, number + 1, lambda _: None)
        files = [file for file in tmp_path.iterdir() if file.name != "running"]
        assert len(files) == 2
        assert sum(file.stat().st_size for file in files) < LIMIT + 300
    store.close()
    assert numbers(recovered(tmp_path)) == list(range(200))


def test_a_log_that_is_cut_at_any_byte_keeps_all_whole_records(tmp_path: Path) -> None:
    ends = filled(tmp_path / "whole", 8)
    log = tmp_path / "whole" / "1.log"
    whole = log.read_bytes()
    head = ends[0] - 16 - len(content(0))
    for size in range(head, len(whole) + 1):
        log.write_bytes(whole[:size])
        found = recovered(tmp_path / "whole")
        assert numbers(found) == list(range(sum(end <= size for end in ends)))
        known = [head, *ends, *(end + NOTE for end in ends)]
        assert found.torn == size - max(place for place in known if place <= size)


def test_a_flipped_bit_is_an_error_with_file_and_place_also_in_the_last_record(
    tmp_path: Path,
) -> None:
    ends = filled(tmp_path, 6)
    log = tmp_path / "1.log"
    whole = log.read_bytes()
    begins = [0, ends[0] - 16 - len(content(0)), *(end + NOTE for end in ends)]
    for at in range(len(whole)):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        if any(end <= at < end + NOTE for end in ends):  # it says nothing but that
            assert numbers(recovered(tmp_path)) == list(range(6))
            continue
        with pytest.raises(StateDamaged) as caught:
            recovered(tmp_path)
        begin = max(one for one in begins if one <= at)
        assert caught.value.message == f'"{log}" is damaged at byte {begin}'
        assert "start empty" in (caught.value.hint or "")


def test_a_last_record_without_a_note_may_be_one_that_a_crash_has_torn(tmp_path: Path) -> None:
    ends = filled(tmp_path, 6)
    log = tmp_path / "1.log"
    whole = log.read_bytes()[: ends[-1]]
    for at in range(ends[-2] + NOTE, len(whole)):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        assert numbers(recovered(tmp_path)) == list(range(5))


def test_a_log_of_a_version_without_notes_is_read(tmp_path: Path) -> None:
    ends = filled(tmp_path, 6)
    log = tmp_path / "1.log"
    whole = log.read_bytes()
    begins = [0, *(end + NOTE for end in ends)]
    log.write_bytes(b"".join(whole[a:b] for a, b in zip(begins, ends, strict=False)))
    assert numbers(recovered(tmp_path)) == list(range(6))


def test_a_note_that_finds_no_room_ends_the_log_and_loses_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=LIMIT)
    store.recover()
    store.begin(b"-1")
    log, appended = store._log, []
    assert log is not None
    append = log.append

    def limited(buffers: list[bytes]) -> None:
        if appended:
            append([buffers[0][:5]])
            raise OSError(28, "No space left on device")
        appended.append(append(buffers))

    log.append = limited  # type: ignore[method-assign]
    store.append(content(0))
    assert store.full
    store.close()
    assert numbers(recovered(tmp_path)) == [0]


def test_a_snapshot_with_a_flipped_bit_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    file = tmp_path / "1.snapshot"
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(StateDamaged, match=r"1\.snapshot"):
            recovered(tmp_path)


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    (tmp_path / "1.log").unlink()
    with pytest.raises(StateDamaged, match=r"1\.log\" is missing"):
        recovered(tmp_path)


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=LIMIT)
    with pytest.raises(AlreadyRunning, match=f"in use by process {os.getpid()}"):
        Store(tmp_path, limit=LIMIT)
    store.close()
    Store(tmp_path, limit=LIMIT).close()


class FullDisk:
    """A disk that has no room left while `full`."""

    def __init__(self) -> None:
        self.full = False

    def open(self, path: Path) -> DiskFile:
        file, disk = REAL.open(path), self

        class Limited:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def sync(self) -> None:
                if disk.full:
                    raise OSError(28, "No space left on device")
                file.sync()

        return Limited()  # type: ignore[return-value]

    def __getattr__(self, name: str) -> object:
        return getattr(REAL, name)


def test_after_a_full_disk_the_next_snapshot_has_everything(tmp_path: Path) -> None:
    disk = FullDisk()
    store = Store(tmp_path, limit=LIMIT, disk=disk)  # type: ignore[arg-type]
    store.recover()
    write(store, 0, 3, lambda _: None)
    disk.full = True
    with pytest.raises(StateNotWritten, match="No space left"):
        store.append(content(3))
    assert store.full
    with pytest.raises(StateNotWritten, match="No space left"):
        store.begin(b"3")
    disk.full = False
    store.begin(b"3")
    store.append(content(4))
    store.close()
    assert numbers(recovered(tmp_path)) == [0, 1, 2, 3, 4]


CHILD = """
import sys
from pathlib import Path
from millstream.watch.disk import Store
from property.test_watch_disk import numbers, write
store = Store(Path(sys.argv[1]), limit=5_000)
known = numbers(store.recover())
write(store, len(known), 1000, lambda number: print(number, flush=True))
"""


def test_what_a_killed_writer_had_synced_is_there(tmp_path: Path) -> None:
    chance, known = random.Random(5), -1
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert child.stdout is not None
        for _ in range(chance.randint(1, 60)):
            child.stdout.readline()
        child.kill()
        printed = child.stdout.read().split(b"\n")[:-1]
        child.stdout.close()
        child.wait()
        known = int(printed[-1]) if printed else known
        found = numbers(recovered(tmp_path))
        assert found[-1] >= known
        known = found[-1]
    assert known > 6
