"""Spark that ends before we do: whoever stops a service signals all of its processes at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def quieten(spark: SparkSession) -> None:
    """Let PySpark log what it would print of broken connections, as when Spark has ended.

    Whoever used the connection gets the error besides.
    """

    def note(_: object, address: object) -> None:
        _log.debug("Spark's connection from %s has ended", address, exc_info=True)

    server: Any = spark.sparkContext._accumulatorServer
    if server is not None:
        server.handle_error = note  # it would print to the terminal
    # Py4J logs to the root, which prints where a program has set up no logging.
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    if record.module != "java_gateway":
        return True
    _log.debug("%s", record.getMessage(), exc_info=record.exc_info)
    return False


@contextmanager
def ending(spark: SparkSession) -> Iterator[None]:
    """Pass over errors of Spark that has ended: what it would have to stop has ended with it."""
    # Each thread that finds the connection broken would show a traceback of its own.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        yield
    except (Py4JError, OSError):
        if not has_ended(spark):
            raise


def has_ended(spark: SparkSession) -> bool:
    """Tell whether Spark has stopped, or its process is gone."""
    context = spark.sparkContext._jsc
    try:
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True
