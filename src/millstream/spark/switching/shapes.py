"""Whether state can be handed over as it is: what only Spark knows of it."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.spark.run.version import FlowVersion
from millstream.switch.carrying import carried
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


def rekeyed(old: FlowVersion, new: FlowVersion, plan: SwitchPlan) -> Iterator[Obstacle]:
    """Yield the stages whose state is carried over and would be looked for by keys of other types."""
    names = {name for unit in plan.units if unit.carried for name in unit.groups}
    for stage in carried([group for group in plan.groups if group.name in names]):
        pair = (old, stage.source or stage.name), (new, stage.name)
        before, after = (_key_types(version, name) for version, name in pair)
        if before != after:
            fact = f'the state of stage "{stage.name}" is kept by {before}, and would be by {after}'
            yield Obstacle(fact, f"keep the type; or lose it with --consent drop:{stage.name}")


def _key_types(version: FlowVersion, name: str) -> str:
    stage = version.flow.stages[name]
    schema = version.analysis.schemas[stage.inputs[0]]
    return ", ".join(
        f"{one} {schema[one].dataType.simpleString()}" for one in stage.state_key or ()
    )


def _shape(version: FlowVersion, stage: str) -> str:
    """Return the columns that a stage with state gets; nothing if it has none."""
    known = version.flow.stages.get(stage)
    if known is None or not known.state:
        return ""
    return "; ".join(version.analysis.schemas[name].simpleString() for name in known.inputs)
