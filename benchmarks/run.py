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
from typing import Final

from benchmarks import kept

#: The options of each benchmark, in the small sizes and in those of the results that are kept. What
#: follows a hyphen tells apart those of one module.
RUNS: Final = {
    "journal_append": ("", "--full"),
    "kafka_journal": ("", "--full"),
    "kafka_sink": ("--turns 1", ""),
    "links": ("--turns 3 --rows 1000000", "--full"),
    "service": ("", "--full"),
    "latency": ("--seconds 10", ""),
    "windows": ("--turns 3", "--full --turns 5"),
    "windows-sessions": ("--shape sessions --turns 2", "--shape sessions --full --turns 3"),
    "windows-join": ("--shape join --turns 1", "--shape join --full --turns 2"),
    "nexmark": ("--events 200000 --turns 1 --queries q0,q3,q5,q9,q17", ""),
    "fold": ("--turns 2", ""),
    "wide": ("--turns 1", ""),
    "state": ("", "--keys 10000,1000000,10000000"),
    "state_files": ("--keys 10000,100000", ""),
    "carry": ("--keys 10000", ""),
    "startup": ("--turns 2", ""),
    "starts": ("", ""),
    "failover": ("--turns 1", ""),
    "patterns_bare": ("", ""),
    "edge_conditions": ("", ""),
    "patterns_growth": ("", ""),
    "watchers": ("--turns 2 --events 20000", ""),
    "patterns_spark": ("", "--full"),
    "actions": ("--rows 200000 --runtime-rows 50000", ""),
    "switch": ("", "--full"),
    "backpressure": ("--minutes 0.5", "--full"),
    "watch_replication": ("", "--full"),
    "served": ("--rows 300000", ""),
    "kafka_source": ("--turns 2", "--rows 3000000"),
    "kafka_restart": ("--turns 1", ""),
    "growth": ("", "--full"),
    "load": ("--short", ""),
    "console": ("--pages 5 --seconds 5 --minutes 0.5", "--pages 20"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="the sizes that the results in the repository have"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(RUNS)}; all by default")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in RUNS]
    if unknown:
        parser.error(f'there is no benchmark "{unknown[0]}": it is one of {", ".join(RUNS)}')
    failed = []
    for name in () if given.page else given.names or RUNS:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        module, options = name.partition("-")[0], RUNS[name][given.full].split()
        command = [sys.executable, "-m", f"benchmarks.{module}", *options]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - began:.0f} s\n", flush=True)
    kept.compare()
    if failed:
        raise SystemExit(f"error: these failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
