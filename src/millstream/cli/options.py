"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Master = Annotated[
    str | None, typer.Option(help="A Spark master; by default, the cores of this machine.")
]
Journals = Annotated[
    str | None,
    typer.Option(
        envvar="MILLSTREAM_JOURNALS",
        help="Keep new journals in Kafka: kafka://host:9092, or with the beginning of the topics' names.",
    ),
]
Serve = Annotated[
    str,
    typer.Option(
        envvar="MILLSTREAM_SERVE",
        help="Read and write for executors that do not see the data folder: auto, always or never.",
    ),
]
ServePort = Annotated[
    int,
    typer.Option(
        min=0,
        max=65535,
        envvar="MILLSTREAM_SERVE_PORT",
        help="The port on which executors reach the driver for that; 0 is any free port.",
    ),
]
ExecutorPython = Annotated[
    Path | None,
    typer.Option(
        envvar="MILLSTREAM_EXECUTOR_PYTHON",
        help="The Python packages of executors, as `millstream pack` writes them.",
    ),
]
Watchers = Annotated[
    list[str] | None,
    typer.Option(
        "--watcher", help="Where a watcher serves its status: http://host:port. Repeat it."
    ),
]
Page = Annotated[
    bool, typer.Option("--page", help="Show the flow as it runs on a page of this host.")
]
PagePort = Annotated[
    int, typer.Option(min=0, max=65535, help="The port of the page; 0 is any free port.")
]
State = Annotated[
    str | None, typer.Option(help="Where windows and joins keep their state: memory or rocksdb.")
]

Storage = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where checkpoints and the job's log are, if several hosts may run the flow: "
        "s3://bucket/prefix.",
    ),
]

# what is looked at

Job = Annotated[str, typer.Argument(metavar="JOB", help="A flow, or a job of an engine.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The data folder of a run or an engine; default .millstream, then an engine's.",
    ),
]

# inboxes

InboxPort = Annotated[
    int, typer.Option(min=0, max=65535, help="The port of the inboxes; 0 is any free port.")
]
Network = Annotated[
    str | None, typer.Option(help="Accept events from this network too: 10.0. or 10.0.0.0/16.")
]
Key = Annotated[Path | None, typer.Option(help="The key of the inboxes; producers need keys too.")]
Producers = Annotated[Path, typer.Option(help="The folder with the producers' public keys.")]
OpenWithoutKeys = Annotated[
    bool, typer.Option("--open-without-keys", help="Accept rows from everybody in that network.")
]

# engines

Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="URL",
        help="The engine, or all engines of a cluster; default MILLSTREAM_ENGINE.",
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="The file with the engine's token; default MILLSTREAM_TOKEN.")
]
Timeout = Annotated[float | None, typer.Option(min=0.0, help="The most seconds to wait.")]
Coordination = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="A folder, or s3://bucket/prefix, of engines that all may run its jobs.",
    ),
]
LeaseSeconds = Annotated[
    float | None,
    typer.Option(
        min=1, help="After how many silent seconds other engines take its jobs (9 by default)."
    ),
]
Warm = Annotated[
    int, typer.Option(min=0, max=64, help="How many drivers to keep ready for the next jobs.")
]
