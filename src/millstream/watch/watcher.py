"""The watcher: patterns over events as they come, on a small device, without Spark.

with ms.Watcher(hot, key="sensor") as watcher:
    for match in watcher.send({"sensor": "s1", "temperature": 97}):
        print(match["sensor"])

inputs ──▶ rows ──▶ node (device, disk, outbox) ──▶ outputs
                      ▲ │
                      │ ▼
                     peers
"""

from __future__ import annotations

import logging
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.clock import MICROSECOND, Clock, SystemClock
from millstream.errors import EventRefused, InvalidOption, InvalidSettings, WatchError
from millstream.flow.durations import duration
from millstream.patterns.edge import EdgePattern
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.watch import kinds, loading, metrics, status
from millstream.watch.aside import Aside
from millstream.watch.complex_event import ComplexEvent, encoded, run_text
from millstream.watch.delivery import Delivery
from millstream.watch.device import Complete, Device, Sharing
from millstream.watch.disk import Store
from millstream.watch.inputs import EventId, Input, Rejected
from millstream.watch.intake import Intake
from millstream.watch.node import Node
from millstream.watch.outbox import Outbox
from millstream.watch.outputs import Output
from millstream.watch.rows import Columns
from millstream.watch.settings import Settings, read
from millstream.watch.takers import Takers

if TYPE_CHECKING:
    from millstream.watch.async_watcher import AsyncWatcher

_log = logging.getLogger(__name__)
_TICK_S: Final = 0.25
_FLUSH_S: Final = 10.0
Patterns = Pattern | Phenomenon | Sequence[Pattern | Phenomenon] | str | PathLike[str]
OnMatch = Callable[[ComplexEvent], None]


def _nothing() -> None:
    """What is done where there is nothing to do."""


class Watcher:
    """Looks for patterns in events. Any thread may send.

    Args:
        patterns: A pattern, several, or the file that has them.
        key: The columns whose values are matched separately, unless a pattern names its own.
        time: The time column of events, in ISO 8601; without it, events get the time at which they
            come, in column "at".
        schema: The columns of events, as in Spark SQL; without it, values are taken as they come.
        id: A column whose value tells events apart: one that comes twice, here or on a peer, counts
            once.
        device: The name of this device.
        peers: The file with the settings of all devices; with it, they keep each other's runs.
        data: The folder in which runs and complex events survive a restart; None: in memory alone.
        inputs: Where events come from, besides `send`: "stdin", "http://127.0.0.1:8710", ...
        outputs: Where complex events go: "stdout", "https://...", ...
        on_match: Called with every complex event.
        lateness: How long absence waits for events that are late.
        token: What those who are not on this host have to show to the input "http".
    """

    def __init__(
        self,
        patterns: Patterns,
        *,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        schema: str | None = None,
        id: str | None = None,
        device: str = "device",
        peers: str | PathLike[str] | None = None,
        data: str | PathLike[str] | None = None,
        inputs: Sequence[str | Input] = (),
        outputs: Sequence[str | Output] = (),
        on_match: OnMatch | None = None,
        lateness: str | timedelta = timedelta(0),
        token: str | None = None,
        source: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        watched = _watched(patterns, key, time, schema, source)
        kept = data is not None or peers is not None
        self.columns = Columns(watched[0].schema, watched[0].time, id, kept=kept)
        self.patterns = [
            EdgePattern.of(
                one.pattern,
                schema=self.columns.whole,
                time=self.columns.time_column,
                key=one.key,
            )
            for one in watched
        ]
        self.device, self.incarnation = device, secrets.token_hex(6)
        self._began = self.clock.elapsed_us()
        self._on_match, self.takers = on_match, Takers()
        self._stopping = threading.Event()
        self._stack = ExitStack()
        self._closed = False
        with ExitStack() as opened:  # closed again if something of it fails
            self._open(opened, data, outputs, inputs, token, _micros(lateness), peers)
            self._stack = opened.pop_all()

    def _open(
        self,
        stack: ExitStack,
        data: str | PathLike[str] | None,
        outputs: Sequence[str | Output],
        inputs: Sequence[str | Input],
        token: str | None,
        lateness: int,
        peers: str | PathLike[str] | None,
    ) -> None:
        settings = read_settings(peers, self.device)
        inputs = inputs or addresses(settings.inputs, "inputs")
        outputs = outputs or addresses(settings.outputs, "outputs")
        folder = Path(data).resolve() if data is not None else None
        if folder is None:
            folder_used = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            folder_used = folder
        kept = None if folder is None else folder / "aside"
        context = {
            "device": self.device,
            "data": folder_used,
            "token": token,
            "columns": self.columns,
            "aside": lambda name: Aside(kept, name),
        }
        self._rejected = Aside(kept, "rejected")
        self._failed = Aside(kept, "failed")
        store = None if folder is None else Store(folder / "state", limit=settings.limits.log)
        if store is not None:
            stack.callback(store.close)
        made = _made("outputs", outputs, context)
        self.inputs = _made("inputs", inputs, context)
        for one in self.inputs:
            stack.callback(getattr(one, "close", _nothing))
        outbox = None
        sender = f"{self.device}@{self.incarnation}"
        if made:
            outbox = Outbox(folder_used / "outbox", sender, [one.name for one in made])
            stack.callback(outbox.close)
        #: The column by which devices share sensors.
        sensor = next((name for one in self.patterns for name in one.keys), None)
        shared = sensor if settings.sensors else None
        self._intake = Intake(self.columns, self.clock, sender, shared)
        device = Device(
            self.patterns,
            self.device,
            self.incarnation,
            [one.name for one in settings.peers],
            _sharing(settings),
            elapsed=self._began,
            durable=folder is not None,
        )
        self.node = Node(
            device,
            settings,
            self.clock,
            store=store,
            outbox=outbox,
            lateness=lateness,
            stamps=self.columns.time is None,
            on_found=self._found,
            on_failed=self._not_made,
        )
        stack.callback(self.node.close)
        self._deliveries = [] if outbox is None else [Delivery(one, outbox) for one in made]
        self._threads: dict[str, threading.Thread] = {}
        ticker = threading.Thread(target=self._tick, name="watcher", daemon=True)
        ticker.start()
        stack.callback(ticker.join)
        stack.callback(self._stopping.set)

    def _tick(self) -> None:
        while not self._stopping.wait(_TICK_S):
            self.node.tick()

    # events

    def send(
        self,
        rows: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        ids: Sequence[EventId] | None = None,
    ) -> list[ComplexEvent]:
        """Take one event or several, and return the complex events that they complete.

        They are durable when this returns, if the watcher has a data folder.

        Raises:
            EventRefused: A row is no event, and none of them was taken; or a condition could not be
                computed for a row, and the others were taken.
        """
        given = rows if type(rows) is list else [rows] if type(rows) is dict else _several(rows)
        events, bad = self._intake.events(given, "send", ids)
        if bad:
            raise EventRefused(f"row {bad[0].place}: {bad[0].reason}")
        found, failed = self.node.take(events)
        if failed:
            raise EventRefused(f"row {failed[0].place}: {failed[0].reason}")
        return found

    def take(
        self,
        rows: Sequence[Mapping[str, Any] | bytes],
        *,
        source: str,
        ids: Sequence[EventId] | None = None,
    ) -> list[Rejected]:
        """Take rows of an input; see `Feed.take`."""
        if self._closed:
            raise WatchError("the watcher is stopping")
        events, bad = self._intake.events(rows, source, ids)
        places = [place for place in range(len(rows)) if place not in {one.place for one in bad}]
        _, failed = self.node.take(events)
        bad += [Rejected(places[one.place], one.reason) for one in failed]
        for one in bad:
            row = rows[one.place]
            self._rejected.put(one.reason, row if isinstance(row, bytes) else repr(row).encode())
        return bad

    def _found(self, found: Sequence[ComplexEvent]) -> None:
        for one in found:
            self.takers.put(one)
            if self._on_match is not None:
                self._on_match(one)

    def _not_made(self, complete: Complete) -> None:
        """Put a match aside whose columns could not be computed."""
        assert complete.failed is not None
        _log.warning("a match is put aside: %s", complete.failed)
        about = encoded({"pattern": complete.id.pattern, "key": list(complete.id.key)})
        self._failed.put(complete.failed, about, run=run_text(complete.id))

    def matches(self) -> Iterator[ComplexEvent]:
        """Yield every complex event from now on, until the watcher closes."""
        with self.takers.open() as taken:
            yield from iter(taken.get, None)

    # running

    def start(self, before_inputs: Callable[[], None] = _nothing) -> None:
        """Begin to speak to the peers, and start the inputs, each in a thread of its own."""
        self.node.start()
        before_inputs()
        for one in self.inputs:
            thread = threading.Thread(target=self._run, args=(one,), name=one.name, daemon=True)
            self._threads[one.name] = thread
            thread.start()

    def _run(self, one: Input) -> None:
        with suppress(WatchError):  # it is closed while it runs
            one.run(self)

    @property
    def ended(self) -> bool:
        """Whether all inputs have ended; the one that only tells about the watcher never does."""
        return not any(
            self._threads[one.name].is_alive()
            for one in self.inputs
            if getattr(one, "events", True)
        )

    @property
    def rejected(self) -> int:
        """How many rows were no events, and were put aside."""
        return self._rejected.count

    @property
    def undelivered(self) -> int:
        """How many complex events some output has not delivered; as of the end, once closed."""
        if self.node.outbox is None:
            return 0
        return max(self.node.outbox.waiting().values(), default=0)

    def status(self) -> status.WatcherStatus:
        """Return what the watcher is doing, as data."""
        uptime = (self.clock.elapsed_us() - self._began) / 1_000_000
        return status.of(self, self._threads, self._deliveries, uptime)

    def metrics(self) -> str:
        """Return the same numbers for Prometheus."""
        return metrics.exposition(self.status())

    # closing

    def close(self, *, timeout: float = _FLUSH_S) -> None:
        """Stop the inputs, deliver what was found, as far as that works in time, and close."""
        if self._closed:
            return
        self._closed = True
        self.node.stopping.set()
        deadline = time.monotonic() + timeout
        for one in self.inputs:
            if one.name in self._threads:
                one.stop()
        for thread in self._threads.values():
            thread.join(max(0.1, deadline - time.monotonic()))
        self.node.tick()
        if self.node.outbox is not None:
            self.node.outbox.drained(max(0.0, deadline - time.monotonic()))
        for delivery in self._deliveries:
            delivery.stop(deadline)
        self.takers.close()
        self._stack.close()

    def __enter__(self) -> Watcher:
        self._started()
        return self

    def _started(self) -> None:
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncWatcher:
        from millstream.watch.async_watcher import AsyncWatcher  # asyncio takes megabytes

        self._started()
        return AsyncWatcher(self)

    async def __aexit__(self, *error: object) -> None:
        from asyncio import to_thread

        await to_thread(self.close)


def _made(side: kinds.Side, given: Sequence[Any], context: Mapping[str, Any]) -> list[Any]:
    """Return inputs or outputs, each with a name of its own.

    Raises:
        InvalidOption: Two are the same.
    """
    found = [kinds.make(side, one, **context) if isinstance(one, str) else one for one in given]
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        msg = f'the {side[:-1]} "{twice}" is there twice'
        raise InvalidOption(msg, hint="name each of them once")
    return found


def _several(rows: Any) -> list[Any]:
    """Return one row, or several, as a list."""
    alone = isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable)
    return [rows] if alone else list(rows)


def _watched(
    patterns: Patterns,
    key: str | Sequence[str] | None,
    time: str | None,
    schema: str | None,
    source: str | None,
) -> tuple[loading.Watched, ...]:
    """Return the patterns, all over the events of one source."""
    if isinstance(patterns, str | PathLike):
        found = loading.load(patterns)
    else:
        found = loading.named(patterns)
    found = loading.overridden(found, key=key, time=time, schema=schema)
    return loading.of_one_source(found, source)


def read_settings(peers: str | PathLike[str] | None, device: str) -> Settings:
    """Return the settings of a device; without a file, those of one that has no peers."""
    return Settings(device) if peers is None else read(Path(peers), device)


def addresses(given: Mapping[str, Any], kind: str) -> list[str]:
    """Return the addresses that the settings name under "inputs" or "outputs".

    Raises:
        InvalidSettings: One of them is something else.
    """
    for name, address in given.items():
        if not isinstance(address, str):
            msg = f'"{name}" of "{kind}" is {address!r:.60}'
            raise InvalidSettings(msg, hint=f'expected an address, like "{name}: stdin"')
    return list(given.values())


def _sharing(settings: Settings) -> Sharing:
    return Sharing(
        periods=settings.periods,
        recall=None if settings.recall is None else settings.recall // MICROSECOND,
        key_owner=settings.key_owner,
        across="seed" if settings.across == "seed" else None,
        limit=settings.limits.changes,
        most_runs=settings.limits.runs,
    )


def _micros(length: str | timedelta) -> int:
    return duration(length) // MICROSECOND
