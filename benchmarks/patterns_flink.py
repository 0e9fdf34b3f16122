"""A Flink job, run by the Python that has PyFlink: executes the SQL statements of a JSON file, one after the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

#: Two slots for two cores; rows are not copied between operators; state on the heap and no checkpoints, which is Flink at its quickest.
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
}


def main() -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        tables.get_config().set(name, value)
    for statement in json.loads(Path(sys.argv[1]).read_text()):
        result = tables.execute_sql(statement)
        if statement.startswith("INSERT"):
            result.wait()


if __name__ == "__main__":
    main()
