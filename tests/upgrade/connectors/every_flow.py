"""A flow with every source and every sink, in several spellings: what is written of it may not change.

python tests/upgrade/connectors/every_flow.py FILE     records it
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import millstream as ms
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan
from millstream.plan.picture import svg

COLUMNS = "origin string, n long, at timestamp"


def every_flow() -> ms.Flow:
    """Return the flow."""
    flow = ms.Flow("everything", window="1 hour")
    sources = {
        "plain": ms.inbox(COLUMNS),
        "guarded": ms.inbox(
            "value binary, at timestamp", producers=["a", "b"], runtimes=":7000", format="raw"
        ),
        "parquet_files": ms.files("data/*.parquet", COLUMNS),
        "csv_files": ms.files("data/in", COLUMNS, format="csv", follow=True, sep=";", header=False),
        "ticks": ms.rate(2.5),
        "some_ticks": ms.rate(100, rows=7),
        "recorded": ms.replay("data/day.jsonl", COLUMNS),
        "slowly": ms.replay("data/day.csv", COLUMNS, speed=60, time="at"),
    }
    streams = {name: flow.source(name, spec, time="at") for name, spec in sources.items()}
    sinks = {
        "parquet": ms.parquet("out/a/parquet"),
        "lines": ms.jsonl("out/a/lines"),
        "csv": ms.csv("out/a/csv"),
        "terminal": ms.console(),
        "short": ms.console(rows=3),
        "kept": ms.memory(),
        "table": ms.postgres("postgresql://me:secret@host/base", table="public.results"),
        "onward": ms.outbox("tcp://host:7000", "other.events", key="k", server="s.pub", end=True),
        "beside": ms.outbox("../data", "other.events"),
    }
    for name, target in sinks.items():
        streams["plain"].sql(f"of_{name}", "SELECT * FROM plain").sink(name, target)
    for name, stream in streams.items():
        if name != "plain":
            stream.sink(f"from_{name}", ms.memory())
    return flow


def written() -> dict[str, Any]:
    """Return all that is written of it: descriptions, YAML, fingerprints, drawings."""
    flow = every_flow()
    planned = plan(flow)
    prints = {group.name: fingerprint(planned, group.name) for group in planned.groups}
    described = describe(flow)
    for part in (*described["stages"], *described["sinks"]):
        del part["place"]
    drawn = re.findall(r">([^<>]+)</text>", svg(planned))
    return {
        "described": described,
        "yaml": dump(flow).partition("\nsources:")[2],
        "fingerprints": prints,
        "targets": {name: sink.target.text for name, sink in flow.sinks.items()},
        "picture": sorted({text for text in drawn if "groups" not in text}),
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(written(), indent=1) + "\n")
