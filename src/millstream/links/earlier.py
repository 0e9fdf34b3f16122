"""Names of arguments that programs of 0.1.0 use."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def timeout_by_its_earlier_name(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let callers write `time_limit_s`, which is `timeout` now."""

    @wraps(function)
    def called(*arguments: _P.args, **named: _P.kwargs) -> _R:
        if "time_limit_s" in named:
            named["timeout"] = named.pop("time_limit_s")
        return function(*arguments, **named)

    return called
