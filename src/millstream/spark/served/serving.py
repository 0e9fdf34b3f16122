"""When there is a service: if executors do not see the driver's folders, or if its user says so."""

from __future__ import annotations

import atexit
import errno
import logging
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import RunError
from millstream.spark.served.place import ServedPlace, write_place
from millstream.spark.served.probe import probe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.served.service import Service

_log = logging.getLogger(__name__)
MODES: Final = ("auto", "always", "never")
#: The environment variables for those who cannot give options: an engine's drivers.
SERVE: Final = "MILLSTREAM_SERVE"
PORT: Final = "MILLSTREAM_SERVE_PORT"
#: How many ports after the given one are tried if others have it, as Spark does with its own.
MORE_PORTS: Final = 16


@dataclass(frozen=True, slots=True)
class Serving:
    """The service of a Spark application."""

    service: Service
    #: Where processes beside the driver find the key.
    file: Path
    #: Whether executors see where checkpoints are kept.
    checkpoints: bool

    @property
    def place(self) -> ServedPlace:
        return self.service.place

    def close(self) -> None:
        self.service.close()
        shutil.rmtree(self.file.parent, ignore_errors=True)


_servings: dict[str, Serving] = {}


def serving(spark: SparkSession) -> Serving | None:
    """Return the service of an application; None where executors see the driver's folders."""
    return _servings.get(_application(spark)) if _servings else None


def embedded(master: str | None) -> bool:
    """Tell whether executors run inside the driver's own Java."""
    return master is None or master == "local" or master.startswith("local[")


def serve(spark: SparkSession, folder: Path, mode: str = "auto", port: int = 0) -> None:
    """Start the service if the executors need it; once is enough for an application.

    Args:
        spark: The session.
        folder: The flow's folder, with its journals and checkpoints.
        mode: "auto", "always" or "never".
        port: The port of the service, or one of the next if others have it; 0 is any free one.

    Raises:
        RunError: There is no such mode, executors cannot run Millstream, or nothing can listen.
    """
    if mode not in MODES:
        raise RunError(f'"{mode}" says nothing about serving', hint=f"use {', '.join(MODES)}")
    if mode == "never" or serving(spark) is not None:
        return
    if mode == "auto" and embedded(spark.sparkContext.master):
        return
    groups = folder / "groups"
    seen = probe(spark, (folder, groups))
    if mode == "auto" and seen.shared(folder):
        return
    _log.info("%s do not see %s: it is served to them", sorted(seen.blind[folder]), folder)
    _servings[_application(spark)] = _started(spark, port, checkpoints=seen.shared(groups))


def stop_serving(spark: SparkSession) -> None:
    """Stop the service of an application, if it has one."""
    found = _servings.pop(_application(spark), None) if _servings else None
    if found is not None:
        found.close()


def _application(spark: SparkSession) -> str:
    return str(spark.sparkContext.applicationId)


def _started(spark: SparkSession, port: int, *, checkpoints: bool) -> Serving:
    conf = spark.sparkContext.getConf()
    host = conf.get("spark.driver.host") or socket.gethostname()
    bound = conf.get("spark.driver.bindAddress") or host
    try:
        service = listening(host, socket.gethostbyname(bound), port)
    except OSError as error:
        msg = f"the service for executors cannot listen on {bound}: {error}"
        raise RunError(msg, hint="set spark.driver.bindAddress, or --serve-port") from error
    file = Path(tempfile.mkdtemp(prefix="millstream-served-")) / "place.json"
    write_place(file, service.place)
    made = Serving(service, file, checkpoints)
    atexit.register(made.close)
    return made


def listening(host: str, ip: str, port: int) -> Service:
    """Return a service on a port, or on one of the next, if others have it.

    Raises:
        OSError: None of them is free, or the address is not this host's.
    """
    from millstream.spark.served.service import Service

    while True:
        free = free_port(ip, port)
        made = Service(host, ip, free)
        if made.place.port == free or not free:
            return made
        made.close()  # somebody was quicker


def free_port(ip: str, port: int) -> int:
    """Return a port, or the first of the next that is free; 0 stands for any."""
    if not port:
        return 0
    for tried in range(port, min(port + MORE_PORTS, 65535) + 1):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((ip, tried))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return tried
    raise OSError(errno.EADDRINUSE, f"ports {port} to {tried} are taken")
