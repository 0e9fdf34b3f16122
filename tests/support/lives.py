"""Lives of a flow: events come in, versions are asked for, drivers die, and in the end all is out."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow.parquet as pq
import pytest

from millstream.spark import failpoints
from millstream.spark.flow_run import FlowRun, Options
from millstream.switch.record import Phase
from millstream.switch.request import SwitchRequest
from support.recording import END, Recording, perform
from support.switched import Build

#: A life that has not done what it should in so many turns will not.
MOST_TURNS: Final = 400
#: Nor one that waits so long for its next step, on whatever machine.
LIMIT_S: Final = 900.0
LIMIT: Final = timedelta(seconds=LIMIT_S)
#: While a switch comes to its cut, event time stands nearly still.
_STANDING: Final = (Phase.PREPARING, Phase.ASKING, Phase.CONFIRMING, Phase.CUTTING, Phase.ABORTING)
#: From there on it is only a matter of time until a version may go: so many turns come at once.
_MANY: Final = 12


def options(root: Path, rows: int = 200) -> Options:
    return Options(root / "data", root, rows_per_batch=rows, hosting=False)


class Wishes(Protocol):
    """What is asked of a flow while it lives."""

    def ask(self, run: FlowRun, build: Build, turns: int) -> None:
        """Ask for the next thing if it is time; what was aborted is asked for again."""

    def fulfilled(self, run: FlowRun, turns: int) -> bool:
        """Tell whether all is done."""


@dataclass(frozen=True, slots=True)
class Switches:
    """Versions 2, 3 and so on are asked for, each after so many turns."""

    after: tuple[int, ...]

    def ask(self, run: FlowRun, build: Build, turns: int) -> None:
        done = int(run.version) - 1
        if done < len(self.after) and turns > self.after[done] and run.switching() is None:
            run.switch(build(str(done + 2)), str(done + 2), SwitchRequest(timeout=LIMIT))

    def fulfilled(self, run: FlowRun, turns: int) -> bool:
        return (
            run.version == self.last
            and run.switching() is None
            and turns > max(self.after, default=0)
        )

    @property
    def last(self) -> str:
        """The version that runs in the end."""
        return str(len(self.after) + 1)


@dataclass(frozen=True, slots=True)
class Life:
    """A flow and what comes into it; a life goes on from where it was."""

    root: Path
    build: Build
    recording: Recording
    #: How many rows a batch has at most.
    rows: int = 200

    @property
    def turns(self) -> int:
        """How many turns it has had."""
        kept = self.root / "turns"
        return int(kept.read_text()) if kept.exists() else 0

    @contextmanager
    def running(self, spark: Any) -> Iterator[FlowRun]:
        """Start it, and stop it in the end."""
        run = FlowRun(
            spark, self.build("1"), options(self.root, self.rows), versions=self.build, version="1"
        )
        run.start()
        try:
            yield run
        finally:
            run.stop()

    def lived(self, spark: Any, wishes: Wishes) -> FlowRun:
        """Let it live until all that is asked of it is done, and it has ended."""
        with self.running(spark) as run:
            self.until(run, lambda: wishes.fulfilled(run, self.turns), wishes)
            self.end(run)
        return run

    def lived_through(self, spark: Any, wishes: Wishes, deaths: Iterable[str]) -> FlowRun:
        """Let it live, die at these points, one after the other, and go on after each."""
        for point in deaths:
            with dying(point):
                try:
                    run = self.lived(spark, wishes)
                except Died:
                    continue
            pytest.fail(f"{point} was never passed: {run.history()}")
        return self.lived(spark, wishes)

    def until(self, run: FlowRun, true: Callable[[], bool], wishes: Wishes | None = None) -> None:
        """Take turns until something is true, and ask for what is wanted after each."""
        while not true():
            self.take_a_turn(run)
            if wishes is not None:
                wishes.ask(run, self.build, self.turns)
            _wait(run, true)

    def end(self, run: FlowRun) -> None:
        """End what comes in, and wait until all is out."""
        perform(run, END, self.turns)
        assert run.wait(timeout=LIMIT_S), run.history()

    def take_a_turn(self, run: FlowRun) -> None:
        """Let the events of a turn come, or of several while a version leaves."""
        turn, (_, phase) = self.turns, _step(run)
        assert turn < MOST_TURNS, run.history()
        many = 1 if phase is None or phase in _STANDING else _MANY
        for one in range(turn, turn + many):
            perform(run, self.recording.turn(one), one)
        (self.root / "turns").write_text(str(turn + many))


def _wait(run: FlowRun, true: Callable[[], bool]) -> None:
    """Wait until all is read, or something has moved: a slow machine gets as many events as a quick one."""
    before, deadline = _step(run), time.monotonic() + LIMIT_S
    while not true() and not _moved(run, before):
        assert time.monotonic() < deadline, run.history()
        time.sleep(0.05)


def _moved(run: FlowRun, before: tuple[str, Phase | None]) -> bool:
    read = run.caught_up()
    now = _step(run)
    return now != before or (read and now[1] not in _STANDING)


def _step(run: FlowRun) -> tuple[str, Phase | None]:
    status = run.switching()
    return run.version, None if status is None else status.phase


def until(run: FlowRun, true: Callable[[], bool]) -> None:
    """Wait until something is true of a flow into which nothing comes."""
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline, run.history()
        run.poll()
        time.sleep(0.02)


# deaths


class Died(BaseException):
    """The driver is dead; its Spark is not, which saves its start."""


@contextmanager
def dying(point: str) -> Iterator[None]:
    """Let a driver die when it passes a point."""

    def die() -> None:
        raise Died(point)

    failpoints.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLSTREAM_FAIL_AT", point)
        patch.setattr(failpoints, "die", die)
        yield


# what came of it


def outcome(root: Path, sinks: Iterable[str]) -> dict[str, Counter[str]]:
    """Return the results of a life by sink, as texts that are the same for the same values."""
    return {
        sink: Counter(json.dumps(one, sort_keys=True) for one in written(root, sink))
        for sink in sinks
    }


def written(root: Path, sink: str) -> list[dict[str, Any]]:
    """Return the rows of a sink, as its lines have them."""
    lines = [
        json.loads(line)
        for file in (root / sink).glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    tables = [
        row for file in (root / sink).glob("*.parquet") for row in pq.read_table(file).to_pylist()
    ]
    return [
        *lines,
        *({name: _line(one) for name, one in row.items() if one is not None} for row in tables),
    ]


def _line(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value


def compare(run: FlowRun, found: dict[str, Counter[str]], right: dict[str, Counter[str]]) -> None:
    """Compare what came of a life with what should have."""
    for sink, lines in found.items():
        assert lines == right[sink], (sink, lines - right[sink], right[sink] - lines, run.history())
        assert lines.total() > 20, sink
