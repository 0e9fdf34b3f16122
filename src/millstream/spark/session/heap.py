"""Java's heap: room for what batches keep while there is work, and little to spare at rest.

After a full collection, Java makes the heap larger or smaller until a part of it is free. Where little has to be free,
state in memory soon fills the heap again, and Java looks at all that is alive more than once in a batch. The
limits may be changed while Java runs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

LEAST: Final = "MinHeapFreeRatio"
MOST: Final = "MaxHeapFreeRatio"
#: How many percent of the heap are free after a full collection.
WORKING: Final = {LEAST: "60", MOST: "80"}
RESTING: Final = {LEAST: "10", MOST: "50"}

#: For whatever collector. The one that works in parallel would give nothing back.
COLLECTING: Final = (
    "-Xms256m",
    *(f"-XX:{name}={percent}" for name, percent in WORKING.items()),
    "-XX:-ShrinkHeapInSteps",
)


@contextlib.contextmanager
def resting(limits: Limits) -> Iterator[None]:
    """Keep little of the heap free meanwhile, where Java can be told."""
    before: dict[str, str] = {}
    try:
        # The lower one never lies above the other.
        for name in (LEAST, MOST):
            known = limits.read(name)
            limits.write(name, RESTING[name])
            before[name] = known
    except Py4JError:
        _log.debug("the limits of Java's heap cannot be changed", exc_info=True)
    try:
        yield
    finally:
        for name, known in reversed(before.items()):
            limits.write(name, known)


class Limits:
    """The options of Java that may be changed while it runs, by name."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._java: Any = spark.sparkContext._jvm

    def read(self, name: str) -> str:
        return str(self._call("getVMOption", name).getValue())

    def write(self, name: str, value: str) -> None:
        self._call("setVMOption", name, value)

    def _call(self, method: str, *given: str) -> Any:
        # By the interface: the class behind it is not for others to call.
        java = self._java.java
        kind = java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
        options = java.lang.management.ManagementFactory.getPlatformMXBean(kind)
        texts = [java.lang.Class.forName("java.lang.String")] * len(given)
        types = array(self._gateway, java.lang.Class, *texts)
        values = array(self._gateway, java.lang.Object, *given)
        return kind.getMethod(method, types).invoke(options, values)


def array(gateway: Any, kind: Any, *items: Any) -> Any:
    """Return an array of Java's."""
    found = gateway.new_array(kind, len(items))
    for number, item in enumerate(items):
        found[number] = item
    return found
