"""The owner's side of followers: hands out what is durable in partitions, as soon as it is.

A request that finds nothing new waits here. One thread reads the files; idle, it sleeps.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.errors import LinkBroken, LinkClosed
from millstream.journal.copies import NOWHERE, ReplicaChunk, ReplicaSource
from millstream.links.follow import Follow
from millstream.links.inbox import Inbox

_log = logging.getLogger(__name__)
_MOST_WAITING: Final = 10_000

Told = Callable[["ReplicaChunk | BaseException"], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A follower that waits for news."""

    inbox: Inbox
    request: Follow
    until: float
    told: Told


class Feeds:
    """Answers followers. Any thread may call."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting: list[_Waiting] = []
        self._originals: weakref.WeakKeyDictionary[Inbox, ReplicaSource] = (
            weakref.WeakKeyDictionary()
        )
        self._rung: set[int] = set()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def follow(self, inbox: Inbox, request: Follow, told: Told) -> None:
        """Call `told` with what follows, or with an empty chunk when the request has timed out."""
        with self._guard:
            if self._closed:
                raise LinkClosed("the listener is closed")
            if len(self._waiting) >= _MOST_WAITING:
                hint = "ask again later"
                raise LinkBroken("too many follow partitions of this engine", hint=hint)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="followers", daemon=True)
                self._thread.start()
        inbox.on_durable = partial(self._ring, inbox)
        waiting = _Waiting(inbox, request, time.monotonic() + request.wait_s, told)
        self._tasks.put(partial(self._enter, waiting))

    def _ring(self, inbox: Inbox) -> None:
        """Answer those who wait for this inbox, once for all commits since the last answer."""
        with self._guard:
            if id(inbox) in self._rung:
                return
            self._rung.add(id(inbox))
        self._tasks.put(partial(self._news, inbox))

    # the thread

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=self._pause())
            except queue.Empty:
                task = self._expire
            if task is None:
                return
            task()

    def _pause(self) -> float | None:
        soonest = min((waiting.until for waiting in self._waiting), default=None)
        return None if soonest is None else max(0.0, soonest - time.monotonic())

    def _enter(self, waiting: _Waiting) -> None:
        if not self._answered(waiting):
            self._waiting.append(waiting)

    def _news(self, inbox: Inbox) -> None:
        with self._guard:
            self._rung.discard(id(inbox))
        self._waiting = [
            one for one in self._waiting if one.inbox is not inbox or not self._answered(one)
        ]

    def _expire(self) -> None:
        now = time.monotonic()
        self._waiting = [one for one in self._waiting if one.until > now or not self._answered(one)]

    def _answered(self, waiting: _Waiting) -> bool:
        """Answer, if there is something to say or it is time."""
        answer: ReplicaChunk | BaseException
        try:
            answer = self._original(waiting.inbox).after(waiting.request.reached.plain())
            if answer.empty and time.monotonic() < waiting.until:
                return False
        except Exception as error:  # noqa: BLE001 (it belongs to who has asked)
            self._originals.pop(waiting.inbox, None)
            answer = error
        waiting.told(answer)
        return True

    def _original(self, inbox: Inbox) -> ReplicaSource:
        found = self._originals.get(inbox)
        if found is None:
            found = self._originals[inbox] = ReplicaSource(inbox.described().path, inbox.partition)
        return found

    def close(self) -> None:
        """Answer those who wait, with what there is: they find out that nobody is here any more."""
        with self._guard:
            self._closed = True
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join()
        left, self._waiting = self._waiting, []
        for waiting in left:
            waiting.told(ReplicaChunk(NOWHERE, 0, 0, 0))
