"""Spark, started to read state: for commands that look at checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream.terminal.console import Console


@contextmanager
def reading_spark(storage: str | None) -> Iterator[Any]:  # Any: Spark's session
    """Start Spark to read state, with its log in a folder that goes with it."""
    from millstream.spark.session.s3a import s3a_keys, s3a_settings
    from millstream.spark.session.session import end_session, session

    with tempfile.TemporaryDirectory() as folder:
        with Console(stderr=True).status("starting Spark to read state"):
            conf, keys = s3a_settings(storage), s3a_keys(storage)
            spark = session("state", log=Path(folder) / "spark.log", conf=conf, hidden=keys)
        try:
            yield spark
        finally:
            end_session(spark)
