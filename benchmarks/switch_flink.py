"""The job of the switch in Flink's SQL, submitted by the Python that has PyFlink: prints the job's id.

python switch_flink.py FOLDER LEAST WINDOW LATENESS REST_PORT [SAVEPOINT]
"""

from __future__ import annotations

import sys

from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    folder, least, window, lateness, port, *savepoint = sys.argv[1:]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "execution.target": "remote",
        "rest.address": "localhost",
        "rest.port": port,
        "parallelism.default": "1",
        "pipeline.name": "switch",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        **({"execution.state-recovery.path": savepoint[0]} if savepoint else {}),
    }
    for name, value in settings.items():
        tables.get_config().set(name, value)
    tables.execute_sql(f"""
        CREATE TABLE events (
            k STRING, amount BIGINT, at_ms BIGINT, moment AS TO_TIMESTAMP_LTZ(at_ms, 3),
            WATERMARK FOR moment AS moment - INTERVAL '{lateness}' SECOND
        ) WITH (
            'connector' = 'filesystem', 'path' = 'file://{folder}/in', 'format' = 'csv',
            'source.monitor-interval' = '100 ms'
        )""")
    # Files of results are closed as soon as may be; they become visible with the next checkpoint.
    tables.execute_sql(f"""
        CREATE TABLE counted (k STRING, began STRING, events BIGINT, total BIGINT) WITH (
            'connector' = 'filesystem', 'path' = 'file://{folder}/out', 'format' = 'csv',
            'sink.rolling-policy.rollover-interval' = '200 ms', 'sink.rolling-policy.check-interval' = '200 ms'
        )""")
    result = tables.execute_sql(f"""
        INSERT INTO counted
        SELECT k, DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss'), COUNT(*),
               SUM(CASE WHEN amount >= {least} THEN amount ELSE 0 END)
        FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(moment), INTERVAL '{window}' SECOND))
        GROUP BY k, window_start, window_end""")
    print("job", result.get_job_client().get_job_id(), flush=True)


if __name__ == "__main__":
    main()
