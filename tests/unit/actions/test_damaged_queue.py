from __future__ import annotations

from pathlib import Path

import pytest

from millstream.actions.program import Program
from millstream.actions.queue import Answer, Queue
from millstream.actions.runtime import Runtime
from millstream.actions.settings import RuntimeSettings
from millstream.errors import QueueDamaged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A queue with a flipped bit in the middle."""
    queue = Queue(tmp_path / "queue")
    for value in range(1, 20):
        queue.append([Answer([b"x" * 100], "up", value)])
    queue.note("generation", "3")
    file = queue._active.path
    queue.close()
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    return tmp_path / "queue"


def settings(folder: Path, *, listens: str | None = "127.0.0.1:0", generation: int | None = None):
    return RuntimeSettings("node", Program(("cat",)), folder, listens, generation=generation)


def test_a_runtime_sets_a_damaged_queue_aside_and_continues_in_a_new_life(folder):
    damaged = next(folder.glob("*.queue")).read_bytes()
    log: list[str] = []
    one = Runtime(settings(folder), log.append)
    assert one._queue.inputs == {}, "its upstreams send again"
    assert int(one._queue.notes["generation"]) > 3, "downstreams see that it is another life"
    one.close()
    (aside,) = folder.glob("aside-*/*.queue")
    assert aside.read_bytes() == damaged
    assert len(log) == 1
    assert "is damaged at byte" in log[0]
    assert str(aside.parent) in log[0]


def test_under_a_supervisor_it_ends_to_be_replaced(folder):
    with pytest.raises(QueueDamaged):
        Runtime(settings(folder, generation=3), lambda _: None)
    assert list(folder.glob("aside-*/*.queue"))
    Runtime(settings(folder, generation=4), lambda _: None).close()


def test_the_queue_of_a_source_stays_where_it_is(folder):
    for _ in range(2):
        with pytest.raises(QueueDamaged):
            Runtime(settings(folder, listens=None), lambda _: None)
    assert not list(folder.glob("aside-*"))
