"""What is fetched or built once, however many processes need it at the same time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from millstream.testing.jars import made_once


def test_one_makes_it_and_the_others_wait(tmp_path: Path) -> None:
    made: list[Path] = []
    found: list[Path] = []
    begun = threading.Event()

    def make(folder: Path) -> Path:
        made.append(folder)
        begun.set()
        time.sleep(0.05)  # long enough for another to come in between, if nothing keeps it out
        (folder / "fresh").mkdir()
        return folder / "fresh"

    place = tmp_path / "cache" / "jars"
    threads = [
        threading.Thread(target=lambda: found.append(made_once(place, make))) for _ in range(4)
    ]
    threads[0].start()
    begun.wait()
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == [place] * 4
    assert place.is_dir()


def test_what_could_not_be_made_is_tried_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> Path:
        (folder / "half").touch()
        raise RuntimeError("no network")

    def make(folder: Path) -> Path:
        (folder / "whole").write_text("whole")
        return folder / "whole"

    with pytest.raises(RuntimeError, match="no network"):
        made_once(tmp_path / "program", fail)
    assert made_once(tmp_path / "program", make).read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.lock", "program"]
