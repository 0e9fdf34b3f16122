"""All benchmarks, one after the other: `make bench`, or `make bench ARGS=--full` for the large sizes.

At the end all figures are in FIGURES.md, and those that are worse than in the last commit are shown in red.
`make bench ARGS=--page` only compares and writes the page. A benchmark that fails does not keep the rest from
being run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from benchmarks import kept

SMALL = {
    "journal_append": [],
    "kafka_journal": [],
    "links": ["--turns", "3", "--rows", "1000000"],
    "service": [],
    "windows": ["--turns", "3"],
    "nexmark": ["--events", "200000", "--turns", "1", "--queries", "q0,q3,q5,q9,q17"],
    "fold": ["--turns", "2"],
    "wide": ["--turns", "1"],
    "state": [],
    "state_files": ["--keys", "10000,100000"],
    "carry": ["--keys", "10000"],
    "startup": ["--turns", "2"],
    "starts": [],
    "failover": ["--turns", "1"],
    "patterns_bare": [],
    "edge_conditions": [],
    "patterns_growth": [],
    "watchers": ["--turns", "2", "--events", "20000"],
    "patterns_spark": [],
    "actions": ["--rows", "200000", "--runtime-rows", "50000"],
    "switch": [],
    "backpressure": ["--minutes", "0.5"],
    "watch_replication": [],
    "served": ["--rows", "300000"],
    "kafka_source": ["--turns", "2"],
    "kafka_restart": ["--turns", "1"],
    "growth": [],
    "load": ["--short"],
}
FULL = {
    "journal_append": ["--full"],
    "kafka_journal": ["--full"],
    "links": ["--full"],
    "service": ["--full"],
    "windows": ["--full", "--turns", "5"],
    "nexmark": [],
    "fold": [],
    "wide": [],
    "state": ["--keys", "10000,1000000,10000000"],
    "state_files": [],
    "carry": [],
    "startup": [],
    "starts": [],
    "failover": [],
    "patterns_bare": [],
    "edge_conditions": [],
    "patterns_growth": [],
    "watchers": [],
    "patterns_spark": ["--full"],
    "actions": [],
    "switch": ["--full"],
    "backpressure": ["--full"],
    "watch_replication": ["--full"],
    "served": [],
    "kafka_source": ["--rows", "3000000"],
    "kafka_restart": [],
    "growth": ["--full"],
    "load": [],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="the sizes that the results in the repository have"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(SMALL)}; all by default")
    given = parser.parse_args()
    chosen = FULL if given.full else SMALL
    unknown = [name for name in given.names if name not in chosen]
    if unknown:
        parser.error(f'there is no benchmark "{unknown[0]}": it is one of {", ".join(SMALL)}')
    failed = []
    for name in () if given.page else given.names or chosen:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{name}", *chosen[name]]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - began:.0f} s\n", flush=True)
    kept.compare()
    if failed:
        raise SystemExit(f"error: these failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
