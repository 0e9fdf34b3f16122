"""What an engine does for each request over HTTP; `routes` has the table.

The engine is called in threads, so that one slow call holds up no other; calls that wait for a job
or for room in an inbox have threads of their own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from millstream.clock import iso
from millstream.engine.access.audit import AuditEntry, AuditQuery
from millstream.engine.access.audit import read as read_audit
from millstream.engine.http import tail
from millstream.engine.http.api import Api, Asked, Text
from millstream.engine.http.messages import (
    Beginning,
    Deployment,
    Dropped,
    Health,
    Log,
    Preparation,
    Ready,
    Stopping,
    Switching,
    SwitchPlanned,
)
from millstream.engine.http.metrics import CONTENT_TYPE
from millstream.engine.http.openapi import OCTETS
from millstream.engine.http.watchers import WatcherSeen, seen
from millstream.engine.inboxes.intake import Numbering, Taken
from millstream.engine.jobs.folders import Folders
from millstream.engine.jobs.lifecycle import JobState
from millstream.engine.jobs.status import (
    BinaryStatus,
    EngineStatus,
    GroupStatus,
    Happening,
    JobStatus,
    Prepared,
    VersionStatus,
)
from millstream.engine.jobs.store import Binary
from millstream.engine.leases.tasks import Tasks
from millstream.engine.programs.contents import Content
from millstream.engine.schemes.guests import GuestStatus
from millstream.errors import NotThere, RequestRefused


def health(api: Api, asked: Asked) -> Health:  # noqa: ARG001 (all operations are called alike)
    """Tell whether the engine answers at all."""
    return Health()


def ready(api: Api, asked: Asked) -> Ready:  # noqa: ARG001
    """Tell whether the engine can take jobs and events; 503 if not."""
    return Ready(ready=not api.stopping, jobs=len(api.engine.jobs()))


def engine(api: Api, asked: Asked) -> EngineStatus:  # noqa: ARG001
    """Return which node this engine is, and where its inboxes are."""
    return api.about()


def metrics(api: Api, asked: Asked) -> Text:  # noqa: ARG001
    """Return the engine's numbers for Prometheus."""
    return Text(api.metrics.text(), CONTENT_TYPE)


def tasks(api: Api, asked: Asked) -> Tasks:  # noqa: ARG001
    """Return which engine runs which job, since when, and which one is next."""
    return api.engine.tasks()


def watchers(api: Api, asked: Asked) -> list[WatcherSeen]:  # noqa: ARG001
    """Return the watchers that this engine was told of, as they answer now."""
    return seen(api.watchers)


def drain_tasks(api: Api, asked: Asked) -> Tasks:  # noqa: ARG001
    """Move the jobs of this engine that others know too to other engines, one by one."""
    return api.engine.drain_tasks()


def audit(api: Api, asked: Asked) -> list[AuditEntry]:
    """Return the newest entries of the audit log: who changed what, and who was refused."""
    api.audit.catch_up(time.time())
    given = asked.values
    query = AuditQuery(given["job"], given["who"], given["since"], given["limit"])
    return read_audit(Folders(api.engine.data).audit, query)


def jobs(api: Api, asked: Asked) -> list[JobStatus]:
    """List the jobs that are deployed."""
    return [one for one in api.engine.jobs() if asked.caller.job in (None, one.name)]


def deploy(api: Api, asked: Asked) -> JobStatus:
    """Deploy a flow on this engine alone."""
    given: Deployment = asked.body
    asked.caller.check_deploys(given.name)
    return api.engine.deploy(given.package, name=given.name, root=given.root, options=given.options)


def prepare(api: Api, asked: Asked) -> Prepared:
    """Make a job ready on one engine of several; it runs when all of them `begin`."""
    given: Preparation = asked.body
    asked.caller.check_deploys(given.name)
    return api.engine.prepare(
        given.package,
        name=given.name,
        root=given.root,
        options=given.options,
        binaries=given.binaries,
    )


def begin(api: Api, asked: Asked) -> JobStatus:
    """Begin a job that was prepared."""
    given: Beginning = asked.body
    return api.engine.begin(asked.job, given.places, driver=given.driver, engines=given.engines)


def host(api: Api, asked: Asked) -> GuestStatus:
    """Start, end, drain or ask the runtime of a node, for the engine that has the job's driver."""
    return api.engine.host(asked.job, asked.values["node"], asked.body)


def job(api: Api, asked: Asked) -> JobStatus:
    """Return a job as it is now."""
    return api.engine.status(asked.job)


def groups(api: Api, asked: Asked) -> Sequence[GroupStatus]:
    """Return the numbers of a job's groups."""
    return api.engine.status(asked.job).groups


def statistics(api: Api, asked: Asked) -> dict[str, Any]:
    """Return the numbers that the job's driver reported last."""
    return api.engine.statistics(asked.job)


def logs(api: Api, asked: Asked) -> Log:
    """Return the last lines of a job's log, or those after a place in it."""
    log = api.engine.log_file(asked.job)
    after, contains = asked.values["after"], asked.values["contains"] or ""
    lines, place = (
        tail.last(log, asked.values["lines"], contains)
        if after is None
        else tail.since(log, after, contains)
    )
    return Log(lines, place)


def history(api: Api, asked: Asked) -> list[Happening]:
    """Return what has happened to a job, oldest first."""
    return api.engine.history(asked.job)


def drain(api: Api, asked: Asked) -> JobStatus:
    """Have a job take nothing more and process what it has; with `flush` it ends permanently."""
    return api.engine.drain(asked.job, flush=asked.values["flush"])


def resume(api: Api, asked: Asked) -> JobStatus:
    """Have a drained or failed job go on."""
    return api.engine.resume(asked.job)


def plan_switch(api: Api, asked: Asked) -> SwitchPlanned:
    """Return what a switch to another version would do, or what prevents it; nothing changes."""
    given: Switching = asked.body
    found = api.engine.plan_switch(asked.job, given.request())
    return SwitchPlanned(found.plan, found.text, found.graph)


def switch(api: Api, asked: Asked) -> JobStatus:
    """Begin to replace the running version of a job; its status shows the progress."""
    given: Switching = asked.body
    if given.only_quiet:
        return api.engine.end_when_quiet(asked.job)
    return api.engine.switch(asked.job, given.request())


def give_up(api: Api, asked: Asked) -> JobStatus:
    """Abort a switch before its cut: the old version runs on."""
    return api.engine.abort_switch(asked.job)


def versions(api: Api, asked: Asked) -> list[VersionStatus]:
    """Return the versions of a job, oldest first, each with the switch that led to it."""
    return api.engine.versions(asked.job)


def settled(api: Api, asked: Asked) -> JobStatus:
    """Settle a job whose driver, on another engine, is done."""
    state = JobState.FINISHED if asked.values["finished"] else JobState.DRAINED
    return api.engine.settled(asked.job, state)


def missed(api: Api, asked: Asked) -> JobStatus:
    """Drain a job without another of its engines, which does not answer."""
    return api.engine.missed(asked.job, asked.values["peer"])


async def wait(api: Api, asked: Asked) -> JobStatus:
    """Wait until a job has finished, drained or failed, or the limit is over; return it."""
    return await api.wait(asked)


def undeploy(api: Api, asked: Asked) -> JobStatus:
    """Remove a job that is finished, drained or failed; by force any job.

    Force loses what is not processed. Its journals stay for a later deployment under the same
    name, unless they are purged.
    """
    return api.engine.undeploy(asked.job, force=asked.values["force"], purge=asked.values["purge"])


def stop(api: Api, asked: Asked) -> Stopping:
    """Stop the engine; refused while jobs run, unless by force: they go on at the next start."""
    api.engine.stop(force=asked.values["force"])
    api.stopping = True
    api.stop()
    return Stopping()


def send(api: Api, asked: Asked) -> Taken:
    """Put events into a source's journal; they are durable when this is answered.

    A line that is no row becomes a dead letter and stops no other. With a sender and the number of
    its first row, a request whose answer was lost can be repeated: what is there already is counted
    and not stored again. The requests of one sender come one after the other, with rising numbers.
    """
    source = asked.values["source"]
    numbering = _numbering(
        asked.values["Millstream-Sender"], asked.values["Millstream-First-Number"]
    )

    def take(name: str) -> Taken:
        return api.intake.take(
            f"{name}.{source}", asked.media, asked.body, numbering, timeout=api.limits.room_seconds
        )

    try:
        return take(asked.job)
    except NotThere:
        # It may be the job's id; if there is no such job, that is the answer.
        name = api.engine.status(asked.job).name
        if name == asked.job:
            raise
        return take(name)


def actions(api: Api, asked: Asked) -> list[BinaryStatus]:  # noqa: ARG001
    """List the programs that the engine keeps: all versions, by name, oldest first."""
    return _listed(api, api.engine.binaries.all())


def action(api: Api, asked: Asked) -> list[BinaryStatus]:
    """Return all versions of a program, oldest first."""
    return _listed(api, api.engine.binaries.versions(asked.values["name"]))


def add_action(api: Api, asked: Asked) -> BinaryStatus:
    """Give a name to bytes that were sent: a new version, unless the newest is the same."""
    (added,) = _listed(api, [api.engine.binaries.add(asked.values["name"], asked.body.sha256)])
    return added


def remove_action(api: Api, asked: Asked) -> list[BinaryStatus]:
    """Forget a version of a program, or all of them; refused while a job runs one."""
    return _listed(api, api.engine.remove_binary(asked.values["name"], asked.values["version"]))


def content(api: Api, asked: Asked) -> Content:
    """Tell how many bytes of a program are here."""
    return api.engine.binaries.contents.status(asked.values["sha256"])


def send_content(api: Api, asked: Asked) -> Content:
    """Take bytes of a program, from an offset on; with the last of them the whole is checked.

    Bytes that come again change nothing: a request whose answer was lost can be repeated.
    """
    given, contents = asked.values, api.engine.binaries.contents
    return contents.receive(
        given["sha256"], asked.body, offset=given["offset"], total=given["bytes"]
    )


def read_content(api: Api, asked: Asked) -> Text:
    """Return bytes of a program, from an offset on; none at its end."""
    given = asked.values
    data = api.engine.binaries.contents.read(given["sha256"], given["offset"], given["limit"])
    return Text(data, OCTETS)


def drop_content(api: Api, asked: Asked) -> Dropped:
    """Forget bytes that have no name here; refused while a job runs them."""
    api.engine.drop_content(asked.values["sha256"])
    return Dropped(asked.values["sha256"])


def _listed(api: Api, found: Sequence[Binary]) -> list[BinaryStatus]:
    users = api.engine.users()
    return [
        BinaryStatus(
            one.name,
            one.version,
            one.sha256,
            one.bytes,
            iso(one.added_at),
            users.get(one.sha256, []),
        )
        for one in found
    ]


def _numbering(sender: str | None, first: int | None) -> Numbering | None:
    if sender is None and first is None:
        return None
    if sender is None or first is None:
        hint = "give both Millstream-Sender and Millstream-First-Number, or neither"
        raise RequestRefused("a sender has a name and numbers its rows", hint=hint)
    return Numbering(sender, first)
