from __future__ import annotations

import errno
import random
import struct
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from millstream.actions.queue import Answer, Queue, _record
from millstream.actions.serials import id_of
from millstream.errors import AlreadyWriting, QueueBroken, QueueDamaged, QueueFull
from millstream.storage.disk import RealDisk, RealFile

WRAP = 2**32


def queue(tmp_path: Path, **options) -> Queue:
    return Queue(tmp_path / "queue", **options)


def numbers(*values: int, sender: str = "up", size: int = 4) -> list[Answer]:
    return [Answer([value.to_bytes(size, "big")], sender, value) for value in values]


def rest(queue: Queue, serial: int = 0) -> list[tuple[int, int]]:
    cursor, found = queue.read(serial), []
    while outputs := cursor.read():
        found += [(output.serial, int.from_bytes(output.payload, "big")) for output in outputs]
    return found


def disk_bytes(queue: Queue) -> int:
    return sum(path.stat().st_size for path in queue.folder.glob("*.queue"))


def test_what_was_appended_is_read_in_order_and_again_after_opening(tmp_path):
    one = queue(tmp_path)
    assert one.append(numbers(10, 20)) == 2
    assert one.append(numbers(30)) == 3
    assert rest(one) == [(1, 10), (2, 20), (3, 30)]
    one.close()
    two = queue(tmp_path)
    assert rest(two) == [(1, 10), (2, 20), (3, 30)]
    assert (two.last, two.oldest, two.inputs) == (3, 1, {"up": 30})
    assert two.append(numbers(40)) == 4
    two.close()


def test_an_output_knows_its_input(tmp_path):
    one = queue(tmp_path)
    one.append([Answer([b"a", b"b"], "x", 7), Answer([b"c"], "y", 1), Answer([b"d"])])
    found = one.read(0).read()
    assert [(o.payload, o.sender, o.input, o.last) for o in found] == [
        (b"a", "x", 7, False),
        (b"b", "x", 7, True),
        (b"c", "y", 1, True),
        (b"d", "", 0, True),
    ]
    one.close()


def test_trimming_tells_which_inputs_are_done(tmp_path):
    one = queue(tmp_path)
    one.append([Answer([b"a", b"b"], "x", 7), Answer([b"c"], "y", 1), Answer([b"d"], "x", 9)])
    assert one.trim(1) == {}  # half of the answer to 7
    assert one.trim(2) == {"x": 7}
    assert one.trim(2) == {}
    assert one.trim(99) == {"y": 1, "x": 9}
    assert (one.oldest, one.last) == (0, 4)
    one.close()


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_it_is_the_same_whether_answers_are_remembered_or_read_again(tmp_path, monkeypatch, most):
    monkeypatch.setattr("millstream.actions.queue._MOST_RECENT", most)
    one = queue(tmp_path, segment_bytes=1_000)
    for value in range(1, 31):
        one.append([Answer([b"x" * 50] * (1 + value % 3), f"s{value % 2}", value)])
    done = [one.trim(serial) for serial in (1, 2, 5, 6, 20, 21, 40, one.last)]
    one.close()
    needs, last = {}, 0
    for value in range(1, 31):
        last += 1 + value % 3
        needs[value] = last
    expected, trimmed = [], 0
    for serial in (1, 2, 5, 6, 20, 21, 40, last):
        expected.append({f"s{v % 2}": v for v, need in needs.items() if trimmed < need <= serial})
        trimmed = serial
    assert done == expected


def test_a_cursor_sees_what_comes_later(tmp_path):
    one = queue(tmp_path)
    cursor = one.read(0)
    assert cursor.read() == []
    one.append(numbers(1))
    assert [o.serial for o in cursor.read()] == [1]
    one.trim(1)
    one.append(numbers(2, 3))
    assert [o.serial for o in cursor.read()] == [2, 3]
    assert cursor.read() == []
    one.close()


def test_trimming_frees_the_disk(tmp_path):
    one = queue(tmp_path, segment_bytes=10_000)
    cursor = one.read(0)
    highest = 0
    for value in range(200):
        one.append(numbers(value + 1, size=1000))
        highest = max(highest, disk_bytes(one))
        cursor.read()
        if value >= 5:
            one.trim(value - 4)
    assert highest < 40_000
    one.trim(one.last)
    assert disk_bytes(one) < 3_000
    assert one.size == disk_bytes(one)
    one.close()


def test_a_queue_that_is_always_empty_again_stays_small(tmp_path):
    one = queue(tmp_path, segment_bytes=10_000)
    for value in range(500):
        one.trim(one.append(numbers(value + 1, size=500)))
        assert disk_bytes(one) < 4_000
    assert one.append(numbers(501)) == 501
    one.close()
    two = queue(tmp_path)
    assert rest(two) == [(501, 501)]
    two.close()


def test_a_small_read_is_continued(tmp_path):
    one = queue(tmp_path, segment_bytes=2_000)
    for value in range(30):
        one.append(numbers(value + 1, size=200))
    cursor, found = one.read(10), []
    while outputs := cursor.read(1):
        found += [output.serial for output in outputs]
    assert found == list(range(11, 31))
    one.close()


def test_ids_go_on_around_the_wrap(tmp_path):
    one = queue(tmp_path, segment_bytes=500)
    one._state.last = one._state.trimmed = WRAP - 4
    one._begin_segment()
    one._known_from = WRAP - 4
    one.append(numbers(*range(1, 30)))
    one.close()
    two = queue(tmp_path, segment_bytes=500)
    serials = [serial for serial, _ in rest(two)]
    assert [id_of(serial) for serial in serials[:5]] == [WRAP - 3, WRAP - 2, WRAP - 1, 1, 2]
    assert [value for _, value in rest(two)] == list(range(1, 30))
    assert two.trim(serials[3]) == {"up": 4}
    assert id_of(two.oldest) == 2
    assert two.trim(WRAP) == {}  # the serial that is left out
    two.close()


def test_notes_are_kept(tmp_path):
    one = queue(tmp_path, segment_bytes=1_000)
    one.note("generation", "3")
    for value in range(20):
        one.append(numbers(value + 1, size=200))
    one.trim(one.last)
    one.close()
    two = queue(tmp_path)
    assert two.notes == {"generation": "3"}
    assert two.inputs == {"up": 20}
    two.close()


def test_a_note_and_a_new_sender_cost_what_they_change(tmp_path):
    one = queue(tmp_path, segment_bytes=1 << 20)
    for number in range(100):
        one.note(f"fence:{number}", "x" * 1000)
    assert disk_bytes(one) < 200_000  # 5 MB if each wrote all of them
    for number in range(100):
        one.append([Answer([b"y"], f"sender {number} {'z' * 1000}", 1)])
    assert disk_bytes(one) < 400_000
    one.close()
    two = queue(tmp_path)
    assert len(two.notes) == len(two.inputs) == 100
    cursor, senders = two.read(0), []
    while outputs := cursor.read():
        senders += [output.sender for output in outputs]
    assert senders == [f"sender {number} {'z' * 1000}" for number in range(100)]
    two.close()


def test_notes_alone_do_not_fill_the_disk(tmp_path):
    one = queue(tmp_path, segment_bytes=1 << 10)
    for number in range(200):
        one.note("generation", str(number))
    assert disk_bytes(one) < 1 << 11
    one.close()
    assert queue(tmp_path).notes == {"generation": "199"}


def test_a_queue_of_the_version_before_is_read(tmp_path):
    """Then every note and every new sender wrote the whole state."""

    def state(**fields: object) -> bytes:
        empty = {"last": 0, "trimmed": 0, "inputs": {}, "senders": [], "notes": {}}
        return _record(b"\0" + msgspec.json.encode({**empty, **fields}))

    notes = {"fence:up": "3"}
    output = struct.pack(">BBIQQ", 1, 1, 1, 1, 9) + b"payload"
    file = tmp_path / "queue" / f"{1:020d}.queue"
    file.parent.mkdir()
    file.write_bytes(
        state() + state(notes=notes) + state(notes=notes, senders=["up#3"]) + _record(output)
    )
    one = queue(tmp_path)
    assert (one.notes, one.inputs, one.last) == (notes, {"up#3": 9}, 1)
    one.append([Answer([b"more"], "other#1", 1), Answer([b"last"], "up#3", 10)])
    senders = [(found.sender, found.payload) for found in one.read(0).read()]
    assert senders == [("up#3", b"payload"), ("other#1", b"more"), ("up#3", b"last")]
    one.close()


def test_a_torn_tail_is_cut_and_an_answer_is_there_whole_or_not_at_all(tmp_path):
    one = queue(tmp_path)
    one.append(numbers(1))
    keep = one.size
    one.append([Answer([b"a" * 50, b"b" * 50, b"c" * 50], "up", 2)])
    end, file = one.size - 17, one._active.path  # without the record that says it is synced
    one.close()
    whole = file.read_bytes()
    for size in range(keep, end):
        file.write_bytes(whole[:size])
        two = queue(tmp_path)
        assert rest(two) == [(1, 1)]
        assert two.inputs == {"up": 1}
        assert two.append(numbers(5)) == 2
        two.close()


def test_damage_before_the_tail_is_said(tmp_path):
    one = queue(tmp_path, segment_bytes=1_000)
    for value in range(20):
        one.append(numbers(value + 1, size=200))
    first = one._segments[0].path
    one.close()
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    two = queue(tmp_path)
    with pytest.raises(QueueBroken, match="is damaged at byte"):
        rest(two)
    two.close()


def test_a_queue_has_one_owner(tmp_path):
    one = queue(tmp_path)
    with pytest.raises(AlreadyWriting):
        queue(tmp_path)
    one.close()


class SmallFile(RealFile):
    room = 0
    error = errno.ENOSPC

    def append(self, buffers):
        wanted = sum(len(b) for b in buffers)
        if self.size() + wanted > SmallFile.room:
            super().append([b"".join(buffers)[: max(0, SmallFile.room - self.size())]])
            raise OSError(SmallFile.error, "no room")
        super().append(buffers)


class SmallDisk(RealDisk):
    def open(self, path):
        return SmallFile(path)


def test_a_full_disk_is_said_and_loses_nothing(tmp_path):
    SmallFile.room, SmallFile.error = 1_000, errno.ENOSPC
    one = queue(tmp_path, disk=SmallDisk())
    one.append(numbers(1, size=300))
    with pytest.raises(QueueFull, match="is full"):
        one.append(numbers(2, sender="another", size=900))
    assert rest(one) == [(1, 1)]
    SmallFile.room = 10_000
    assert one.append(numbers(3, sender="another", size=900)) == 2
    assert rest(one) == [(1, 1), (2, 3)]
    assert one.trim(2) == {"up": 1, "another": 3}
    one.close()
    two = queue(tmp_path)
    assert (two.last, two.trimmed) == (2, 2)
    two.close()


def test_a_full_disk_at_the_end_of_a_segment(tmp_path):
    SmallFile.room, SmallFile.error = 100_000, errno.ENOSPC
    one = queue(tmp_path, disk=SmallDisk(), segment_bytes=500)
    one.append(numbers(1, size=600))
    SmallFile.room = 10
    with pytest.raises(QueueFull):
        one.append(numbers(2, sender="b"))
    SmallFile.room = 100_000
    one.append(numbers(3, sender="b"))
    assert one.trim(2) == {"up": 1, "b": 3}
    one.close()


def test_a_disk_that_fails_breaks_the_queue(tmp_path):
    SmallFile.room, SmallFile.error = 1_000, errno.EIO
    one = queue(tmp_path, disk=SmallDisk())
    one.append(numbers(1))
    with pytest.raises(QueueBroken):
        one.append(numbers(2, size=2_000))
    with pytest.raises(QueueBroken, match="is broken"):
        one.append(numbers(2))
    one.close()
    two = queue(tmp_path)
    assert rest(two) == [(1, 1)]
    two.close()


def filled(tmp_path: Path) -> tuple[Path, dict[int, bytes]]:
    """Return the last segment of a queue, and the outputs that are not trimmed."""
    one = queue(tmp_path, segment_bytes=20_000)
    for value in range(1, 101):
        one.append([Answer([value.to_bytes(2, "big") * 30] * 3, f"s{value % 3}", value)])
        if value == 20:
            one.trim(30)
    file = one._active.path
    one.close()
    outputs = {
        3 * (value - 1) + at: value.to_bytes(2, "big") * 30
        for value in range(1, 101)
        for at in (1, 2, 3)
    }
    return file, {serial: payload for serial, payload in outputs.items() if serial > 30}


def test_a_flipped_bit_never_cuts_what_was_durable(tmp_path):
    _, outputs = filled(tmp_path)
    chance = random.Random(5)
    for _ in range(150):
        path = chance.choice(sorted((tmp_path / "queue").glob("*.queue")))
        whole = bytearray(path.read_bytes())
        bit = chance.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found = payloads(tmp_path)
        assert found in (None, outputs)
        assert found is not None or path.read_bytes() == flipped, "nothing is cut"
        path.write_bytes(whole)


def payloads(tmp_path: Path) -> dict[int, bytes] | None:
    """Return the outputs after those that are trimmed; None if the queue is damaged."""
    with suppress(QueueDamaged), closing(queue(tmp_path, segment_bytes=20_000)) as two:
        found, cursor = {}, two.read(30)
        while some := cursor.read():
            found |= {one.serial: one.payload for one in some}
        return found
    return None


def old(*bodies: bytes) -> bytes:
    """Return a segment as 0.1 wrote it."""
    state = msgspec.json.encode({"senders": ["up"]})
    return b"".join(map(_record, (b"\0" + state, *bodies)))


def output(serial: int) -> bytes:
    return struct.pack(">BBIQQ", 1, 1, 1, serial, serial) + b"x" * 30


def test_a_segment_of_the_version_before_is_damaged_if_sound_records_follow(tmp_path):
    (tmp_path / "queue").mkdir()
    file = tmp_path / "queue" / f"{1:020d}.queue"
    whole = old(output(1), output(2), output(3))
    file.write_bytes(whole[:-5])
    one = queue(tmp_path)
    assert [serial for serial, _ in rest(one)] == [1, 2], "a torn tail is cut"
    assert one.append(numbers(9)) == 3
    one.close()
    two = queue(tmp_path)
    assert [serial for serial, _ in rest(two)] == [1, 2, 3]
    two.close()
    harmed = bytearray(whole)
    harmed[-2 * len(_record(output(1))) + 20] ^= 1
    file.write_bytes(harmed)
    with pytest.raises(QueueDamaged, match=r"queue\" is damaged at byte"):
        queue(tmp_path)
