"""Which fields of its structs a group needs, by Spark's optimized plan as JSON.

A struct that is only ever asked for single fields need not be read as a whole. `Project` may hand
one on as it is; whatever else names it needs all of it. A plan is a list of nodes, and an expression
a list of its nodes, parents first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

# JSON
Node = dict[str, Any]

#: The nodes whose expressions tell all that they need of their input. Others, such as a union, may
#: need what they do not name.
_TELLING: Final = frozenset(
    {
        *("Project", "Filter", "Join", "Aggregate", "Expand", "Generate", "CollectMetrics"),
        *("EventTimeWatermark", "UpdateEventTimeWatermarkColumn"),
        *("MapInArrow", "TransformWithStateInPySpark"),
    }
)


def single_fields(plan: str, outputs: Iterable[int]) -> dict[int, set[int]]:
    """Return the columns that are only asked for fields, by their ids: the places of these fields.

    Args:
        plan: The plan.
        outputs: The ids of the columns that it returns.
    """
    nodes = [node for node in json.loads(plan) if node["num-children"]]
    if any(_kind(node) not in _TELLING for node in nodes):
        return {}
    fields: dict[int, set[int]] = {}
    whole = set(outputs)
    for expression in (one for node in nodes for one in _expressions(node)):
        for number, part in enumerate(expression):
            if _kind(part) != "AttributeReference":
                continue
            above = expression[number - 1] if number else None
            if above is not None and _kind(above) == "GetStructField":
                fields.setdefault(_id(part), set()).add(int(above["ordinal"]))
            else:
                whole.add(_id(part))
    return {column: found for column, found in fields.items() if column not in whole}


def _kind(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2]


def _id(attribute: Node) -> int:
    return int(attribute["exprId"]["id"])


def _expressions(node: Node) -> Iterator[list[Node]]:
    """Yield the expressions of a node, without columns that it only hands on."""
    for name, value in node.items():
        for one in _lists(value):
            if name != "projectList" or len(one) > 1 or _kind(one[0]) != "AttributeReference":
                yield one


def _lists(value: Any) -> Iterator[list[Node]]:
    """Yield the lists of nodes in a value of JSON."""
    if not isinstance(value, list) or not value:
        return
    if isinstance(value[0], dict):
        if "class" in value[0]:
            yield value
        return
    for one in value:
        yield from _lists(one)
