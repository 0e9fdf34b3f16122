"""A task on a host that does not see the driver's folders says so, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from millstream.errors import JournalMissing, RunError
from millstream.spark.io.ranges import Range, TaskRanges
from millstream.spark.io.source import JournalStreamReader, ReadSettings
from millstream.spark.io.staging import StageFiles, StageJournal
from millstream.spark.io.unseen import expected_here

ROWS = pa.record_batch({"k": ["a"]})


def read(folder: Path) -> Iterator[pa.RecordBatch]:
    settings = ReadSettings("j", str(folder), ("k",), "", None, 0, False, 1, 1)
    reader = JournalStreamReader(settings)
    return reader.read(TaskRanges((Range(0, 0, 1),)))


TASKS: dict[str, Callable[[Path], Iterator[pa.RecordBatch]]] = {
    "read": read,
    "stage for a journal": lambda folder: StageJournal(str(folder), "k").write(iter([ROWS])),
    "stage files": lambda folder: StageFiles(str(folder), "p", "parquet").write(iter([ROWS])),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_folder_that_is_not_on_this_host_is_named_with_what_to_do(
    task: Callable[[Path], Iterator[pa.RecordBatch]], tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    with pytest.raises(RunError, match=f'does not see the folder "{folder}"') as caught:
        list(task(folder))
    assert "--serve always" in (caught.value.hint or "")


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(JournalMissing), expected_here(str(tmp_path)):
        raise JournalMissing("no description")
    with pytest.raises(FileNotFoundError), expected_here("kafka://host:9092/topic"):
        raise FileNotFoundError("a certificate")
    with pytest.raises(msgspec.ValidationError), expected_here(str(tmp_path / "none")):
        msgspec.json.decode(b"1", type=str)
