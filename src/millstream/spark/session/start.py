"""Spark, started in two steps: its Java while other things are done, and the session once it is needed.

Imports nothing of Spark's before it is asked to start.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.session.java import JavaStart


@dataclass
class SparkStart:
    """Starts one session, and ends it."""

    name: str
    master: str | None = None
    storage: str | None = None
    log: Path | None = None
    packages: Path | None = None
    _begun: JavaStart | None = field(default=None, init=False)
    _environment: dict[str, str] = field(default_factory=dict, init=False)
    _spark: SparkSession | None = field(default=None, init=False)

    def begin(self) -> None:
        """Let Java start, which takes a second. If it cannot, `session` says why."""
        with suppress(MillstreamError, ImportError, OSError):
            from millstream.spark.session.session import begin_java

            self._begun = begin_java(self.name, **self._how())
            self._environment = dict(os.environ)

    def session(self) -> SparkSession:
        """Return the session, once it has started.

        Raises:
            RunError: There is no Java 17 or newer, or Spark did not start.
        """
        from millstream.spark.session.s3a import s3a_keys
        from millstream.spark.session.session import session

        if self._begun is not None and self._environment != os.environ:
            self._begun.abandon()  # a flow has set something since, which Java must know
            self._begun = None
        if self._spark is None:
            hidden = s3a_keys(self.storage)
            self._spark = session(self.name, **self._how(), hidden=hidden, begun=self._begun)
        return self._spark

    def _how(self) -> dict[str, Any]:  # what both steps are given
        from millstream.spark.session.s3a import s3a_settings

        conf = s3a_settings(self.storage)
        return {"master": self.master, "log": self.log, "conf": conf, "packages": self.packages}

    def close(self) -> None:
        """End the session, or the Java that no session was made of."""
        if self._spark is not None:
            from millstream.spark.session.session import end_session

            end_session(self._spark)
        elif self._begun is not None:
            self._begun.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
