"""Queries in Flink, run by the Python that has PyFlink: each line on standard input asks for one.

A line is a JSON object with what `benchmarks.nexmark.workers` says; the answer is a line too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

#: As in patterns_flink.py: state on the heap and no checkpoints, which is Flink at its quickest.
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
}


def main() -> None:
    jars = ";".join(path.as_uri() for path in sorted(Path(sys.argv[1]).glob("*.jar")))
    # The first one starts Java.
    TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    say({"ready": True})
    for line in sys.stdin:
        statements = json.loads(line)["statements"]
        began = time.perf_counter()
        tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in {**SETTINGS, "pipeline.jars": jars}.items():
            tables.get_config().set(name, value)
        try:
            for statement in statements:
                result = tables.execute_sql(statement)
            result.wait()
        except Exception as error:  # noqa: BLE001 - the asker hears of all
            causes = [line for line in str(error).splitlines() if line.startswith("Caused by")]
            say({"error": "\n".join(causes[-3:]) or str(error)})
        else:
            say({"seconds": time.perf_counter() - began})


def say(what: object) -> None:
    print("@" + json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
