"""Futures that are handed out for every row and cost next to nothing until somebody looks at them.

A future of the standard library has a lock and a condition, which take longer to make than a row
takes to send. Most rows share their fate with all that were gathered with them, and most futures
are dropped unseen. So a promise is a future that becomes one when it is first used; until then its
group knows how it ends.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, Final

_FIELDS: Final = tuple(vars(Future()))


class Promise(Future[int]):
    """A future of one row."""

    def __init__(self, group: Group) -> None:
        # Not super's: `__getattr__` sees to that, when one of its fields is asked for.
        self._group = group

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise AttributeError(name)
        self._group.begin(self)
        return self.__dict__[name]


class Group:
    """The promises of rows that are sent together. Any thread may call."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._seen: list[Promise] = []
        self._done: Future[int] | None = None

    def begin(self, promise: Promise) -> None:
        """Make a promise the future that it stands for."""
        with self._guard:
            if _FIELDS[0] in promise.__dict__:  # another thread was here first
                return
            whole: Future[int] = Future()
            whole.set_running_or_notify_cancel()
            # All fields at once: another thread sees a future, or a promise, and nothing between.
            promise.__dict__.update(vars(whole))
            done = self._done
            if done is None:
                self._seen.append(promise)
        if done is not None:
            _pass_on(done, promise)

    def settle(self, done: Future[int]) -> None:
        """End all promises as `done` has ended, except those that have an end of their own."""
        with self._guard:
            self._done = done
            seen, self._seen = self._seen, []
        for promise in seen:
            _pass_on(done, promise)

    def fail(self, error: BaseException) -> None:
        """End all promises with an error."""
        done: Future[int] = Future()
        done.set_exception(error)
        self.settle(done)


def _pass_on(done: Future[int], promise: Promise) -> None:
    if promise.done():
        return
    error = done.exception()
    if error is None:
        promise.set_result(1)
    else:
        promise.set_exception(error)
