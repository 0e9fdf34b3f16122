"""Programs in any language: 1 M messages of 100 bytes through an echo, in Spark and outside it.

bare       frames written and read by a plain loop over two pipes, bytes not looked at: the limit
worker     what a Python worker of Spark does with an Arrow column
action     the stage in Spark, raw bytes; against RDD.pipe, which knows only lines of text
runtime    source to sink over TCP with the disk queue on, and one message at a time
recovery   from kill -9 of a runtime to the next message of its successor

Beside the seconds of the clock stand those of the processors, of all processes together: on a
machine that has other work to do they are what can be compared. They are counted in hundredths, so
they are means over all turns. "best" compares the fastest turns.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from benchmarks.common import Timing, folder, save, show

from millstream.actions import wire
from millstream.actions.answers import pieces_of
from millstream.actions.program import Program
from millstream.actions.worker import Worker
from millstream.flow.schema import Schema
from millstream.flow.stages import Action

SDK = Path(__file__).parents[1] / "sdk"
BATCH = 65_536  # what workers get in the session of a flow
SIZE = 100


def echo_c(where: Path) -> tuple[str, ...]:
    target = where / "echo"
    subprocess.run(
        ["gcc", "-std=c11", "-O2", "-o", str(target), str(SDK / "c" / "programs.c")], check=True
    )
    return (str(target), "echo")


def echo_python() -> tuple[str, ...]:
    return (sys.executable, "-S", str(SDK / "python" / "programs.py"), "echo")


class Turns:
    """Measurements of one thing, turn by turn: seconds of the clock, and of the processors for all that we have started."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []
        self.by_kind: list[dict[str, float]] = []
        self.busy: list[list[float]] = []

    def take(self, run: Callable[[], Any]) -> None:
        used, idle, began = cpu_seconds(), idle_seconds(), time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        found = {kind: value - used.get(kind, 0.0) for kind, value in cpu_seconds().items()}
        self.seconds.append(seconds)
        self.cpu.append(sum(found.values()))
        self.by_kind.append(found)
        pairs = zip(idle, idle_seconds(), strict=True)
        self.busy.append([max(0.0, 1 - (after - before) / seconds) for before, after in pairs])

    def plain(self) -> dict[str, Any]:
        return {**Timing(tuple(self.seconds)).plain(), "cpu_s": round(statistics.mean(self.cpu), 3)}

    def cores(self) -> dict[str, Any]:
        """Return who used the processors, in seconds of a turn, and how busy each core was, by whomever."""
        kinds = {kind for found in self.by_kind for kind in found}
        return {
            "cpu_of": {
                kind: _median(found.get(kind, 0.0) for found in self.by_kind)
                for kind in sorted(kinds)
            },
            "cores_used": _median(
                cpu / seconds for cpu, seconds in zip(self.cpu, self.seconds, strict=True)
            ),
            "cores_busy": [_median(cores) for cores in zip(*self.busy, strict=True)],
        }

    def times(self, other: Turns) -> dict[str, float]:
        """Return how many times as long this takes as another: turn by turn, at best, and in processor time."""
        pairs = [ours / theirs for ours, theirs in zip(self.seconds, other.seconds, strict=True)]
        return {
            "median": round(statistics.median(pairs), 2),
            "best": round(min(self.seconds) / min(other.seconds), 2),
            "cpu": round(sum(self.cpu) / max(0.01, sum(other.cpu)), 2),
        }


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def cpu_seconds() -> dict[str, float]:
    """Return the processor time of this process and all that it has started, those that have ended too, by kind."""
    found: dict[str, float] = {}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error):
            kind = _kind(process)
            found[kind] = found.get(kind, 0.0) + sum(process.cpu_times()[:4])
    return found


def _kind(process: psutil.Process) -> str:
    if process.pid == os.getpid():
        return "driver"
    if process.name() == "java":
        return "jvm"
    return "program" if process.cmdline()[-1:] == ["echo"] else "python"


def idle_seconds() -> list[float]:
    """Return how long each core has had nothing to do."""
    return [times.idle + getattr(times, "iowait", 0.0) for times in psutil.cpu_times(percpu=True)]


def programs() -> dict[int, float]:
    """Return the processor time of each echo that runs."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.cmdline()[-1:] == ["echo"]:
                found[process.pid] = sum(process.cpu_times()[:2])
    return found


def bare(argv: tuple[str, ...], data: bytes) -> Callable[[], None]:
    """Return a loop that gives bytes to a program and reads as many back, both at once."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    sink, source = process.stdin.fileno(), process.stdout.fileno()
    for fd in (sink, source):
        os.set_blocking(fd, False)
    room = memoryview(bytearray(1 << 20))

    def run() -> None:
        view, left = memoryview(data), len(data)
        poller = select.poll()
        poller.register(source, select.POLLIN)
        poller.register(sink, select.POLLOUT)
        while left:
            for fd, _ in poller.poll():
                if fd == source:
                    left -= os.readv(source, [room])
                elif view:
                    view = view[os.write(sink, view) :]
                    if not view:
                        poller.unregister(sink)

    return run


def column(rows: int) -> pa.Array:
    return pa.array([b"%0100d" % number for number in range(rows)], pa.binary())


def mixed(rows: int) -> pa.Array:
    """Return messages of 50 to 150 bytes."""
    return pa.array(
        [b"%0*d" % (50 + number * 37 % 101, number) for number in range(rows)], pa.binary()
    )


def pipes(where: Path, rows: int, turns: int) -> dict[str, Any]:
    """Measure one worker against the bare loop, turn by turn."""
    values = column(rows)
    echo = echo_c(where)
    cases = (
        ("C", echo, values),
        ("Python", echo_python(), values),
        ("C, 50 to 150 bytes", echo, mixed(rows)),
    )
    return {name: _beside_bare(argv, given, where, turns) for name, argv, given in cases}


def _beside_bare(
    argv: tuple[str, ...], values: pa.Array, where: Path, turns: int
) -> dict[str, Any]:
    worker = Worker(Program(argv), where, print)
    loop = bare(argv, b"".join(bytes(piece) for piece in pieces_of(values)))
    found = {"bare": Turns(), "worker": Turns()}

    def work() -> None:
        got = 0
        for begin in range(0, len(values), BATCH):
            got += len(worker.answer(values.slice(begin, BATCH)).outputs)
        assert got == len(values)

    for _ in range(5 * turns):
        found["bare"].take(loop)
        found["worker"].take(work)
    worker.close()
    part = found["bare"].times(found["worker"])
    return {
        **{kind: one.plain() for kind, one in found.items()},
        "part_of_bare": part,
        "load_1min": load(),
    }


def load() -> float:
    return round(os.getloadavg()[0], 1)


def spark(where: Path, rows: int, turns: int) -> dict[str, Any]:
    """Measure the stage in Spark against RDD.pipe, with one worker and with two.

    All begin with the same cached DataFrame. `pipe to columns` does what the stage does: a
    DataFrame comes of it. `pipe, counted` leaves the lines in Python; `pipe of lines` also begins
    with lines that are cached in Python. `identity` is a mapInArrow that does nothing: what Spark
    itself takes to get rows to Python and back. The session is that of a flow.
    """
    from millstream.spark.session.session import session as started

    session = started("actions", master="local[2]", log=where / "spark.log")
    results: dict[str, Any] = {}
    for name, argv, cat in (
        ("c", echo_c(where), lines_c(where)),
        ("python", echo_python(), lines_python(where)),
    ):
        stage = Action("echo", "rows", argv, ("value",), Schema.parse("value binary"), "one", "raw")
        results[name] = _in_spark(session, stage, cat, where, rows, turns)
    session.stop()
    return results


def _in_spark(
    session: Any, stage: Action, cat: str, where: Path, rows: int, turns: int
) -> dict[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812 (as everybody writes it)

    from millstream.spark.stages.action import Shipping, action

    results: dict[str, Any] = {}
    for partitions in (1, 2):
        frame = session.range(rows, numPartitions=partitions)
        frame = frame.select(
            F.lpad(F.col("id").cast("string"), SIZE, "0").cast("binary").alias("value")
        ).cache()
        frame.count()
        fresh = frame.select(F.col("value").cast("string")).rdd.map(lambda row: row[0])
        lines = frame.select(F.col("value").cast("string")).rdd.map(lambda row: row[0]).cache()
        lines.count()
        answered = action(frame, stage, Shipping("bench", where, {}), letters=None)
        columns = session.createDataFrame(fresh.pipe(cat).map(lambda line: (line,)), "value string")
        same = frame.mapInArrow(identity, frame.schema)
        cases: dict[str, Callable[[], Any]] = {
            "action": answered.agg(F.count("value")).first,
            "identity": same.agg(F.count("value")).first,
            "pipe to columns": columns.agg(F.count("value")).first,
            "pipe, counted": fresh.pipe(cat).count,
            "pipe of lines": lines.pipe(cat).count,
        }
        for run in cases.values():
            run()  # starts the workers and their programs
        measured = {name: Turns() for name in cases}
        before = programs()
        for _ in range(turns):
            for name, run in cases.items():
                measured[name].take(run)
        found: dict[str, Any] = {name: one.plain() | one.cores() for name, one in measured.items()}
        for name in ("identity", "pipe to columns", "pipe, counted", "pipe of lines"):
            found[name]["times_action"] = measured[name].times(measured["action"])
        # Each worker has a program of its own: two of them work when there are two.
        used = sorted(now - before.get(pid, 0.0) for pid, now in programs().items())
        found["action"]["programs_cpu_s"] = [round(one / turns, 3) for one in used if one > 0]
        found["load_1min"] = load()
        results[f"{partitions} worker{'s'[: partitions > 1]}"] = found
        frame.unpersist()
        lines.unpersist()
    return results


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def lines_c(where: Path) -> str:
    """Return an echo of lines, in C."""
    source, target = where / "lines.c", where / "lines"
    loop = "char b[4096]; while (fgets(b, sizeof b, stdin)) fputs(b, stdout);"
    source.write_text(f"#include <stdio.h>\nint main(void) {{ {loop} return 0; }}\n")
    subprocess.run(["gcc", "-O2", "-o", str(target), str(source)], check=True)
    return str(target)


def lines_python(where: Path) -> str:
    """Return an echo of lines, in Python."""
    source = where / "lines.py"
    source.write_text(
        "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)\n"
    )
    return f"{sys.executable} -S {source}"


def port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


class Sink:
    """A downstream that acknowledges what it gets."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def accept(self) -> None:
        self._sock, _ = self._server.accept()
        self._arrivals = wire.Arrivals()

    def take(self, count: int) -> None:
        got = 0
        while got < count:
            got += len(self._some())

    def take_until(self, payload: bytes) -> None:
        """Take messages up to one; a successor first repeats what its predecessor got no acknowledgement of."""
        while all(message.payload != payload for message in self._some()):
            pass

    def _some(self) -> list[wire.Message]:
        try:
            data = self._sock.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self.accept()
            return []
        found = self._arrivals.feed(data)
        if found:
            with suppress(OSError):  # its sender may have been killed meanwhile
                self._sock.sendall(wire.ack(found[-1].id))
        return found


def start(where: Path, name: str, argv: tuple[str, ...], *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "millstream", "runtime", "--action", argv[0], "--name", name]
    command += ["--queue", str(where / name), *options, "--", *argv[1:]]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def connected(address: str) -> socket.socket:
    host, number = address.rsplit(":", 1)
    while True:
        try:
            sock = socket.create_connection((host, int(number)))
        except OSError:
            time.sleep(0.01)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock


def runtimes(where: Path, rows: int, pings: int) -> dict[str, Any]:
    """Measure two runtimes in a row, each with its queue on disk."""
    argv, first, second, sink = echo_c(where), port(), port(), Sink()
    processes = {
        "one": start(where, "b_one", argv, "--in", first, "--out", second),
        "two": start(where, "b_two", argv, "--in", second, "--out", sink.address),
    }
    sink.accept()
    up = connected(first)
    up.sendall(wire.hello(wire.Hello("b_up", 1)))
    payload = bytes(SIZE)
    delays = []
    for number in range(1, pings + 1):
        began = time.perf_counter()
        up.sendall(wire.message(number, payload))
        sink.take(1)
        delays.append(time.perf_counter() - began)
        time.sleep(0.002)
    data = wire.messages((number, payload) for number in range(pings + 1, pings + rows + 1))
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        up.sendall(data)
        signal.pause()  # the kernel still has some of it; the parent ends this process
    sink.take(rows)
    seconds = time.perf_counter() - began
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    recovered = recovery(where, processes, argv, second, sink, first)
    for process in processes.values():
        process.terminate()
        process.wait()
    delays.sort()
    return {
        "messages": rows,
        "messages_per_second": round(rows / seconds),
        "latency_ms": {
            "median": round(delays[len(delays) // 2] * 1000, 2),
            "p99": round(delays[int(len(delays) * 0.99)] * 1000, 2),
        },
        "recovery_s": [round(one, 2) for one in recovered],
        "load_1min": load(),
    }


def recovery(
    where: Path, processes: Any, argv: tuple[str, ...], second: str, sink: Sink, first: str
) -> list[float]:
    """Kill the second runtime, start it again, and wait for a message to come through."""
    found = []
    up = connected(first)
    up.sendall(wire.hello(wire.Hello("b_late", 1)))
    for turn in range(1, 6):
        began = time.perf_counter()
        processes["two"].kill()
        processes["two"].wait()
        processes["two"] = start(where, "b_two", argv, "--in", second, "--out", sink.address)
        payload = b"after kill %d" % turn
        up.sendall(wire.message(turn, payload))
        sink.take_until(payload)
        found.append(time.perf_counter() - began)
    return found


def _who(by_workers: dict[str, Any]) -> str:
    """Say who used the processors in the stage."""
    return "; ".join(
        f"{workers}, action: CPU seconds of {found['action']['cpu_of']}, cores busy {found['action']['cores_busy']}"
        for workers, found in by_workers.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runtime-rows", type=int, default=200_000)
    parser.add_argument(
        "--only", choices=list(PARTS), help="measure and show one part; nothing is saved"
    )
    given = parser.parse_args()
    with folder("actions") as where:
        where.chmod(0o755)
        results = {
            name: measure(where, given)
            for name, measure in PARTS.items()
            if given.only in (None, name)
        }
    for name, found in results.items():
        SHOWN[name](found)
    if given.only is None:
        save(
            "actions",
            {"rows": given.rows, "bytes": SIZE, "turns": given.turns, "batch": BATCH},
            results,
        )


PARTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "pipes": lambda where, given: pipes(where, given.rows, given.turns),
    "runtimes": lambda where, given: runtimes(where, given.runtime_rows, 200),
    "spark": lambda where, given: spark(where, given.rows, given.turns),
}


def _show_pipes(results: dict[str, Any]) -> None:
    rows = [
        (
            f"echo in {name}",
            found["bare"]["median_s"],
            found["worker"]["median_s"],
            *found["part_of_bare"].values(),
            found["load_1min"],
        )
        for name, found in results.items()
    ]
    show(
        "one worker, seconds",
        ["", "bare loop", "worker", "part of bare", "at best", "in CPU time", "load"],
        rows,
    )


def _show_spark(results: dict[str, Any]) -> None:
    for name, by_workers in results.items():
        kinds = [kind for kind in by_workers["1 worker"] if kind != "load_1min"]
        rows = [
            (f"{workers}, {what}", *(found[kind][key] for kind in kinds), found["load_1min"])
            for workers, found in by_workers.items()
            for what, key in (
                ("seconds", "median_s"),
                ("CPU seconds", "cpu_s"),
                ("cores used", "cores_used"),
            )
        ]
        show(f"in Spark, echo in {name}", ["", *kinds, "load"], rows, note=_who(by_workers))


SHOWN: dict[str, Callable[[dict[str, Any]], None]] = {
    "pipes": _show_pipes,
    "runtimes": print,
    "spark": _show_spark,
}


if __name__ == "__main__":
    main()
