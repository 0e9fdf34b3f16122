"""Whether state can be handed over as it is: what only Spark knows of it."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.spark.run.version import FlowVersion
from millstream.switch.obstacle import Obstacle
from millstream.switch.plan import SwitchPlan


def reshaped(old: FlowVersion, new: FlowVersion, plan: SwitchPlan) -> Iterator[Obstacle]:
    """Yield the stages that are handed over and would get rows of another shape than they keep."""
    for name in [name for unit in plan.units if unit.moved for name in unit.groups]:
        groups = [group for one in (old, new) for group in one.plan.groups if group.name == name]
        for stage in groups[0].stages if len(groups) == 2 and groups[0].stateful else ():
            shapes = [_shape(one, stage) for one in (old, new)]
            if shapes[0] != shapes[1]:
                fact = (
                    f'stage "{stage}" keeps rows of {shapes[0]}, and would get rows of {shapes[1]}'
                )
                yield Obstacle(fact, "leave the columns in front of it as they are")


def _shape(version: FlowVersion, stage: str) -> str:
    """Return the columns that a stage with state gets; nothing if it has none."""
    known = version.flow.stages.get(stage)
    if known is None or not known.state:
        return ""
    return "; ".join(version.analysis.schemas[name].simpleString() for name in known.inputs)
