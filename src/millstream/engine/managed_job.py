"""A job in the memory of its engine: what is stored of it, with its driver and its versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.engine.driver.process import DriverProcess
from millstream.engine.jobs.lifecycle import DriverDied, Job
from millstream.engine.jobs.store import Stored, Version, current_of
from millstream.engine.jobs.switch_record import Planned, Switch
from millstream.errors import DriverFailed
from millstream.joblog import Lease
from millstream.plan.drawing import Drawing


@dataclass(slots=True)
class ManagedJob:
    """A job, with its processes."""

    stored: Stored
    driver: DriverProcess | None = None
    #: Whether the driver has the command to run the flow.
    running: bool = False
    #: The mark of the order that waits for engines or the disk; an order with another is outdated.
    held: object | None = None
    #: One that has the command to stop, and by when it has to be gone.
    leaving: DriverProcess | None = None
    leave_by: float = 0.0
    #: What a driver has reported last, and whether that is the one that runs now.
    statistics: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False
    #: The graph of the version that runs, as its driver has drawn it.
    drawing: Drawing | None = None
    #: The last plan of a switch that was asked for or begun, and when.
    planned: tuple[float, Planned] | None = None
    #: How many rows the inboxes had taken when it reported, the time before and the last time.
    taken: tuple[int, int] = (0, 0)
    #: Engines that did not answer when a drain was looked at last, and since when.
    away: dict[str, float] = field(default_factory=dict)
    #: The claim that its next driver may follow, if several engines may run it.
    lease: Lease | None = None
    #: All versions of the job, by their numbers.
    versions: dict[int, Version] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        return self.stored.job

    @property
    def name(self) -> str:
        return self.stored.name

    def report(self, numbers: dict[str, Any], taken: int) -> None:
        """Keep what the driver reports, and how many rows the inboxes have taken by now."""
        self.statistics, self.fresh = numbers, True
        self.taken = (self.taken[1], taken)

    def death(self, reason: str, *, hopeless: bool, waiting: bool) -> DriverDied:
        """Return the end of the driver as an event, with how far it said that it got."""
        groups = self.statistics.get("groups", ()) if self.fresh else ()
        return DriverDied(
            reason,
            hopeless=hopeless,
            waiting=waiting,
            committed=sum(group["batch"] + 1 for group in groups) if groups else None,
            caught_up=bool(groups) and not any(group["lag_rows"] for group in groups),
        )

    @property
    def present_driver(self) -> DriverProcess:
        """The driver.

        Raises:
            DriverFailed: There is none now.
        """
        if self.driver is None:
            hint = "ask again when it runs"
            raise DriverFailed(f'job "{self.name}" has no driver now', hint=hint)
        return self.driver

    @property
    def current(self) -> int:
        """The version that runs: the old one until a switch is done."""
        return current_of(self.versions.values())

    @property
    def before(self) -> int | None:
        """The version that ran before that one, if there was any."""
        earlier = [one.number for one in self.versions.values() if one.current_at is not None]
        return max((number for number in earlier if number < self.current), default=None)

    @property
    def next_version(self) -> int:
        """The number of the next version; one that only ran in the shadow does not use up its own."""
        return 1 + max((one.number for one in self.versions.values() if not one.shadow), default=0)

    @property
    def switch(self) -> Switch | None:
        """The switch that goes on, or the last one."""
        return self.versions[max(self.versions)].switch if self.versions else None

    @property
    def needed(self) -> set[int]:
        """The versions that a driver may need: the running one, and one that replaces it."""
        going = {
            one.number
            for one in self.versions.values()
            if one.switch is not None and not one.switch.over
        }
        return {self.current} | going
