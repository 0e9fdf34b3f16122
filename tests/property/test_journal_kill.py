"""A writer that is really killed, at any moment, while it writes and rolls segments."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from millstream.journal.kinds.files.description import create
from millstream.journal.kinds.files.verify import verify
from millstream.journal.kinds.files.writer import Writer
from property.journal_model import SCHEMA, Model, rows, stored

TESTS = str(Path(__file__).parents[1])
CHILD = """
import sys
from millstream.journal.kinds.files.writer import Writer
from property.journal_model import rows
writer = Writer.open(sys.argv[1], segment_bytes=20_000)
first = writer.highest("a") + 1
waiting = []
while True:
    waiting.append((first, writer.append_nowait("a", first, rows("a", first, 7))))
    first += 7
    while waiting and waiting[0][1].done():
        waiting.pop(0)[1].result()
        print(first - 7 * len(waiting), flush=True)
    if len(waiting) > 50:
        waiting[0][1].result()
"""


def test_what_a_killed_writer_had_acknowledged_is_there(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    create(path, SCHEMA, time="at")
    model, chance = Model(), random.Random(3)
    for _ in range(2):
        command = [sys.executable, "-c", CHILD, str(path)]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": TESTS}
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0.05, 0.3))
        child.kill()
        told = child.stdout.read().split(b"\n")[:-1]
        child.stdout.close()
        child.wait()
        assert told
        model.note("a", 0, int(told[-1]))
        model.check(stored(path))
    with Writer.open(path) as writer:
        first = writer.highest("a") + 1
        writer.append("a", 0, rows("a", 0, first + 5))
    assert [seq for _, _, seq in stored(path)] == list(range(first + 5))
    assert verify(path).damages == ()
