"""The same flow with other sources and sinks, for a test or a recording; or with another name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millstream.flow.flow import Flow
from millstream.flow.stages import Sink, Source


def rewired(
    flow: Flow,
    *,
    source: Callable[[Source], Source],
    sink: Callable[[Sink], Sink],
    more: Iterable[Sink] = (),
) -> Flow:
    """Return a copy of `flow` with the sources and sinks that functions return, and `more` sinks.

    Names, schemas and times must stay: the stages between are taken as they are.
    """
    copy = renamed(flow, flow.name)
    for name, stage in flow.stages.items():
        if isinstance(stage, Source):
            copy._stages[name] = source(stage)
    copy._sinks.update({name: sink(one) for name, one in flow.sinks.items()})
    copy._sinks.update({one.name: one for one in more})
    return copy


def renamed(flow: Flow, name: str) -> Flow:
    """Return a copy of `flow` under another name.

    Raises:
        InvalidName: It is not a name for a flow.
    """
    copy = Flow(name, flow.given_switch_every)
    # A copy of the parts, not a rebuilding: everything was checked when the flow was built.
    copy._streams.update(flow._streams)
    copy._sinks.update(flow.sinks)
    copy._groups.update(flow.groups)
    copy._stages.update(flow.stages)
    return copy
