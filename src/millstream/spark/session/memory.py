"""Memory that a driver does not need while nothing happens, given back to the system.

Java keeps what it has collected, the C library what Java and Python have freed, and Spark a daemon for
each kind of Python process that plans a query, which a query that runs does not need. None of this
is missed: what is gone comes back by itself when it is needed.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from millstream.spark.session.heap import Limits, array, resting

_log = logging.getLogger(__name__)

#: What Spark's Python processes run in which it finds, makes and plans sources.
_PLANNERS: Final = (
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
)
#: What `MBeanServer.invoke` takes.
_INVOKE: Final = (
    "javax.management.ObjectName",
    "java.lang.String",
    "[Ljava.lang.Object;",
    "[Ljava.lang.String;",
)


def give_memory_back(spark: SparkSession) -> None:
    """Let Java collect garbage, and return what it and Python do not need then. Idle, that takes 0.2 s."""
    java: Any = spark.sparkContext._jvm
    with resting(Limits(spark)):
        java.java.lang.System.gc()
    _trim_java(spark)
    _trim_python()


def end_planners(spark: SparkSession) -> None:
    """End the Python daemons in which Spark plans queries, 60 MB; Spark starts them for the next query.

    Nothing may be planned meanwhile. A daemon of which a worker is busy stays.
    """
    context: Any = spark.sparkContext
    try:
        kind = context._jvm.java.lang.Class.forName("org.apache.spark.SparkEnv")
        workers = _field(kind, context._jsc.sc().env(), "pythonWorkers").iterator()
        while workers.hasNext():
            pair = workers.next()
            factory = pair._2()
            if pair._1().workerModule() in _PLANNERS and not _busy(factory):
                factory.stop()
    except Py4JError:
        # Spark has them in another place: they stay.
        _log.debug("Spark's planners cannot be ended", exc_info=True)


def _busy(factory: Any) -> bool:
    """Tell whether a factory has workers that do not wait for work."""
    workers = _field(factory.getClass(), factory, "daemonWorkers")
    return bool(workers.size() > factory.idleWorkers().size())


def _field(kind: Any, owner: Any, name: str) -> Any:
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


def _trim_java(spark: SparkSession) -> None:
    """Return what Java has freed outside of its heap: compilers have, and it is large after a start."""
    gateway: Any = spark.sparkContext._gateway
    lang, beans = gateway.jvm.java.lang, gateway.jvm.javax.management
    try:
        server = lang.management.ManagementFactory.getPlatformMBeanServer()
        commands = beans.ObjectName("com.sun.management:type=DiagnosticCommand")
        # Its class is not public, so Py4J finds no method of it.
        kinds = array(gateway, lang.Class, *map(lang.Class.forName, _INVOKE))
        invoke = lang.Class.forName("javax.management.MBeanServer").getMethod("invoke", kinds)
        trim = commands, "systemTrimNativeHeap", None, None
        invoke.invoke(server, array(gateway, lang.Object, *trim))
    except Py4JError:
        _log.debug("this Java cannot trim its native heap", exc_info=True)


def _trim_python() -> None:
    """Return what this process has freed, where its C library is glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
