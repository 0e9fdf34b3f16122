"""The disk as a kill -9 would leave it, without the kill: everything stands still while it is copied.

A process of ours runs a flow again and again with one Spark session. Whenever it gets to the point
that it was asked for, it stands still with all that it has started, we copy the flow's folder, and
go on with the copy, as a new process would after a kill: nothing was closed, flushed or tidied.

    python -m support.frozen     reads lines "FOLDER POINT COUNT ROWS"
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from support.crash import kill

TESTS: Final = Path(__file__).parents[1]
#: The end of a flow as a point.
END: Final = "end"
Point = tuple[str, int]


def killed_at(
    folder: Path, points: Sequence[Point], rows: int, *, killed: Point | None = None
) -> Path:
    """Run a flow to its end, as if killed at each of these points; return the folder where it ended.

    A point is a name and how often it is passed. At the point `killed`, after the others, the
    process is killed for real, with its Java, while groups that are not there go on.
    """
    log = folder.parent / "errors.txt"
    runs = FrozenRuns(log)
    try:
        for number, (point, count) in enumerate(points, 1):
            place = folder.parent / f"{number}-{point}"
            runs.reach(folder, point, count, rows)
            runs.copy(folder, place)
            folder = place
        if killed is not None:
            runs.reach(folder, *killed, rows)
            runs.close()
            runs = FrozenRuns(log)
        runs.reach(folder, END, 0, rows)
    finally:
        runs.close()
    return folder


class FrozenRuns:
    """Runs of a flow in one process, each up to a point."""

    def __init__(self, log: Path) -> None:
        self._log = log
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.frozen"],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def reach(self, folder: Path, point: str, count: int, rows: int) -> None:
        """Go on with a folder, until a point is passed the so-many-th time; it waits there."""
        self._write(f"{folder} {point} {count} {rows}")
        self._read("reached")

    def copy(self, folder: Path, place: Path) -> None:
        """Copy a folder in a moment in which nothing moves, and then let the run end."""
        with stillness(self.process):
            shutil.copytree(folder, place, symlinks=True)
        self._write("go on")
        self._read("stopped")

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def _read(self, wanted: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        assert line == wanted, f"{line}: {self._log.read_text()[-3000:]}"

    def close(self) -> None:
        """Kill it, with all that it has started."""
        kill(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@contextmanager
def stillness(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let a process and all that it has started stand still for the length of a block."""
    top = psutil.Process(process.pid)
    still: dict[int, psutil.Process] = {}
    try:
        # What is stopped starts nothing more, so this ends.
        while fresh := [p for p in [top, *top.children(recursive=True)] if p.pid not in still]:
            for one in fresh:
                still[one.pid] = one
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
            until = time.monotonic() + 10
            while any(_moves(one) for one in fresh):
                assert time.monotonic() < until
                time.sleep(0.001)
        yield
    finally:
        for one in reversed(still.values()):
            with suppress(psutil.NoSuchProcess):
                one.resume()


def _moves(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return False


# in the process


def main() -> None:
    from millstream.flow.load import load
    from millstream.spark.session.session import session

    answers, sys.stdout = sys.stdout, sys.stderr
    spark, flow = None, None
    for line in sys.stdin:
        folder, point, count, rows = line.split()
        flow = flow or load(Path(folder) / "flow.py")
        spark = spark or session("frozen", master="local[2]", log=Path(folder).parent / "spark.log")
        run = _Run(point, int(count))
        with run.started(spark, flow, Path(folder), int(rows)):
            print("reached", file=answers, flush=True)
            sys.stdin.readline()
            run.released.set()
        print("stopped", file=answers, flush=True)


class _Run:
    """A run that is held at a point."""

    def __init__(self, point: str, count: int) -> None:
        self._point, self._count = point, count
        self._guard = threading.Lock()
        self._reached = threading.Event()
        self.released = threading.Event()

    @contextmanager
    def started(self, spark, flow, folder: Path, rows: int) -> Iterator[None]:  # type: ignore[no-untyped-def]
        from millstream.spark.failpoints import watched
        from millstream.spark.flow_run import FlowRun, Options

        parent, options = os.getppid(), Options(folder / ".millstream", folder, rows)
        run = FlowRun(spark, flow, options)
        with watched(self._passed):
            run.start()
            try:
                while not self._reached.wait(0.02):
                    assert os.getppid() == parent, "the test is gone"
                    if run.poll():
                        assert self._point == END, f"it has ended before {self._point}"
                        break
                yield
            finally:
                self.released.set()
                run.stop()

    def _passed(self, point: str) -> None:
        if point != self._point:
            return
        with self._guard:
            self._count -= 1
            held = self._count == 0
        if held:
            self._reached.set()
            self.released.wait()
            # Whoever was killed here would write nothing more, neither here nor to another host.
            raise RuntimeError("killed")


if __name__ == "__main__":
    main()
