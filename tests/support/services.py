"""Servers and sessions that tests of several folders need."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.spark.session.session import session


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Run Spark, with its log in a folder."""
    running = session("tests", master="local[2]", log=folder / "spark.log")
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a PostgreSQL server of our own, as the user postgres, and return its address."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("cannot here: no PostgreSQL server is installed and it could not be")
    # Not below pytest's own folder, which other users may not enter.
    programs, folder = found[-1].parent, Path(tempfile.mkdtemp(prefix="millstream-postgres-"))
    # The server refuses to run as root.
    as_postgres = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    folder.chmod(0o777)
    run = [
        *as_postgres,
        str(programs / "initdb"),
        "-A",
        "trust",
        "-U",
        "postgres",
        str(folder / "data"),
    ]
    subprocess.run(run, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    control = [*as_postgres, str(programs / "pg_ctl"), "-D", str(folder / "data"), "-w"]
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    subprocess.run(
        [*control, "-o", options, "-l", str(folder / "log"), "start"],
        check=True,
        capture_output=True,
    )
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)
        shutil.rmtree(folder)
