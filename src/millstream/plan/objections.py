"""Mistakes that are refused in what is new, while what runs already may go on with them."""

from __future__ import annotations

from collections.abc import Collection

from millstream.flow.site import Site
from millstream.plan.groups import Plan


def check_new(plan: Plan, running: Collection[str] = ()) -> None:
    """Refuse stages that would probably fail while they run, except in groups that run already.

    Raises:
        FlowError: There is such a stage.
    """
    flow = plan.flow
    for group in plan.groups:
        for name in group.stages if group.name not in running else ():
            stage = flow.stages[name]
            site = Site(flow.name, name, stage.noun, stage.where)
            objection = stage.objection(site, *(flow.stream(one) for one in stage.inputs))
            if objection is not None:
                raise objection
