"""A plan as data to draw: what `picture` draws as SVG, for pages that show numbers on it.

Nodes have ids: "journal orders", "group hourly", "stage hourly/totals", "sink out". An edge between
two of them is a path, in the coordinates of the nodes, and the place of its label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from millstream.errors import FlowError
from millstream.flow.dump import dump_stage
from millstream.flow.flow import Flow
from millstream.graph.layout import Box
from millstream.plan.groups import Plan
from millstream.plan.picture import Picture, about, moved, stage_paths

#: Types of columns by the names of stages and journals.
Columns = Mapping[str, Mapping[str, str]]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A box: a journal, a group, a stage of it or a sink."""

    id: str
    kind: str
    name: str
    detail: str
    x: float
    y: float
    width: float
    height: float
    #: The group of a stage.
    group: str | None = None
    #: Whether a stage keeps state.
    state: bool = False
    #: How the flow describes it.
    text: str | None = None
    #: The columns of what comes out of it, and their types, if they are known.
    columns: dict[str, str] = {}


class Arrow(msgspec.Struct, frozen=True):
    """An edge; `x` and `y` are where its label goes, `back` if it leads to an earlier group."""

    source: str
    target: str
    path: str
    x: float
    y: float
    back: bool = False
    inner: bool = False


class Drawing(msgspec.Struct, frozen=True):
    """The graph of a flow, laid out."""

    flow: str
    width: float
    height: float
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    #: The groups whose results leave the flow.
    published: tuple[str, ...]


def drawing(plan: Plan, columns: Columns = MappingProxyType({})) -> Drawing:
    """Return the graph of a plan; `columns` are those of its stages and journals, by name."""
    picture = Picture(plan)
    below = 14.0 * len(picture.back) + 24 if picture.back else 0.0
    return Drawing(
        plan.flow.name,
        round(picture.layout.width, 1),
        round(picture.layout.height + below, 1),
        tuple(_nodes(picture, columns)),
        tuple(_arrows(picture)),
        tuple(group.name for group in plan.groups if group.sinks),
    )


def _nodes(picture: Picture, columns: Columns) -> Iterator[Node]:
    flow = picture.flow
    for name, one in picture.inside.items():
        box = picture.layout.boxes[name]
        group = one.group.name
        yield _node(name, "group", group, about(one.group), box)
        for stage, card in one.cards.items():
            yield _node(
                f"stage {group}/{stage}",
                "stage",
                card.name,
                card.detail,
                moved(one.layout.boxes[stage], box),
                group=group,
                state=bool(flow.stages[stage].state),
                text=_described(flow, stage),
                columns=columns.get(stage),
            )
    for name, card in picture.cards.items():
        kind, _, own = name.partition(" ")
        text = _described(flow, own) if kind == "journal" else None
        yield _node(
            name,
            kind,
            card.name,
            card.detail,
            picture.layout.boxes[name],
            text=text,
            columns=columns.get(own) if kind == "journal" else None,
        )


def _node(
    id: str,
    kind: str,
    name: str,
    detail: str,
    box: Box,
    *,
    group: str | None = None,
    state: bool = False,
    text: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Node:
    x, y, width, height = (round(one, 1) for one in (box.x, box.y, box.width, box.height))
    return Node(
        id=id,
        kind=kind,
        name=name,
        detail=detail,
        x=x,
        y=y,
        width=width,
        height=height,
        group=group,
        state=state,
        text=text,
        columns=dict(columns or {}),
    )


def _described(flow: Flow, name: str) -> str | None:
    try:
        return dump_stage(flow, name)
    except FlowError:
        return None  # a stage that calls a function has no other form than its code


def _arrows(picture: Picture) -> Iterator[Arrow]:
    boxes = picture.layout.boxes
    for source, target in picture.forward:
        leave, enter = picture.heights((source, target))
        x = (boxes[source].right + boxes[target].x) / 2
        path = _data(picture.curve((source, target)))
        yield Arrow(source, target, path, round(x, 1), round((leave + enter) / 2, 1))
    for at, (source, target) in enumerate(picture.back):
        x = (boxes[source].right + boxes[target].x) / 2
        path = _data(picture.detour((source, target), at))
        y = picture.layout.height + 16 + 14 * at
        yield Arrow(source, target, path, round(x, 1), round(y, 1), back=True)
    for name, one in picture.inside.items():
        for source, target, path in stage_paths(one, boxes[name]):
            yield Arrow(source, target, _data(path), 0.0, 0.0, inner=True)


def _data(path: str) -> str:
    found = re.search(r' d="([^"]*)"', path)
    assert found is not None
    return found[1]
