"""Flows in processes that are killed: what goes in, what must come out, and where to die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from glob import glob
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.journal import journal_at

HERE: Final = Path(__file__).parent
START: Final = datetime(2020, 1, 1, tzinfo=UTC)
#: The points between the writes of a batch, in their order; without a log of the job, there is no
#: write between "staged" and "logged-decision".
POINTS: Final = ("logged", "staged", "logged-decision", "decided", "published", "before-commit")
#: One in each of three partitions.
KEYS: Final = ("k0", "k2", "k5")
_EVENT: Final = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
)
_NUMBER: Final = _EVENT.set(1, pa.field("n", pa.int64()))

Rows = list[dict[str, Any]]
Windows = list[tuple[str, str, int, int]]


# a flow of two groups, with random events


def record(root: Path, events: int) -> Rows:
    """Write the recording: a thousand events an hour, five keys."""
    chance = random.Random(5)
    rows = [
        {
            "k": f"k{chance.randrange(5)}",
            "v": chance.randrange(10),
            "at": START + timedelta(seconds=3.6 * i),
        }
        for i in range(events)
    ]
    pq.write_table(pa.Table.from_pylist(rows, _EVENT), root / "events.parquet")
    return rows


def prepared(root: Path, events: int) -> Rows:
    """Write the flow and its recording."""
    (root / "flow.py").write_text((HERE / "crash_flow.py").read_text())
    return record(root, events)


def expected(rows: Rows) -> Windows:
    """Return the windows of the flow, by plain Python."""
    totals: dict[str, int] = defaultdict(int)
    windows: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        totals[row["k"]] += row["v"]
        window = windows[row["k"], _ten_minutes(row["at"])]
        window[0] += 1
        window[1] = totals[row["k"]]
    return sorted((k, f"{at:%H:%M}", n, top) for (k, at), (n, top) in windows.items())


def results(root: Path, tables: str = "minutes", lines: str = "lines") -> tuple[Windows, Windows]:
    """Return the windows in both sinks."""
    found = [pq.read_table(path) for path in (root / tables).glob("*.parquet")]
    parquet = [
        (r["k"], f"{r['window_start']:%H:%M}", r["n"], r["top"])
        for r in pa.concat_tables(found).to_pylist()
    ]
    read = [
        json.loads(line)
        for path in (root / lines).glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    jsonl = [(r["k"], r["window_start"][11:16], r["n"], r["top"]) for r in read]
    return sorted(parquet), sorted(jsonl)


def _ten_minutes(at: datetime) -> datetime:
    return at.replace(minute=at.minute // 10 * 10, second=0, microsecond=0)


# eight programs, with integers in order


@dataclass(frozen=True, slots=True)
class Programs:
    """The flow of `crash_programs.py` in a folder, with so many integers for each key."""

    root: Path
    count: int

    def prepare(self) -> None:
        """Write the flow and its recordings: an integer a second."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "flow.py").write_text((HERE / "crash_programs.py").read_text())
        for name, sign in (("numbers", 1), ("others", -1)):
            rows = [
                {"k": k, "n": sign * n, "at": START + timedelta(seconds=n)}
                for n in range(1, self.count + 1)
                for k in KEYS
            ]
            pq.write_table(pa.Table.from_pylist(rows, _NUMBER), self.root / f"{name}.parquet")

    def check(self) -> None:
        """Compare all results with plain Python: sequences by key, in their order."""
        numbers = range(1, self.count + 1)
        self._same("passed", [(n,) for n in numbers])
        self._same("copied", [(n, copy) for n in numbers for copy in range(3)])
        self._same("counted", [(n, n) for n in numbers])
        self._same("chained", [(n, n * (n + 1) // 2) for n in numbers])
        self._same("merged", [(n,) for n in numbers], lambda found: [n for n in found if n[0] > 0])
        negative = [(-n,) for n in numbers]
        self._same("merged", negative, lambda found: [n for n in found if n[0] < 0])
        self._same("paired", [(n, -n) for n in numbers], sorted)
        self._same("rounds", [(n + 1,) for n in numbers], sorted)
        digits = {d: sorted((n,) for n in numbers for _ in KEYS if n % 10 == d) for d in range(10)}
        found = {digit: sorted(some) for digit, some in self._sequences("regrouped").items()}
        assert found == digits, "regrouped"
        rows = [{"k": k, "v": 1, "at": START + timedelta(seconds=n)} for n in numbers for k in KEYS]
        parquet, jsonl = results(self.root, "tables")
        assert parquet == jsonl == expected(rows)
        files = self.root.glob(".millstream/crash/groups/*/*/keys/counts/*/*.arrow")
        assert any(files), "the state of the counts was in files"

    def _same(
        self,
        journal: str,
        wanted: list[tuple[int, ...]],
        some: Callable[[list[tuple[int, ...]]], list[tuple[int, ...]]] = list,
    ) -> None:
        found = self._sequences(journal)
        assert sorted(found) == sorted(KEYS)
        for key, rows in found.items():
            if (mine := some(rows)) != wanted:
                pairs = enumerate(zip(mine, wanted, strict=False))
                at = next((i for i, (a, b) in pairs if a != b), min(len(mine), len(wanted)))
                raise AssertionError(
                    f"{journal} of {key} has {len(mine)} rows and should have {len(wanted)}; "
                    f"from {at} on {mine[at : at + 5]} instead of {wanted[at : at + 5]}"
                )

    def _sequences(self, journal: str) -> dict[Any, list[tuple[int, ...]]]:
        """Return the rows of a journal by key, in the order in which they are there."""
        reader = journal_at(self.root / ".millstream/crash/journals" / journal).reader()
        found: dict[Any, list[tuple[int, ...]]] = defaultdict(list)
        for number in range(reader.description.partitions):
            view = reader.partition(number)
            for part in view.read(view.begin, view.end):
                for row in [] if part.batch is None else part.batch.to_pylist():
                    key = row.pop("digit" if journal == "regrouped" else "k")
                    row.pop("at")
                    found[key].append(tuple(row.values()))
        return found


# processes


def start(
    root: Path, fail_at: str | None = None, *, rows: int = 500, **settings: str
) -> subprocess.Popen[bytes]:
    """Start `millstream run` in a folder, to die at a point if one is named."""
    environment = {k: v for k, v in os.environ.items() if k != "MILLSTREAM_FAIL_AT"} | settings
    if fail_at:
        environment["MILLSTREAM_FAIL_AT"] = fail_at
    command = [sys.executable, "-m", "millstream", "run", "flow.py", "--until-end", "--json"]
    with (root / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [*command, "--rows-per-batch", str(rows)],
            cwd=root,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def die_at(root: Path, point: str, number: int, *, rows: int = 500, **settings: str) -> None:
    """Run until the process kills itself at a point, the so-many-th time that it gets there."""
    process = start(root, f"{point}:{number}", rows=rows, **settings)
    try:
        assert process.wait(450) == 137, output(root)
    finally:
        kill(process)


def die_at_work(
    root: Path, after: int, seconds: float, *, rows: int = 500, **settings: str
) -> None:
    """Run until so many batches are committed, and some seconds more, and kill the process."""
    before = committed(root)
    process = start(root, rows=rows, **settings)
    try:
        until = time.monotonic() + 240
        while committed(root) < before + after:
            assert process.poll() is None, output(root)
            assert time.monotonic() < until, output(root)
            time.sleep(0.02)
        time.sleep(seconds)
        assert process.poll() is None, "it had ended before it was killed"
    finally:
        kill(process)


def finish(root: Path, *, rows: int = 500, **settings: str) -> None:
    """Run to the end."""
    process = start(root, rows=rows, **settings)
    try:
        assert process.wait(450) == 0, output(root)
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and what one that died by itself has left: its Java."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def output(root: Path) -> str:
    return (root / "output.txt").read_text()[-3000:]


def committed(root: Path) -> int:
    """Return how many batches all groups have committed."""
    # Path.glob fails if a folder goes away meanwhile.
    found = glob(".millstream/crash/groups/*/*/commits/*", root_dir=root)  # noqa: PTH207
    return sum(1 for path in found if Path(path).name.isdigit())
