"""A group that stops while a batch is being published."""

from __future__ import annotations

import threading
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import InternalError
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.io.sink import GroupSink
from millstream.spark.io.targets import Epoch, Target


class Rows:
    """A batch of which nobody looks at the rows."""

    def drop(self, *names: str) -> Rows:
        return self


class SlowTarget(Target):
    """Writes when it is let go."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.written: list[int] = []

    def write(self, frame: Any, epoch: Epoch) -> int:
        self.began.set()
        assert self.go.wait(120)
        self.written.append(epoch.batch)
        return 0


@pytest.fixture
def sink(tmp_path: Path) -> GroupSink:
    checkpoint = Checkpoint(tmp_path, "sums", "abc", {})
    offsets = checkpoint.location / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0}\n-\n')
    return GroupSink("shop", checkpoint, [SlowTarget()], {}, stateful=False, behind=timedelta(0))


def test_a_sink_is_shut_when_what_is_being_published_is_out(sink: GroupSink) -> None:
    (target,) = sink.targets
    assert isinstance(target, SlowTarget)
    frame: Any = Rows()
    publishing = threading.Thread(target=sink, args=(frame, 0))
    publishing.start()
    assert target.began.wait(120)
    assert not sink.shut(0.01)
    threading.Timer(0.05, target.go.set).start()
    assert sink.shut()
    assert target.written == [0]
    publishing.join()


def test_a_sink_that_is_shut_publishes_nothing(sink: GroupSink) -> None:
    frame: Any = Rows()
    assert sink.shut()
    with pytest.raises(InternalError, match="after its end"):
        sink(frame, 0)


def test_a_batch_that_a_stop_ends_tells_spark_no_more_than_that(sink: GroupSink) -> None:
    """Spark's regular expression for it overflows the stack of Java on a whole traceback."""
    frame: Any = None  # what fails
    sink.stop_soon()
    with pytest.raises(InterruptedError) as raised:
        sink(frame, 0)
    told = "".join(traceback.format_exception(raised.value))
    assert "An error occurred while calling the sink: java.lang.InterruptedException" in told
    assert "AttributeError" not in told
    assert isinstance(sink.error, AttributeError)
