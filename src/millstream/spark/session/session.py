"""The Spark session: embedded by default, any cluster by its master."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import psutil
from pyspark.sql import SparkSession

from millstream.errors import RunError
from millstream.spark.served.serving import embedded as in_driver
from millstream.spark.served.serving import stop_serving
from millstream.spark.session import heap, home, local_files, sockets
from millstream.spark.session.ending import ending, quieten
from millstream.spark.session.java import JavaStart
from millstream.spark.session.packing import FOLDER, PACKAGES

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
IN_MEMORY: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
#: The setting of the format of state: see `Checkpoint.state_format`.
FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
#: Whether RocksDB writes the changes of a batch, and a whole version in the background now and then.
CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
#: The format of the state of joins. Spark reads that of a checkpoint from its offsets.
JOIN_FORMAT: Final = "spark.sql.streaming.join.stateFormatVersion"

#: From which size on Spark takes the code of several steps apart. Java compiles no larger method:
#: fifty patterns at once ran at half the speed.
HUGE_METHOD: Final = "spark.sql.codegen.hugeMethodLimit"
LARGEST_METHOD: Final = "8000"

#: What is added to our options for Spark's Java, say "-Xss4m -XX:+UseG1GC".
JAVA_OPTIONS: Final = "MILLSTREAM_JAVA_OPTIONS"

#: The Python that executors run with them, unless PYSPARK_PYTHON names another.
_BARE: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"

RENAMING: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

_FEW_CORES: Final = 2
_ON_FEW_CORES: Final = ("-XX:+UseSerialGC", "-XX:NewSize=128m")
_ON_MANY_CORES: Final = ("-XX:+UseG1GC",)
#: Maps the archive of classes where it was made for: elsewhere, Java writes to all of its pages, and each
#: driver has 100 MB of its own that drivers could share.
_MAPPED: Final = (
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"),
    "-Xlog:cds*=off",
)

_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


def session(
    name: str,
    *,
    master: str | None = None,
    log: Path | None = None,
    conf: dict[str, str] | None = None,
    packages: Path | None = None,
    hidden: Mapping[str, str] | None = None,
    begun: JavaStart | None = None,
) -> SparkSession:
    """Start Spark, or return the session that is running.

    Everything that Spark has to say goes to `log`, so that the terminal stays ours. Executors find
    their Python packages in the archive `packages` (packing.py), if there is one. For settings that
    are `hidden` see `hide`. A Java that was `begun` with the same arguments is waited for.

    Raises:
        RunError: There is no Java 17 or newer, or Spark did not start.
    """
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # Each prints Spark's whole story as one line of JSON to the terminal; our errors tell it in
        # a few words.
        logging.getLogger(logger).disabled = True
    if begun is None:
        begun = begin_java(name, master=master, log=log, conf=conf, packages=packages)
    # Both take long to load, and Java starts meanwhile. PySpark needs what it tests with, and with it
    # pandas, before it first calls a method of Java's.
    import pyspark.testing.utils  # noqa: F401

    from millstream.spark.io.source import JournalSource

    builder = SparkSession.builder
    for key, value in begun.settings.items():
        builder = builder.config(key, value)
    try:
        begun.join()
        spark = builder.getOrCreate()
    except Exception as error:
        said = str(error).strip().split("\n")[0]
        hint = f"see {log}" if log else None
        raise RunError(f"Spark did not start: {said}", hint=hint) from error
    spark.dataSource.register(JournalSource)
    hide(spark, hidden or {})
    if in_driver(master):
        local_files.use(spark)
    quieten(spark)
    return spark


def begin_java(
    name: str,
    *,
    master: str | None = None,
    log: Path | None = None,
    conf: dict[str, str] | None = None,
    packages: Path | None = None,
) -> JavaStart:
    """Start the Java process of a session, and go on while it does; the arguments are `session`'s.

    Raises:
        RunError: There is no Java 17 or newer.
    """
    check_java()
    embedded = in_driver(master)
    packages = None if embedded else packages or _given_packages()
    # Workers would otherwise run whatever python3 the PATH has.
    if embedded or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable if packages is None else _BARE
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    place = home.light() if embedded else None
    settings = {
        "spark.app.name": f"millstream {name}",
        "spark.master": master or "local[*]",
        **_settings(master, log, place),
        **_packed(packages),
        **(conf or {}),
    }
    environment = {} if place is None else {"SPARK_HOME": str(place)}
    if packages is not None:
        # The process that plans batches beside the driver runs the executors' Python without the
        # archive.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return JavaStart(settings, environment, log)


def hide(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Give Hadoop settings that no command line has; executors get them with their tasks."""
    for key, value in settings.items():
        spark.sparkContext._jsc.hadoopConfiguration().set(key, value)


def end_session(spark: SparkSession) -> None:
    """Stop Spark, unless it has ended, and what the driver does for its executors."""
    with ending(spark):
        stop_serving(spark)
        spark.stop()


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at once."""
    return spark.sparkContext.defaultParallelism


def tries_tasks_again(master: str) -> bool:
    """Tell whether Spark runs a task that fails once more in the same batch."""
    return not in_driver(master) or "," in master


def check_java() -> int:
    """Return the version of the Java that Spark will use.

    Raises:
        RunError: There is none, or it is older than 17.
    """
    place, java = os.environ.get("JAVA_HOME"), _java()
    version = re.search(r'version "((\d+)[^"]*)"', _said_by(java))
    if version is not None and int(version[2]) >= 17:
        return int(version[2])
    raise _wrong_java(place, java, None if version is None else version[1])


_INSTALL: Final = "install one, on Debian: apt-get install default-jre-headless; or set JAVA_HOME"
_UNSET: Final = "unset JAVA_HOME to use the java of PATH, or set it to the folder of a newer one"


def _wrong_java(place: str | None, java: str, version: str | None) -> RunError:
    """Return the error about a Java, naming JAVA_HOME if that is what leads to it."""
    if place:
        has = f"Java {version}" if version else "no bin/java that runs"
        msg = f'JAVA_HOME is "{place}", which has {has}, and Spark needs Java 17 or newer'
        return RunError(msg, hint=_UNSET)
    has = f'"{java}" is Java {version}' if version else "no java was found"
    return RunError(f"Spark needs Java 17 or newer, and {has}", hint=_INSTALL)


def _java() -> str:
    place = os.environ.get("JAVA_HOME")
    return str(Path(place) / "bin" / "java") if place else shutil.which("java") or "java"


@cache
def _said_by(java: str) -> str:
    """Return what a Java says of itself; nothing if it cannot be run."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # It names the options that the environment has for it, such as a folder of this driver's alone.
    return "".join(line for line in said.splitlines(keepends=True) if "Picked up" not in line)


def class_archive(place: Path) -> Path:
    """Return where Java's archive of Spark's loaded classes lies; it takes seconds off a start."""
    return home.archive(place, _said_by(_java()))


def _settings(master: str | None, log: Path | None, place: Path | None) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        # What is new in a journal can wait a moment; an idle flow must not keep a core busy.
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.streaming.numRecentProgressUpdates": "50",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.maxBatchesToRetainInMemory": "1",
        # Spark's default starts a `readlink` process for every step of a rename, 44 of them a
        # batch. Renames in a folder are atomic here as well, and nobody else writes to our
        # checkpoints.
        "spark.sql.streaming.checkpointFileManagerClass": RENAMING,
        # A process that dies while Spark writes its very first offsets leaves an unfinished file,
        # which is no reason to refuse every start after it.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # Micro-batches plan the same small query over and over.
        "spark.sql.adaptive.enabled": "false",
        HUGE_METHOD: LARGEST_METHOD,
        # Every task of an aggregation or a sort takes a page, 64 MB by default, which Java fills with zeros.
        "spark.buffer.pageSize": "4m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.python.daemon.module": "millstream.spark.daemon",
        # For every column expression it would look up the caller's line, 2 ms each; our errors name
        # the stage.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.driver.extraJavaOptions": " ".join(_java_options(log, place)),
    }
    if master is None or master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{max(1, min(8, psutil.virtual_memory().total >> 32))}g",
        }
        if meeting := sockets.folder():
            settings |= {
                "spark.python.unix.domain.socket.enabled": "true",
                "spark.python.unix.domain.socket.dir": str(meeting),
            }
    return settings


def _java_options(log: Path | None, place: Path | None) -> list[str]:
    given = os.environ.get(JAVA_OPTIONS, "").split()
    options = [*heap.COLLECTING]
    if not any(re.fullmatch(r"-XX:\+Use\w+GC", option) for option in given):
        options += _ON_FEW_CORES if (os.cpu_count() or 1) <= _FEW_CORES else _ON_MANY_CORES
    if place is not None and home.usable(archive := class_archive(place)):
        # Java passes over an archive that does not fit, and need not say so.
        options += [shlex.quote(f"-XX:SharedArchiveFile={archive}"), *_MAPPED]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        config = log.parent / "log4j2.properties"
        config.write_text(_LOGGING.format(log=log.resolve()))
        options.append(f"-Dlog4j2.configurationFile={config.resolve().as_uri()}")
    return options + given


def _given_packages() -> Path | None:
    given = os.environ.get(PACKAGES)
    return Path(given) if given else None


def _packed(packages: Path | None) -> dict[str, str]:
    """Return the settings with which executors unpack and find their packages.

    Raises:
        RunError: The archive is not there.
    """
    if packages is None:
        return {}
    if not packages.is_file():
        msg = f'there is no archive "{packages}" of Python packages'
        raise RunError(msg, hint=f"make it: millstream pack {packages}")
    return {
        "spark.archives": f"{packages.resolve()}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }
