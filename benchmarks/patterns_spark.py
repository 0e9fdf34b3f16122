"""Patterns on Spark beside Flink's MATCH_RECOGNIZE: the same events, cold processes in turn, equal matches.

    python -m benchmarks.patterns_spark                    250,000 and 1 M events
    python -m benchmarks.patterns_spark --full             1 and 4 M events, the other patterns at 500,000 and 2 M
    python -m benchmarks.patterns_spark --moderate --from csv,parquet,journal
                                                           all patterns at 0.5 and 2 M events, some 25 minutes
    python -m benchmarks.patterns_spark --case kleene      one of the patterns
    python -m benchmarks.patterns_spark --alone            without Flink

Flink reads CSV, whose reader comes with it. So does ours, with `ms.match` over Spark's reader (`csv`), and in a
flow, through its journal (`flow`). Ours also reads the same events as Parquet files and from a journal that is filled, in a flow:
what that is beside Flink's CSV is what someone gets who has them in that form.

Each run is a process that starts with nothing and ends with its results written. The slope between
the two sizes is what an event costs once everything runs; both are given in seconds and in seconds
of the processor, which other work on the machine disturbs less. Over few events, the text of
Flink's MATCH_RECOGNIZE is also given to `ms.sql`, and must find the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from benchmarks import patterns_events, peers
from benchmarks.common import folder, save, show
from benchmarks.patterns_cases import CASES, Case, flink_events, flink_statements
from benchmarks.patterns_ours import CLAUSES
from benchmarks.processes import Cost, cost_of

ROOT = Path(__file__).parents[1]
OURS, FLINK = "millstream", "flink"
CHECKED = 100_000
#: The patterns that --moderate measures, and the sizes of many at once, which Flink needs long for.
MODERATE = ("sequence", "kleene", "negation", "many_keys", "many")
MANY_SIZES = [100_000, 400_000]
TYPES = {"key": pa.string(), "pattern": pa.string(), "total": pa.float64()}


@dataclass
class Runs:
    """What one system took for a case at one size."""

    costs: list[Cost] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return float(statistics.median(getattr(cost, name) for cost in self.costs))

    def plain(self) -> dict[str, Any]:
        medians = {
            name: round(self.median(name), 2) for name in ("seconds", "cpu_seconds", "peak_mb")
        }
        return {**medians, "runs": [asdict(cost) for cost in self.costs], **self.state}


# One run


def ours(case: Case, form: str, rows_per_batch: int, files: Path, out: Path) -> Cost:
    command = [sys.executable, "-m", "benchmarks.patterns_ours", str(files / form), str(out)]
    command += [case.name, "--from", form, "--rows-per-batch", str(rows_per_batch)]
    return cost_of(command, log=out.with_suffix(".said"), cwd=ROOT)


def flink(case: Case, files: Path, out: Path) -> Cost:
    return flink_job([flink_events(str(files / "lanes")), *flink_statements(case, str(out))], out)


def flink_job(statements: list[str], out: Path) -> Cost:
    said = out.with_suffix(".sql.json")
    said.write_text(json.dumps(statements))
    job = Path(__file__).with_name("patterns_flink.py")
    return cost_of(
        [str(peers.flink()), str(job), str(said)], log=out.with_suffix(".said"), cwd=ROOT
    )


def matches(case: Case, out: Path) -> pa.Table:
    """Return what a run has found, in order."""
    columns = {name: TYPES.get(name, pa.int64()) for name in case.columns}
    read = pa.csv.ReadOptions(column_names=list(columns))
    convert = pa.csv.ConvertOptions(column_types=columns)
    written = [path for path in sorted(out.rglob("part-*")) if path.stat().st_size]
    tables = [pa.csv.read_csv(path, read_options=read, convert_options=convert) for path in written]
    flows = sorted(path for path in out.rglob("*.parquet") if not path.name.startswith("."))
    schema = pa.schema(list(columns.items()))
    tables += [pa.parquet.read_table(path, columns=list(columns)).cast(schema) for path in flows]
    whole = pa.concat_tables(tables) if tables else schema.empty_table()
    return whole.sort_by([(name, "ascending") for name in columns]).combine_chunks()


def state_of(out: Path) -> dict[str, Any]:
    """Return how large the state of a run of ours has been, as Spark says."""
    progress = json.loads(out.with_suffix(".json").read_text())
    operators = [operator for one in progress for operator in one["stateOperators"]]
    metrics = [operator.get("customMetrics", {}) for operator in operators]
    written = out.with_suffix(".checkpoint")
    return {
        "state_memory_mb": round(
            max((operator["memoryUsedBytes"] for operator in operators), default=0) / 2**20, 1
        ),
        "state_files_mb": round(
            max((one.get("rocksdbSstFileSize", 0) for one in metrics), default=0) / 2**20, 1
        ),
        "checkpoint_mb": round(
            sum(path.stat().st_size for path in written.rglob("*") if path.is_file()) / 2**20, 1
        ),
        "batches": len(progress),
    }


# One case


def measure(
    case: Case, sizes: list[int], turns: int, rows_per_batch: int, forms: list[str], *, alone: bool
) -> dict[str, Any]:
    """Return what a case takes, at each size, with ours in each form and Flink in turn."""
    found: dict[str, Any] = {"title": case.title, "keys": case.keys, "sizes": {}}
    for size in sizes:
        with folder("patterns") as place:
            patterns_events.write(place, size, case.keys, rows_per_batch, forms)
            found["sizes"][size] = _at(case, place, turns, rows_per_batch, forms, alone=alone)
        _say(case, size, found["sizes"][size])
    if len(sizes) > 1:
        found["slope"] = slope(found["sizes"], sizes[0], sizes[-1])
    return found


def _at(
    case: Case, place: Path, turns: int, rows_per_batch: int, forms: list[str], *, alone: bool
) -> dict[str, Any]:
    systems = {f"{OURS} {form}": Runs() for form in forms}
    systems |= {} if alone else {FLINK: Runs()}
    expected: pa.Table | None = None
    for turn in range(turns):
        for name, runs in systems.items():
            out = place / f"{name.replace(' ', '-')}-{turn}"
            if name == FLINK:
                runs.costs.append(flink(case, place, out))
            else:
                form = name.removeprefix(f"{OURS} ")
                runs.costs.append(ours(case, form, rows_per_batch, place, out))
                runs.state = state_of(out)
            got = matches(case, out)
            if expected is not None and not got.equals(expected):
                raise SystemExit(
                    f"error: {case.name}: {name} finds other matches: {_difference(expected, got)}"
                )
            expected = got
            shutil.rmtree(out)
    assert expected is not None
    return {"matches": len(expected), **{name: runs.plain() for name, runs in systems.items()}}


def _difference(expected: pa.Table, got: pa.Table) -> str:
    one, other = ({tuple(row.values()) for row in table.to_pylist()} for table in (expected, got))
    missing, extra = sorted(one - other), sorted(other - one)
    return f"{len(missing)} of {len(one)} are missing, like {missing[:2]}, and {len(extra)} more, like {extra[:2]}"


def slope(sizes: dict[int, Any], small: int, large: int) -> dict[str, Any]:
    """Return the events per second, and per second of the processor, between two sizes."""
    rates: dict[str, Any] = {}
    for name in systems_of(sizes[small]):
        took = {
            what: sizes[large][name][what] - sizes[small][name][what]
            for what in ("seconds", "cpu_seconds")
        }
        rates[name] = {
            "events_per_s": round((large - small) / max(0.01, took["seconds"])),
            "events_per_cpu_s": round((large - small) / max(0.01, took["cpu_seconds"])),
        }
    for name in rates if FLINK in rates else ():
        for what, rate in (("times", "events_per_s"), ("times_by_cpu", "events_per_cpu_s")):
            rates[name][what] = round(rates[name][rate] / rates[FLINK][rate], 2)
        rates[name]["cold_times"] = round(
            sizes[large][FLINK]["seconds"] / sizes[large][name]["seconds"], 2
        )
    return rates


def systems_of(found: dict[str, Any]) -> list[str]:
    """Return which systems were measured."""
    return [name for name in found if name == FLINK or name.startswith(OURS)]


def check(cases: list[Case], *, alone: bool) -> dict[str, Any]:
    """Compare, over few events, our patterns, the same as Flink's MATCH_RECOGNIZE given to `ms.sql`, and Flink itself."""
    with folder("patterns-check") as place:
        patterns_events.write(place, CHECKED, 1_000, CHECKED)
        command = [
            sys.executable,
            "-m",
            "benchmarks.patterns_ours",
            str(place / "csv"),
            str(place / "out"),
            *(case.name for case in cases),
            "--check",
        ]
        cost_of(command, log=place / "ours.said", cwd=ROOT)
        if not alone:
            jobs = [
                flink_statements(case, str(place / "out" / f"{case.name}-flink")) for case in cases
            ]
            flink_job(
                [flink_events(str(place / "lanes")), *(one for job in jobs for one in job)],
                place / "flink",
            )
        return {case.name: _compared(case, place / "out", alone=alone) for case in cases}


def _compared(case: Case, out: Path, *, alone: bool) -> dict[str, Any]:
    found = {
        who: matches(case, out / f"{case.name}-{who}")
        for who in ("pattern", "sql", *([] if alone else [FLINK]))
    }
    differs = {}
    for who, got in found.items():
        expected = found["pattern"]
        if who == "sql" and len(case.patterns) > 1:
            asked = pa.array([pattern.name for pattern in case.patterns[:CLAUSES]])
            expected = expected.filter(pa.compute.is_in(expected.column("pattern"), asked))
        if not got.equals(expected):
            differs[who] = _difference(expected, got)
    return {
        "events": CHECKED,
        "matches": len(found["pattern"]),
        "compared": list(found),
        "differences": differs,
    }


# Showing


def _say(case: Case, size: int, found: dict[str, Any]) -> None:
    rows = [
        (
            name,
            found[name]["seconds"],
            found[name]["cpu_seconds"],
            found[name]["peak_mb"],
            found[name]["runs"][-1]["load"],
        )
        for name in systems_of(found)
    ]
    title = f"{case.title}, {size:,} events, {case.keys:,} keys: {found['matches']:,} matches"
    show(title, ("system", "seconds", "CPU seconds", "peak MB", "load"), rows)


def _say_slopes(results: dict[str, Any]) -> None:
    rows = [
        (
            one["title"],
            name,
            f"{rate['events_per_s']:,}",
            rate.get("times", "-"),
            rate.get("times_by_cpu", "-"),
            rate.get("cold_times", "-"),
        )
        for one in results.values()
        for name, rate in one.get("slope", {}).items()
    ]
    show(
        "between the two sizes, and the whole of the larger, beside Flink",
        ("pattern", "system", "events/s", "times", "times by CPU", "times, cold"),
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="the sizes of the results that are kept"
    )
    parser.add_argument("--moderate", action="store_true", help="all patterns, at two sizes")
    parser.add_argument("--from", dest="forms", default="csv", help="csv, parquet, journal, flow")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of events")
    parser.add_argument(
        "--case", choices=sorted(CASES), action="append", help="some of the patterns"
    )
    parser.add_argument(
        "--turns", type=int, help="how often the sequence is run at each size; the others once"
    )
    parser.add_argument("--rows-per-batch", type=int, default=2_000_000)
    parser.add_argument("--alone", action="store_true", help="without Flink")
    parser.add_argument(
        "--check", action="store_true", help="only compare matches, also those of MATCH_RECOGNIZE"
    )
    args = parser.parse_args()
    forms = args.forms.split(",")
    if unknown := set(forms) - set(patterns_events.FORMS):
        parser.error(f"--from takes {', '.join(patterns_events.FORMS)}, not {', '.join(unknown)}")
    names = args.case or (MODERATE if args.moderate else CASES)
    cases = [CASES[name] for name in names]
    quick = not args.full and not args.moderate
    checked = check(cases, alone=args.alone) if args.check or quick else {}
    _say_checked(checked)
    if args.check:
        save("patterns_check", {"events": CHECKED}, checked)
        return
    results = {}
    for case in cases:
        first = case.name == "sequence"
        larger = 1_000_000 if len(case.patterns) > 1 else 8_000_000
        sizes = args.sizes or (
            [1_000_000, 4_000_000, 16_000_000] if first else [larger // 4, larger]
        )
        if args.moderate and not args.sizes:
            sizes = [larger // 16, larger // 4] if first or larger > 1_000_000 else MANY_SIZES
        elif not args.full and not args.sizes:
            sizes = [250_000, 1_000_000] if first else [250_000]
        turns = (args.turns or (3 if args.full else 1)) if first else 1
        results[case.name] = measure(
            case, sizes, turns, args.rows_per_batch, forms, alone=args.alone
        )
    _say_slopes(results)
    settings = {"rows_per_batch": args.rows_per_batch, "from": forms, "flink": peers.FLINK}
    name = (
        "patterns_spark"
        + ("-full" if args.full else "-moderate" if args.moderate else "")
        + (f"-{'-'.join(args.case)}" if args.case else "")
    )
    save(name, settings, {**results, "checked": checked})


def _say_checked(checked: dict[str, Any]) -> None:
    for name, found in checked.items():
        told = (
            "; ".join(f"{who}: {what}" for who, what in found["differences"].items()) or "all equal"
        )
        print(
            f"{name}: {found['matches']:,} matches in {found['events']:,} events, {told}",
            flush=True,
        )


if __name__ == "__main__":
    main()
