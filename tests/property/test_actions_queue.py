"""A runtime's queue on a disk that stops at every operation and forgets what was not synced."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millstream.actions.queue import Answer, Queue
from property.faulty_disk import Crash, FaultyDisk


@dataclass
class Seen:
    """What the queue has promised."""

    appended: list[tuple[int, bytes]] = field(default_factory=list)
    trimmed: int = 0
    inputs: dict[str, int] = field(default_factory=dict)
    asked: list[bytes] = field(default_factory=list)


def work(folder: Path, disk: FaultyDisk, chance: random.Random, seen: Seen) -> None:
    queue = Queue(folder, disk=disk, segment_bytes=600)
    given = dict(queue.inputs)
    try:
        for _ in range(8):
            step(queue, chance, seen, given)
    finally:
        queue.close()


def step(queue: Queue, chance: random.Random, seen: Seen, given: dict[str, int]) -> None:
    if chance.random() < 0.4 and queue.last:
        serial = chance.randint(queue.trimmed, queue.last)
        seen.trimmed = max(seen.trimmed, serial)
        queue.trim(serial)
        return
    answers = []
    for _ in range(chance.randint(1, 3)):
        sender = chance.choice(["x", "y", ""])
        payloads = [chance.randbytes(chance.randint(1, 150)) for _ in range(chance.randint(1, 3))]
        if sender:
            given[sender] = given.get(sender, 0) + 1
        answers.append(Answer(payloads, sender, given.get(sender, 0)))
    payloads = [payload for answer in answers for payload in answer.payloads]
    seen.asked = payloads
    before = queue.last
    queue.append(answers)
    seen.appended += list(zip(range(before + 1, queue.last + 1), payloads, strict=True))
    seen.asked = []
    for answer in answers:
        if answer.sender:
            seen.inputs[answer.sender] = answer.input


def check(folder: Path, disk: FaultyDisk, seen: Seen) -> None:
    queue = Queue(folder, disk=disk)
    cursor, found = queue.read(0), []
    while outputs := cursor.read():
        found += outputs
    queue.close()
    promised = dict(seen.appended)
    got = {output.serial: output.payload for output in found}
    # All that was promised and not trimmed is there; what more there is was being written.
    for serial, payload in seen.appended:
        if serial > seen.trimmed:
            assert got[serial] == payload
    extra = [got[serial] for serial in sorted(got) if serial not in promised]
    assert extra == seen.asked[: len(extra)]
    assert all(got[serial] == promised[serial] for serial in got if serial in promised)
    assert list(got) == list(range(queue.trimmed + 1, queue.last + 1))
    assert queue.trimmed <= seen.trimmed
    assert not found or found[-1].last
    for sender, number in seen.inputs.items():
        assert queue.inputs[sender] >= number


@pytest.mark.parametrize("seed", range(4))
def test_nothing_appended_is_lost_whenever_the_machine_stops(tmp_path, seed):
    whole = FaultyDisk(seed)
    work(tmp_path / "whole", whole, random.Random(seed), Seen())
    for after in range(whole.operations + 1):
        folder, disk, seen = tmp_path / str(after), FaultyDisk(seed * 1000 + after, after), Seen()
        with suppress(Crash):
            work(folder, disk, random.Random(seed), seen)
        disk.after = None
        disk.lose_power()
        check(folder, disk, seen)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_appended_is_lost_in_a_life_of_crashes(tmp_path, seed):
    chance, seen, disk = random.Random(seed), Seen(), FaultyDisk(seed)
    for _ in range(8):
        disk.after = chance.randint(3, 40)
        with suppress(Crash):
            work(tmp_path / "queue", disk, chance, seen)
        disk.after = None
        disk.lose_power()
        check(tmp_path / "queue", disk, seen)
        settle(tmp_path / "queue", disk, seen)


def settle(folder: Path, disk: FaultyDisk, seen: Seen) -> None:
    """What survived of the last, unfinished append is a promise now: it may have been sent since."""
    queue = Queue(folder, disk=disk)
    cursor = queue.read(0)
    known = dict(seen.appended)
    while outputs := cursor.read():
        seen.appended += [
            (output.serial, output.payload) for output in outputs if output.serial not in known
        ]
    seen.inputs |= queue.inputs
    seen.asked = []
    queue.close()
