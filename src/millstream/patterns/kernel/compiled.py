"""Compiling functions by numba, and where what was compiled is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching

from millstream.patterns import kernel_cache
from millstream.storage import caches

Function = TypeVar("Function", bound=Callable[..., Any])


class Locator(caching.InTreeCacheLocator):
    """Keeps what was compiled by content, so that checkouts and workers share it.

    Not where the folder cannot be written to.
    """

    _cache_path: str

    def get_cache_path(self) -> str:
        return self._cache_path

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Locator | None:
        ours = py_func.__module__.rpartition(".")[0] == __package__
        if not ours:
            return None
        made = cls(py_func, py_file)
        try:
            folder = kernel_cache.folder(Path(py_file).parent)
            made._cache_path = str(folder)
            caches.hold(folder)
            made.ensure_cache_path()
        except (OSError, RuntimeError):
            return None
        return made


caching.CacheImpl._locator_classes.insert(0, Locator)


def compiled(function: Function) -> Function:
    """Compile a function that others of the kernel call, and that makes no array.

    So it need not count who holds one: taking an array out of a record would cost more than most
    of what is then done with it.
    """
    return _inner(function, _nrt=False)


def allocating(function: Function) -> Function:
    """Compile a function that others of the kernel call, and that makes arrays."""
    return _inner(function)


def _inner(function: Function, **options: Any) -> Function:
    options |= {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True}
    return cast("Function", numba.njit(**options)(function))


def entry(function: Function) -> Function:
    """Compile a function that Python calls, or load it from the cache of an earlier process."""
    return cast("Function", numba.njit(nogil=True, error_model="numpy", cache=True)(function))
