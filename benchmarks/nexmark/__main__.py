"""Nexmark's queries in Millstream, PySpark by hand and Flink SQL, side by side over the same events.

    python -m benchmarks.nexmark                                   all queries
    python -m benchmarks.nexmark --queries q0,q5 --events 200000   some, over fewer events
    python -m benchmarks.nexmark --check                           only compare answers

All systems are up at once and take each query in turn, so that what else the machine does disturbs all. First
all answers over a sample are compared with those of DuckDB. Then a query runs over few and over all events:
the slope between the two is the rate once everything runs, and what is left is its start. At last a few
queries run in processes of their own, from their start to their end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import peers
from benchmarks.common import folder, save
from benchmarks.nexmark import answers, feed, flink_sql, report
from benchmarks.nexmark.generator import Config
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.workers import SYSTEMS, Cost, Events, Failed, Worker

SAMPLE: Final = 20_000
#: Slower than the standard's, so that few events span many windows, and each has a millisecond of its own.
SLOW: Final = Config(rate=100)
COLD: Final = "q0,q5,q9"
#: The part of the time over all events by which it must exceed that over few.
LEAST_SLOPE: Final = 0.2


def main() -> None:
    args = _arguments()
    with folder("nexmark") as place:
        sample = _written(place / "sample", SAMPLE, SLOW, SAMPLE // 4)
        # The same processes all along, so that each has seen every query before it is timed.
        workers = {system: Worker(system, place / system) for system in args.systems}
        _check(workers, args.queries, sample, place)
        if args.check:
            return
        config = Config()
        few = _written(place / "few", args.events // 5, config, args.rows_per_batch)
        many = _written(place / "many", args.events, config, args.rows_per_batch)
        found = _measure(args, workers, few, many, place)
        for worker in workers.values():
            worker.stop()
        cold = [name for name in args.cold.split(",") if name in args.queries]
        found["cold"] = {query: _cold(args.systems, query, many, place) for query in cold}
    settings = {
        **{name: getattr(args, name) for name in ("events", "turns", "rows_per_batch")},
        "few": few.count,
        "flink": peers.FLINK,
        "missing": {"flink": flink_sql.MISSING},
    }
    report.show(found)
    save("nexmark", settings, found)
    report.write()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--queries", default=",".join(QUERIES), help="some of them, by comma")
    parser.add_argument("--systems", default="millstream,pyspark,flink", help=", ".join(SYSTEMS))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rows-per-batch", type=int, default=200_000)
    parser.add_argument("--cold", default=COLD, help="queries that also run in fresh processes")
    parser.add_argument("--check", action="store_true", help="only compare answers")
    args = parser.parse_args()
    args.queries, args.systems = args.queries.split(","), args.systems.split(",")
    for name, known in (("queries", QUERIES), ("systems", SYSTEMS)):
        unknown = [one for one in getattr(args, name) if one not in known]
        if unknown:
            parser.error(f'--{name} has "{unknown[0]}", which is none of {", ".join(known)}')
    return args


def _written(place: Path, count: int, config: Config, rows_per_batch: int) -> Events:
    place.mkdir()
    # Two files to a batch of Spark's: one for each core.
    feed.write_all(place, config, count, rows_per_batch // 2)
    return Events(place, count, config, rows_per_batch)


def _able(system: str, query: str) -> bool:
    return not (system == "flink" and query in flink_sql.MISSING)


def _check(workers: dict[str, Worker], queries: Sequence[str], sample: Events, place: Path) -> None:
    """Compare the answers of all systems with DuckDB's.

    Raises:
        SystemExit: Some are others.
    """
    wrong = 0
    for query in queries:
        for system, worker in workers.items():
            said, *rows = _checked(worker, query, sample, place)
            print("\n  ".join([f"{query}, {system}: {said}", *rows]), flush=True)
            wrong += said in ("wrong", "failed")
    if wrong:
        raise SystemExit(f"error: {wrong} answers are not those of DuckDB")


def _checked(worker: Worker, query: str, sample: Events, place: Path) -> list[str]:
    """Return a word about a system's answer, and what is wrong with it."""
    if not _able(worker.system, query):
        return [f"cannot ({flink_sql.MISSING[query]})"]
    out = place / "out"
    try:
        worker.run(query, sample, out, kept=True)
    except Failed as failed:
        return ["failed", str(failed)]
    flink = worker.system == "flink"
    rows, wrong = answers.differences(
        query,
        sample.files,
        sample.side_input,
        out / "out",
        changes=flink and query in flink_sql.CHANGING,
        key=flink_sql.KEYS.get(query) if flink else None,
    )
    return ["wrong", *wrong] if wrong else [f"{rows:,} rows, right"]


def _measure(
    args: argparse.Namespace, workers: dict[str, Worker], few: Events, many: Events, place: Path
) -> dict[str, Any]:
    """Return what each query takes in each system, over few and over many events."""
    costs: dict[tuple[str, str, int], list[Cost]] = {}
    loads = []
    for turn in range(args.turns):
        for query in args.queries:
            for system, worker in workers.items():
                for events in (few, many) if _able(system, query) else ():
                    cost = worker.run(query, events, place / "out")
                    costs.setdefault((query, system, events.count), []).append(cost)
            loads.append(os.getloadavg()[0])
            print(f"turn {turn + 1}, {query}: {_told(costs, query, args, many.count)}", flush=True)
    return {
        "load": {"least": round(min(loads), 1), "most": round(max(loads), 1)},
        "start_s": {system: round(worker.start_s, 2) for system, worker in workers.items()},
        "queries": {
            query: {
                system: _plain(costs, query, system, few.count, many.count)
                for system in args.systems
                if _able(system, query)
            }
            for query in args.queries
        },
    }


def _told(costs: dict[Any, list[Cost]], query: str, args: argparse.Namespace, many: int) -> str:
    return ", ".join(
        f"{system} {costs[query, system, many][-1].seconds:.1f} s"
        for system in args.systems
        if (query, system, many) in costs
    )


def _plain(
    costs: dict[tuple[str, str, int], list[Cost]], query: str, system: str, few: int, many: int
) -> dict[str, Any]:
    little, whole = costs[query, system, few], costs[query, system, many]
    seconds = [one.seconds for one in whole]
    slope = statistics.median(seconds) - statistics.median(one.seconds for one in little)
    # A slope that is a small part of the whole says more about noise than about events.
    told = slope >= LEAST_SLOPE * statistics.median(seconds)
    return {
        "events_per_s": round((many - few) / slope) if told else None,
        "seconds": round(statistics.median(seconds), 2),
        "spread": round((max(seconds) - min(seconds)) / statistics.median(seconds), 3),
        "few_seconds": round(statistics.median(one.seconds for one in little), 2),
        "cores": round(statistics.median(one.cpu_seconds / one.seconds for one in whole), 2),
        "cpu_seconds": round(statistics.median(one.cpu_seconds for one in whole), 2),
        "peak_mb": max(one.peak_mb for one in whole),
        "runs": [asdict(one) for one in whole],
    }


def _cold(systems: Sequence[str], query: str, events: Events, place: Path) -> dict[str, Any]:
    """Return what a query takes in a process that does nothing else."""
    found = {}
    for system in systems:
        if _able(system, query):
            worker = Worker(system, place / "cold" / system)
            cost = worker.run(query, events, place / "out")
            found[system] = {
                "seconds": round(worker.stop(), 2),
                "start_s": round(worker.start_s, 2),
                "peak_mb": cost.peak_mb,
            }
            shutil.rmtree(place / "cold" / system)
    return found


if __name__ == "__main__":
    main()
