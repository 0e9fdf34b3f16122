"""Python functions that `apply` brings along, measured where they run.

Spark calls them, and its metrics of Python workers contain the time in which these wait for rows. So each
function that the user's code uses while `apply` builds its frame goes to Spark inside of one that reports how
long it is at it. Spark has one place where all of them pass: calling a `UserDefinedFunction`, which also
`mapInPandas` and `mapInArrow` do. Functions that Spark calls in other ways (table functions, aggregates) are
not measured: their time is Spark's own work.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from millstream.spark.task_time import PYTHON, Timed, Worked

#: Called for each row or batch, and called once with all batches of a task.
_CALLS: Final = {
    PythonEvalType.SQL_BATCHED_UDF,
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_ARROW_UDF,
}
_STREAMS: Final = {
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF,
    PythonEvalType.SQL_MAP_PANDAS_ITER_UDF,
    PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
}
#: How much is reported at once: to report costs more than a call for a row does.
_ENOUGH_S: Final = 0.001
#: Settings of Spark's own profilers.
_PROFILERS: Final = (
    "spark.python.profile",
    "spark.python.profile.memory",
    "spark.sql.pyspark.udf.profiler",
)
_one_at_a_time = threading.Lock()
#: What became of functions, and for which accumulator: Spark calls one only once for a row if it is
#: the same wherever it is used, as by groups that share a query.
_known: WeakKeyDictionary[UserDefinedFunction, tuple[int, UserDefinedFunction]] = (
    WeakKeyDictionary()
)


class TimedCalls:
    """A function that is called for each row or batch, and how long it is at it.

    A task loses what was not enough to be reported at its end: a millisecond of each function.
    """

    def __init__(
        self,
        work: Callable[..., Any],
        worked: Accumulator[Worked],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work, self._worked, self._now = work, worked, now
        self._spent = 0.0

    def __call__(self, *values: Any, **named: Any) -> Any:
        begun = self._now()
        try:
            return self._work(*values, **named)
        finally:
            self._spent += self._now() - begun
            if self._spent >= _ENOUGH_S:
                self._worked.add({PYTHON: self._spent})
                self._spent = 0.0


@contextmanager
def timed_functions(worked: Accumulator[Worked] | None) -> Iterator[None]:
    """Let functions that this thread gives to Spark meanwhile report their time as Python's.

    Without an accumulator nobody wants to know; Spark's own profilers go before ours.
    """
    if worked is None or _profiled():
        yield
        return
    with _one_at_a_time:
        plain, mine = UserDefinedFunction.__call__, threading.get_ident()

        def call(self: UserDefinedFunction, *columns: Any, **named: Any) -> Any:
            ours = threading.get_ident() == mine
            return plain(_timed(self, worked) if ours else self, *columns, **named)

        UserDefinedFunction.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            UserDefinedFunction.__call__ = plain  # type: ignore[method-assign]


def _profiled() -> bool:
    """Tell whether Spark measures functions itself, which it can do with plain ones only."""
    spark = SparkSession.getActiveSession()
    wanted = [spark.conf.get(name, None) for name in _PROFILERS] if spark is not None else []
    return any(one not in (None, "", "false") for one in wanted)


def _timed(function: UserDefinedFunction, worked: Accumulator[Worked]) -> UserDefinedFunction:
    known, found = _known.get(function, (None, function))
    if known == worked.aid and found.deterministic == function.deterministic:
        return found
    work: Callable[..., Any]
    if function.evalType in _CALLS and not function.transpiled:
        work = TimedCalls(function.func, worked)
    elif function.evalType in _STREAMS:
        work = Timed(function.func, PYTHON, worked)
    else:
        return function
    found = copy.copy(function)
    found.func = work
    found._judf_placeholder = None  # it has the function that is not timed
    _known[function] = worked.aid, found
    return found
