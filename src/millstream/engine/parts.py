"""What an engine consists of while it is started."""

from __future__ import annotations

import contextlib
import socket
import uuid
from dataclasses import dataclass

from millstream.clock import Clock
from millstream.engine.deployment import Deployments
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.job_runner import JobRunner
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.store import Store
from millstream.engine.leases.coordination import Coordination
from millstream.engine.leases.keeper import LeaseKeeper
from millstream.engine.programs.binaries import Binaries
from millstream.engine.shared_jobs import SharedJobs
from millstream.engine.version_sharing import VersionSharing
from millstream.errors import WrongNodes
from millstream.links.host import Listening


@dataclass(frozen=True, slots=True)
class Parts:
    """The store, the inboxes, the jobs and the programs of an engine."""

    store: Store
    inboxes: Inboxes
    runner: JobRunner
    binaries: Binaries
    deployments: Deployments
    sharing: VersionSharing
    #: Which jobs of all engines run here, if this one has a coordination.
    leases: LeaseKeeper | None = None

    @classmethod
    def open(
        cls,
        folders: Folders,
        listening: Listening,
        *,
        node: int,
        of: int,
        clock: Clock,
        master: str | None,
        spares: int,
        coordination: Coordination | None = None,
    ) -> Parts:
        """Open everything and go on with the jobs in the store; close it again if that fails."""
        keeper: list[LeaseKeeper] = []  # it needs the runner, whose drivers need it
        with contextlib.ExitStack() as stack:
            store = Store(folders.data / "jobs.sqlite")
            stack.callback(store.close)
            _check_node(store, folders, f"{node} of {of}")
            inboxes = Inboxes(folders.data, listening, node=node, of=of, clock=clock)
            stack.callback(inboxes.close)
            binaries = Binaries(folders.actions, store, clock)
            sharing = VersionSharing(None if coordination is None else coordination.versions)
            stack.callback(sharing.close)
            runner = JobRunner(
                folders,
                store,
                inboxes,
                binaries,
                sharing,
                clock=clock,
                master=master,
                spares=spares,
                storage=None if coordination is None else coordination.address,
                lease=lambda job: keeper[0].claims.lease(job),  # noqa: PLW0108 (it comes later)
            )
            stack.callback(runner.close, 0.0)
            runner.start()
            inboxes.start()
            stack.pop_all()
        deployments = Deployments(folders, store, inboxes, binaries, runner, clock)
        if coordination is not None:
            me = store.fact("engine", f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}")
            shared = SharedJobs(deployments, runner, inboxes)
            keeper.append(LeaseKeeper(coordination, me, shared))
            runner.on_taken = keeper[0].look_soon
            keeper[0].start()
        return cls(store, inboxes, runner, binaries, deployments, sharing, *keeper)

    def close(self) -> None:
        """Close the inboxes and the store, and wake those who wait for a job."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.store.close)
            stack.callback(self.inboxes.close)
            stack.callback(self.sharing.close)
            with self.runner.changed:
                self.runner.changed.notify_all()


def _check_node(store: Store, folders: Folders, now: str) -> None:
    was = store.fact("node", now)
    if was != now:
        hint = "give each node a folder of its own"
        raise WrongNodes(f"{folders.data} belongs to node {was}, this is node {now}", hint=hint)
