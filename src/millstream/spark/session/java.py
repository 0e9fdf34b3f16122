"""Spark's Java process, started before PySpark asks for it.

PySpark starts Java and waits for it, a second or more, when a session is made. Here the two are apart:
`JavaStart` starts the process and returns; what a session needs in Python can be loaded, and a flow be
checked, until `join` waits for it. PySpark then connects to a Java that is there, which it has
environment variables for.

As with PySpark's own, Java ends when its standard input does, so with this process at the latest.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.core.context import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from millstream.errors import RunError

_LOOK_S: Final = 0.02
_ENDED_S: Final = 10.0
#: What PySpark reads to find a Java that has started.
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class JavaStart:
    """A Java process for Spark that is starting; nothing is started if this process has one."""

    def __init__(
        self, settings: Mapping[str, str], environment: Mapping[str, str], log: Path | None
    ) -> None:
        """Start it.

        Args:
            settings: Spark's settings; some are options of Java's.
            environment: What its environment has besides ours.
            log: Where its errors go, if not where ours do.

        Raises:
            RunError: It cannot be started.
        """
        self.settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        if SparkContext._gateway is not None or _PORT in os.environ:
            return  # it has one, or is the program of a Java that has started it
        self._folder = Path(tempfile.mkdtemp())
        where = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info)}
        found = {**os.environ, **environment, **where}
        try:
            with _appended(log) as said:
                self._process = subprocess.Popen(
                    _command(found, settings),
                    stdin=subprocess.PIPE,
                    stderr=said,
                    env=found,
                    preexec_fn=_ignore_interrupts,  # noqa: PLW1509 (as PySpark's; it takes no locks)
                )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise RunError(f"Spark did not start: {error}") from error

    @property
    def _info(self) -> Path:
        return self._folder / "connection"

    def join(self) -> None:
        """Wait until Java is there, and let PySpark use it.

        Raises:
            RunError: It has ended.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            while process.poll() is None and not self._info.exists():
                time.sleep(_LOOK_S)
            if not self._info.exists():
                _close(process)
                raise RunError(f"Java has ended with {process.returncode}")
            port, secret = _connection(self._info.read_bytes())
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        with _set({_PORT: str(port), _SECRET: secret}):
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = process
        SparkContext._ensure_initialized(gateway=gateway)

    def abandon(self) -> None:
        """End it, if nobody has waited for it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()  # so that it removes its temporary files
        try:
            process.wait(_ENDED_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_ENDED_S)
        finally:
            _close(process)
            shutil.rmtree(self._folder, ignore_errors=True)


def _command(environment: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    home = environment.get("SPARK_HOME") or _find_spark_home()
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    more = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(Path(home) / "bin" / "spark-submit"), *given, *more]


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def _connection(info: bytes) -> tuple[int, str]:
    """Return the port and the secret that Java has written: two numbers, and a text as long."""
    port, length = struct.unpack_from(">ii", info)
    return port, info[8 : 8 + length].decode()


def _ignore_interrupts() -> None:
    # Ctrl-C on a terminal reaches Java too; we stop it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _appended(log: Path | None) -> Iterator[Any]:  # what Popen takes
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        yield file


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
