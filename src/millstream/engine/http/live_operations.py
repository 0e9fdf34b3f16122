"""What an engine shows of its jobs as they run: the stream of the console, graphs, the last hour."""

from __future__ import annotations

from millstream.clock import iso
from millstream.engine.http.api import Api, Asked, Stream, Text
from millstream.engine.http.messages import SwitchDetail, SwitchPlanned
from millstream.engine.http.openapi import EVENTS
from millstream.engine.http.page_files import page_files
from millstream.engine.jobs.pulse import Lines, Series
from millstream.plan.drawing import Drawing


def home(api: Api, asked: Asked) -> Text:  # noqa: ARG001 (all operations are called alike)
    """Return the console: a page that shows the engine and its jobs."""
    return page_files().index()


def page_file(api: Api, asked: Asked) -> Text:  # noqa: ARG001
    """Return a part of the console; its name has its hash, so that it may be kept."""
    return page_files().file(asked.values["file"])


async def live(api: Api, asked: Asked) -> Stream:
    """Return the jobs as they are, and what changes, as server-sent events.

    Each event is a JSON object: all jobs ("whole"), or those that have changed since the event
    before, each with its status and its rows a second; "gone" are jobs that were undeployed.
    """
    return Stream(api.live.events(asked.caller.job, once=asked.values["once"]), EVENTS)


def lines(api: Api, asked: Asked) -> dict[str, Lines]:
    """Return rows a second and lag of all jobs over the last minutes: a point every 5 seconds."""
    jobs = [one for one in api.engine.jobs() if asked.caller.job in (None, one.name)]
    return {one.name: api.live.lines(one.id, asked.values["points"]) for one in jobs}


def series(api: Api, asked: Asked) -> Series:
    """Return the numbers of a job's groups over the last hour: a point every 5 seconds."""
    return api.live.series(api.engine.status(asked.job).id)


def switch_detail(api: Api, asked: Asked) -> SwitchDetail:
    """Return the switch that goes on, or the last one, and what was planned last."""
    planned = api.engine.switch_planned(asked.job)
    shown = None
    if planned is not None:
        at, plan = planned
        shown = SwitchPlanned(plan.plan, plan.text, plan.graph, iso(at))
    return SwitchDetail(api.engine.status(asked.job).switch, shown)


def graph(api: Api, asked: Asked) -> Drawing:
    """Return the graph of the version that runs, laid out as `millstream plan --svg` does."""
    return api.engine.graph(asked.job)
