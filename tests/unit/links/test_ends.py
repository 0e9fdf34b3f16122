from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from millstream.journal import Kind
from millstream.links.inbox import Inbox
from millstream.storage import disk
from support.links import batch, declare


def test_an_end_does_not_outlive_rows_that_the_disk_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, settings = declare(tmp_path)
    inbox = Inbox(description, 0, settings, upstreams=["a", "b"])
    released = threading.Event()

    def failing(_: disk.RealFile) -> None:
        released.wait(5)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(disk.RealFile, "sync", failing)
        rows = inbox.enqueue_nowait("a", range(10), batch(0, 10))
        end = inbox.instruct_nowait("a", 10, Kind.END_OF_STREAM)
        released.set()
        assert rows.result(120).taken == 0
        assert end.result(120).taken == 0
    until = time.monotonic() + 120
    while inbox.instruct_nowait("b", 0, Kind.END_OF_STREAM).result(120).taken == 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert inbox.enqueue("a", range(10), batch(0, 10)) == 10
    assert inbox.instruct_nowait("a", 10, Kind.END_OF_STREAM).result(120).taken == 1
    assert inbox.progress().ended
    inbox.close()
