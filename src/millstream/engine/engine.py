"""The engine: the jobs of one node, their inboxes, and the processes that run them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.clock import Clock
from millstream.engine.status import Happening, JobStatus, Place, Prepared
from millstream.journal.summary import Summary
from millstream.links.host import Listening
from millstream.links.network import Address


class Engine:
    """The jobs of one node. Any thread may call; what a method promises is on disk when it returns."""

    def __init__(
        self,
        data: Path,
        *,
        node: int = 0,
        of: int = 1,
        listening: Listening | None = None,
        master: str | None = None,
        warm: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.data, self.node, self.of = data, node, of
        #: Set by `stop`: whoever runs this engine waits for it, and closes it.
        self.stopped = threading.Event()

    def start(self) -> None:
        """Take the data folder, and go on with the jobs that are in it.

        Raises:
            EngineRunning: Another engine has the folder.
            WrongNodes: The node number is not one of 0 to N-1, or the folder is another node's.
        """
        raise NotImplementedError

    def close(self, *, drain_s: float = 0.0) -> None:
        """Stop all drivers cleanly, after they have had `drain_s` to process what was taken; the next engine goes on."""
        raise NotImplementedError

    @property
    def address(self) -> Address:
        """Where this engine's inboxes are."""
        raise NotImplementedError

    # deploying

    def deploy(
        self,
        package: bytes,
        *,
        name: str | None = None,
        root: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> JobStatus:
        """Deploy a flow on this engine alone: prepare and begin.

        `options` are "rows_per_batch" (int) and "state" ("memory" or "rocksdb").

        Raises:
            BadPackage: It is not what `package.pack` makes.
            FlowError: The flow has a mistake.
            JobExists: A job of that name is deployed.
            InvalidOption: An option is not known.
            WrongNodes: This engine is one of several.
        """
        raise NotImplementedError

    def prepare(
        self,
        package: bytes,
        *,
        name: str | None = None,
        root: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Prepared:
        """Take a flow, and return where its partitions that live here will be; nothing runs yet."""
        raise NotImplementedError

    def begin(self, job: str, places: Mapping[str, Sequence[Place]], *, driver: bool) -> JobStatus:
        """Begin a prepared job, whose inboxes are at `places`, one for each partition of each source.

        Raises:
            NoSuchJob: It was not prepared here.
        """
        raise NotImplementedError

    # looking

    def jobs(self) -> list[JobStatus]:
        """Return the jobs that are deployed, in the order of their deployment."""
        raise NotImplementedError

    def status(self, job: str) -> JobStatus:
        """Return a job, by its name or its id; undeployed ones by their id.

        Raises:
            NoSuchJob: There is none.
        """
        raise NotImplementedError

    def wait(self, job: str, timeout_s: float | None = None) -> JobStatus:
        """Wait until a job is FINISHED, DRAINED, FAILED or UNDEPLOYED, or the time is over; return it as it is then."""
        raise NotImplementedError

    def logs(self, job: str, lines: int = 100) -> list[str]:
        """Return the last lines of a job's log."""
        raise NotImplementedError

    def history(self, job: str) -> list[Happening]:
        """Return what has happened to a job, oldest first."""
        raise NotImplementedError

    def statistics(self, job: str) -> dict[str, Any]:
        """Return the numbers that the driver reported last, as `RunStatistics` has them; empty if it never did."""
        raise NotImplementedError

    def journals(self, job: str) -> list[Summary]:
        """Return a job's journals that are on this engine, in numbers."""
        raise NotImplementedError

    # changing

    def drain(self, job: str, *, flush: bool = False) -> JobStatus:
        """Have a job take nothing more and process what it has; with `flush` it ends, for good. Does not wait.

        Raises:
            InvalidTransition: It has failed, or has not begun.
        """
        raise NotImplementedError

    def resume(self, job: str) -> JobStatus:
        """Have a drained or failed job go on.

        Raises:
            InvalidTransition: It has finished, or is draining.
        """
        raise NotImplementedError

    def undeploy(self, job: str, *, force: bool = False, purge: bool = False) -> JobStatus:
        """Remove a job: one that is finished, drained or failed, by `force` any. Its journals stay, unless `purge`.

        Raises:
            JobBusy: It runs, and `force` was not given.
        """
        raise NotImplementedError

    def stop(self, *, force: bool = False) -> None:
        """Set `stopped`, if no jobs run or `force` is given; those that run then go on when an engine starts again.

        Raises:
            JobsRunning: Some do.
        """
        raise NotImplementedError

    # sending

    def send(self, target: str, rows: Any, *, time_limit_s: float = 30.0) -> int:
        """Send rows (see `Client.send`) to "job.source", and return how many once they are in the journal."""
        raise NotImplementedError
