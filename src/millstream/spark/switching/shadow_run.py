"""A version in the shadow of another: begun, compared, ended; what goes wrong ends it alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace as changed

from millstream.clock import MICROSECOND
from millstream.spark.failpoints import passing
from millstream.spark.io.control import Orders
from millstream.spark.switching import vote
from millstream.spark.switching.pair import VersionPair
from millstream.spark.switching.shadow import Shadow
from millstream.spark.switching.shadow import remove as remove_shadow
from millstream.switch.comparison import Comparison
from millstream.switch.cut import WHOLE
from millstream.switch.events import AbortRequested, Event, Failed


class ShadowRun:
    """The shadow that runs, if one does, and what the last one has found."""

    def __init__(self, pair: VersionPair, folder: Path) -> None:
        self._pair = pair
        self.folder = folder
        self.shadow: Shadow | None = None
        self._duration: timedelta | None = None
        self._until_us: int | None = None
        self._broken: str | None = None
        self._compared: Comparison | None = None

    def prepare(self, shadow: Shadow, duration: timedelta | None) -> None:
        """Take on a shadow that is to run for so long; None: until it is ended."""
        self.shadow, self._duration = shadow, duration
        self._until_us = self._broken = self._compared = None

    def comparison(self) -> Comparison | None:
        """Return how the version in the shadow compares, or the last one did.

        None if there was none.
        """
        return self._compared if self.shadow is None else self.shadow.comparison()

    def begin(self, now_us: int) -> Failed | None:
        """Let the next version run on what comes in, unnoticed by others.

        Return what went wrong.
        """
        try:
            self._begin(now_us)
        except Exception as error:  # noqa: BLE001 (whatever it is, the old version goes on)
            self._broken = str(error)
            return Failed(self._pair.new.name, self._broken)
        return None

    def _begin(self, now_us: int) -> None:
        assert self.shadow is not None
        since = self.shadow.begin()
        first = vote.first_positions(self._pair, since)
        for name, query in self._pair.new.queries.items():
            owns = None if name in self._pair.inner else ((since, None, 0, WHOLE),)
            starts = () if query.sink.start is None else ((since, query.sink.start),)
            query.control.order(Orders(first=first.get(name, {}), owns=owns, starts=starts))
            passing("switch-ordered")
        if self._duration is not None:
            self._until_us = now_us + self._duration // MICROSECOND

    def notice(self, now_us: int, failed: Failed | None) -> Iterator[Event]:
        """Compare what has come, and notice when that is enough."""
        assert self.shadow is not None
        self._broken = self._compare(self.shadow) if failed is None else failed.why
        if self._broken is not None:
            yield Failed(self._pair.new.name, self._broken)
        elif self.shadow.complete:
            yield AbortRequested("all that comes in has been compared")
        elif self._until_us is not None and now_us >= self._until_us:
            yield AbortRequested("its time is over")

    def _compare(self, shadow: Shadow) -> str | None:
        """Compare what has come; return what is wrong, if anything is."""
        try:
            shadow.poll()
        except Exception as error:  # noqa: BLE001 (whatever it is, the old version goes on)
            return str(error)
        return shadow.trouble

    def end(self) -> None:
        """Keep what was found, and nothing else."""
        if self.shadow is not None:
            self._broken = self._broken or self.shadow.finish()
            self._compared = changed(self.shadow.comparison(), broken=self._broken)
            self.shadow.end()
            self.shadow = None
        remove_shadow(self.folder)
