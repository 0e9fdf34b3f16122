"""The process from which Spark forks its Python workers, with what they need loaded before.

Spark's own daemon loads next to nothing, so every worker imports Arrow, numpy
and our modules again, also those that replace workers which were idle for a
minute. And after every task a worker collects garbage among all that it has
loaded, up to 80 ms of a core each time: what is loaded here is set aside from
collection before the fork, which also keeps its memory shared.

Started by Spark (`spark.python.daemon.module`) with Python's `-m` and the module
that its workers run, one daemon for each of these. It imports nothing of Spark's or
ours at its top, so that `settle` is cheap to have.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What workers of ours import sooner or later. Not pandas: few need it, and it is slow to load.
LOADED: Final = ("pyspark.worker", "millstream.spark.io.source", "millstream.spark.io.staging")
#: Looks for packages of other people's sources once, before the first query, and needs nothing.
_BARE: Final = "pyspark.sql.worker.lookup_data_sources"

_settled = 0


def settle() -> None:
    """Keep modules that were imported since the last task out of the garbage collector's way.

    To be called at the start of a task: garbage was just collected then, so hardly any is set aside
    permanently.
    """
    global _settled  # noqa: PLW0603 (one number per process)
    if len(sys.modules) != _settled:
        _settled = len(sys.modules)
        gc.freeze()


def load() -> None:
    """Import what workers need."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    settle()


def needed(arguments: Sequence[str]) -> bool:
    """Tell whether the workers of a daemon, by its arguments, import what is loaded here."""
    return _BARE not in arguments


if __name__ == "__main__":
    if needed(sys.argv):
        load()
    from pyspark.daemon import manager

    manager()
