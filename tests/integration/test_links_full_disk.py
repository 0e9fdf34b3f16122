"""A disk that is full: the sender and the log of the host say so, once, and it goes on when there is room."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from millstream.errors import NoAnswer
from millstream.links.client import connect
from support.links import TARGET, declare, hosted, row, stored, wait_for


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    data = tmp_path / "small"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(data)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot here: mount a disk")
    yield data
    subprocess.run(["umount", "-l", str(data)], check=True)


def test_a_full_disk_is_told_once_to_both(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    schema = "origin string, n long, at timestamp, body string"
    declare(small, schema)
    ballast = small / "ballast"
    ballast.write_bytes(bytes(1_800_000))
    large = {**row(0), "body": "x" * 400_000}
    with caplog.at_level(logging.INFO), closing(hosted(small)) as host:
        with connect(small) as client:
            began = time.monotonic()
            with pytest.raises(
                NoAnswer, match=r'"f.s" takes nothing: its disk refuses: .*space'
            ) as found:
                client.send(TARGET, large, timeout=4.0)
            assert time.monotonic() - began >= 3.5  # it was tried again meanwhile
            assert found.value.hint
            assert "space" in str(host.statistics()["s"][0].error)
            told = [one.getMessage() for one in caplog.records if "inbox s/0" in one.getMessage()]
            assert len(told) == 1, told
            assert "takes nothing" in told[0]
            ballast.unlink()
            client.flush(timeout=120.0)
        wait_for(lambda: host.statistics()["s"][0].error is None)
    told = [one.getMessage() for one in caplog.records if "inbox s/0" in one.getMessage()]
    assert [one.partition(":")[0] for one in told] == [
        "inbox s/0 takes nothing",
        "inbox s/0 takes events again",
    ]
    assert stored(small) == [[0]]
