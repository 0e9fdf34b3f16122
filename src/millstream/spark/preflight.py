"""Mistakes that need no Spark to be found: whoever makes one should not wait until it has started.

A start looks for them again, in its own order; here they are looked for together, before.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

from millstream.errors import InvalidOption, LinkError, MillstreamError
from millstream.extras import need
from millstream.flow.flow import Flow
from millstream.flow.site import Site
from millstream.flow.spec import Spec
from millstream.flow.stages import Source, Stage
from millstream.links.host import Listening, read_address
from millstream.links.network import preferred
from millstream.plan.fingerprint import difference, fingerprint
from millstream.plan.groups import Plan, plan
from millstream.plan.objections import check_new
from millstream.spark.io.checkpoint import group_changed, recorded
from millstream.spark.run.snapshot import snapshot
from millstream.spark.switching.switch_log import SwitchLog

#: How long a port may still be held by a process that is ending.
_PORT_S: Final = 1.0


def check_flow(flow: Flow, root: Path) -> Plan:
    """Return the plan of a flow whose extras, files and folders are there.

    Raises:
        MissingExtra: A stage or a sink needs a package that is not installed.
        FlowError: The flow cannot be planned, or a file of a stage is missing.
        MillstreamError: A source or a sink has found that it cannot work.
    """
    planned = plan(flow)
    for stage in flow.stages.values():
        site = Site(flow.name, stage.name, stage.noun, stage.where)
        if stage.extra is not None:
            need(stage.extra, str(site))
        _check_contents(stage, root, site)
        if isinstance(stage, Source):
            _check_spec(stage.origin, root, site)
    for sink in flow.sinks.values():
        _check_spec(sink.target, root, Site(flow.name, sink.name, "sink", sink.where))
    return planned


def _check_spec(spec: Spec, root: Path, site: Site) -> None:
    if spec.extra is not None:
        need(spec.extra, str(site))
    if spec.checker is None:
        return
    try:
        resolve_name(spec.checker)(spec, root)
    except MillstreamError as error:
        if site.where is not None:
            error.add_note(str(site.where))
        raise


def _check_contents(stage: Stage, root: Path, site: Site) -> None:
    for name in stage.contents:
        if name != stage.program and not (root / name).exists():
            hint = f'paths start from the folder of the flow, "{root}"'
            raise site.mistake(InvalidOption, f'needs "{name}", which does not exist', hint=hint)


def check_unchanged(planned: Plan, folder: Path, root: Path) -> None:
    """Refuse a flow with a group that has changed, as far as that is certain without Spark.

    Which columns of a journal a group uses, only Spark can tell, so columns do not count here. A
    flow that was ever switched is left to the start: its record says which version is meant.

    Raises:
        FlowError: A stage of a new group would probably fail.
        GroupChanged: A group means something else than when its checkpoint was made.
    """
    if SwitchLog(folder / "switch").read() is not None:
        return
    running = [one.name for one in planned.groups if recorded(_checkpoint(folder, one.name))]
    check_new(planned, running)
    names = {name for stage in planned.flow.stages.values() for name in stage.contents}
    snapshots = {name: snapshot(root / name) for name in names if (root / name).exists()}
    for group in planned.groups:
        at = _checkpoint(folder, group.name)
        known = recorded(at)
        if known is not None:
            now = fingerprint(planned, group.name, snapshots)
            changes = difference(_without_columns(known["description"]), _without_columns(now))
            if changes:
                raise group_changed(group.name, changes, at)


def _checkpoint(folder: Path, group: str) -> Path:
    return folder.resolve() / "groups" / group


def _without_columns(description: dict[str, Any]) -> dict[str, Any]:  # JSON
    stages = {
        name: {key: value for key, value in stage.items() if key != "schema"}
        if stage["kind"] == "journal"
        else stage
        for name, stage in description["stages"].items()
    }
    return {**description, "stages": stages}


def check_port(listening: Listening, folder: Path) -> None:
    """Refuse a port that was asked for and that another process has.

    Raises:
        LinkError: It is in use.
    """
    at = read_address(folder)
    if not listening.port or (at is not None and at.port == listening.port):
        return  # any will do, or a client hosts this flow's inboxes there, and hands them over
    ip = preferred(listening.network)
    until = time.monotonic() + _PORT_S
    while not _free(ip, listening.port):
        if time.monotonic() >= until:
            hint = "choose another --port, or leave it out for any that is free"
            raise LinkError(f"port {listening.port} of {ip} is in use", hint=hint)
        time.sleep(_PORT_S / 20)


def _free(ip: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((ip, port))
        except OSError:
            return False
        return True


def preflight(flow: Flow, folder: Path, root: Path, listening: Listening) -> Plan:
    """Look for every mistake in a run that needs no Spark to be found; return the plan."""
    planned = check_flow(flow, root)
    check_unchanged(planned, folder, root)
    if any(isinstance(one, Source) and one.origin.intake for one in flow.stages.values()):
        check_port(listening, folder)
    return planned
