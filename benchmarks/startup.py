"""From the command to the first result: how long, and where the time goes.

    python -m benchmarks.startup [--turns 3] [--match]

A flow of one window over a file with a few rows is run with `millstream run --until-end` as a user
would, on data that is new each time. The variants differ in what is kept beside Spark
(src/millstream/spark/session/home.py): nothing at all (an empty cache), and, from the second start on,
Spark's folder as links and, where it was made, Java's class archive. "CPU" is what all processes of the
run have used together, which says more than the clock where others use the machine.

With --match it is a program whose first `ms.match` looks at five rows: when Spark has answered a first
query, and when the match is there. With `NUMBA_CACHE_DIR` the compiled kernel is kept elsewhere; one run
before has compiled it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.common import Timing, folder, save, show

_PR_SET_CHILD_SUBREAPER: Final = 36  # of Linux
FLOW = """
import millstream as ms

flow = ms.Flow("quick")
events = flow.source("events", ms.files("events.jsonl", "k string, at timestamp"), time="at")
events.window("minutes", every="1 minute", by="k", n="count(*)").sink("out", ms.jsonl("out"))
"""


def start(place: Path, environment: dict[str, str]) -> dict[str, float]:
    """Run the flow once; return the seconds until its journal is there, its first commit, its first result and its end, and of CPU."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "flow.py").write_text(FLOW)
    rows = [{"k": "a", "at": f"2020-01-01T10:{minute:02}:00Z"} for minute in range(5)]
    (place / "events.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    marks = {
        "journal made": ".millstream/quick/journals/events/journal.json",
        "first batch logged": ".millstream/quick/groups/*/*/offsets/0",
        "first batch committed": ".millstream/quick/groups/*/*/commits/0",
        "first result": "out/*.jsonl",
    }
    found: dict[str, float] = {}
    used, began = cpu_of_ended(), time.perf_counter()
    command = [sys.executable, "-m", "millstream", "run", "flow.py", "--until-end"]
    process = subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while process.poll() is None:
        for name, pattern in marks.items():
            if name not in found and next(place.glob(pattern), None) is not None:
                found[name] = time.perf_counter() - began
        time.sleep(0.01)
    found["ended"] = time.perf_counter() - began
    if process.returncode != 0:
        raise SystemExit(process.stdout.read().decode() if process.stdout else "the flow failed")
    found["CPU"] = cpu_of_ended() - used
    return found


MATCH = """
import json, time
began = time.perf_counter()
from pathlib import Path
import millstream as ms
from millstream.spark.session.session import session
spark = session("first", log=Path("spark.log"))
rows = [("a", n) for n in range(5)]
df = spark.createDataFrame(rows, "k string, n int").selectExpr("k", "n", "timestamp_seconds(n) as at")
df.collect()
marks = {"Spark": time.perf_counter() - began}
pattern = ms.Pattern().begin("a", "n = 1").followed_by("b", "n = 2").within("1 minute")
assert len(ms.match(df, pattern, key="k", time="at").collect()) == 1
marks["first match"] = time.perf_counter() - began
assert len(ms.match(df, pattern, key="k", time="at").collect()) == 1
marks["second match"] = time.perf_counter() - began
Path("marks.json").write_text(json.dumps(marks))
spark.stop()
"""


def first_match(place: Path, environment: dict[str, str]) -> dict[str, float]:
    """Run a program that matches once; return the seconds until Spark answers, and until each match."""
    place.mkdir(parents=True)
    (place / "program.py").write_text(MATCH)
    used = cpu_of_ended()
    command = [sys.executable, "program.py"]
    subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True)
    return {**json.loads((place / "marks.json").read_text()), "CPU": cpu_of_ended() - used}


def measure_matches(place: Path, turns: int) -> dict[str, list[dict[str, float]]]:
    usual = dict(os.environ)
    usual.pop("NUMBA_CACHE_DIR", None)
    variants = {
        "as usual": usual,
        "NUMBA_CACHE_DIR": usual | {"NUMBA_CACHE_DIR": str(place / "numba")},
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    for name, environment in variants.items():
        first_match(place / f"{name}-warm", environment)
    for turn in range(turns):
        for name, environment in variants.items():
            found[name].append(first_match(place / f"{name}-{turn}", environment))
    return found


def adopt() -> None:
    """Let processes whose parents end become children of this one: Java ends after its program."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_of_ended() -> float:
    """Wait for all children, and return the seconds of CPU that they and theirs have used so far."""
    with suppress(ChildProcessError):
        while True:
            os.wait()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(place: Path, turns: int) -> dict[str, list[dict[str, float]]]:
    usual = dict(os.environ)
    found: dict[str, list[dict[str, float]]] = {"nothing kept": [], "as usual": []}
    start(place / "warm", usual)
    for turn in range(turns):
        empty = tempfile.mkdtemp(dir=place)
        found["nothing kept"].append(
            start(place / f"empty{turn}", usual | {"XDG_CACHE_HOME": empty})
        )
        found["as usual"].append(start(place / f"usual{turn}", usual))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--match", action="store_true", help="the first match of a program")
    given = parser.parse_args()
    turns: int = given.turns
    adopt()
    with folder("startup") as place:
        measured = (measure_matches if given.match else measure)(place, turns)
    steps = list(measured["as usual"][0])
    results: dict[str, Any] = {
        variant: {step: Timing(tuple(one[step] for one in times)).plain() for step in steps}
        for variant, times in measured.items()
    }
    save("startup-match" if given.match else "startup", {"turns": turns}, results)
    rows = [
        [variant, *(f"{results[variant][step]['median_s']:.1f} s" for step in steps)]
        for variant in results
    ]
    show("from the command to ...", ["variant", *steps], rows)


if __name__ == "__main__":
    main()
