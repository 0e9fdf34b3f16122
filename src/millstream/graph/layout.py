"""The layout of a graph: nodes in layers from left to right, without overlaps.

Edges run between neighbouring layers only: a long one has a stand-in, with its own space, in
each layer that it passes. So a curve never crosses a node. The order within a layer follows the
neighbours (barycentres), a few times back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
_LANE = 10.0


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a node; width 0 is that of its layer. Lines are at the `axis`, from the top."""

    width: float
    height: float
    axis: float


@dataclass(frozen=True, slots=True)
class Box:
    """The place and size of a node; `left` and `right_end` are those of its layer."""

    x: float
    y: float
    width: float
    height: float
    left: float
    right_end: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


Edge = tuple[str, str]
Sizes = Mapping[str, Size]


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of the nodes, and the lanes of each edge through the layers that it passes."""

    boxes: Mapping[str, Box]
    lanes: Mapping[Edge, Sequence[Box]]
    width: float
    height: float


def layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the layer of each node, after all that lead to it; `nodes` are in topological order."""
    found: dict[str, int] = {}
    for node in nodes:
        found[node] = max(
            (found[source] + 1 for source, target in edges if target == node), default=0
        )
    return found


def place(
    sizes: Sizes, edges: Sequence[Edge], layer: Mapping[str, int], *, gap: float, between: float
) -> Layout:
    """Return the layout, with `between` pixels between layers and a `gap` between neighbours."""
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for node in sizes:
        rows[layer[node]].append(node)
    needs = dict(sizes)
    links, lanes = _stand_ins(edges, layer, rows, needs)
    _sort(rows, links)
    tops = _heights(rows, links, needs, gap)
    boxes, width = _columns(rows, needs, tops, between)
    height = max((box.bottom for box in boxes.values()), default=0.0)
    passed = {edge: [boxes[name] for name in names] for edge, names in lanes.items()}
    return Layout({name: boxes[name] for name in sizes}, passed, width, height)


def _stand_ins(
    edges: Sequence[Edge], layer: Mapping[str, int], rows: list[list[str]], needs: dict[str, Size]
) -> tuple[list[Edge], dict[Edge, list[str]]]:
    """Add stand-ins to the layers that edges pass; return short edges, and stand-ins by edge."""
    links: list[Edge] = []
    lanes: dict[Edge, list[str]] = {}
    for source, target in edges:
        passed = [f"{source}\0{target}\0{at}" for at in range(layer[source] + 1, layer[target])]
        for name, at in zip(passed, range(layer[source] + 1, layer[target]), strict=True):
            rows[at].append(name)
            needs[name] = Size(0.0, _LANE, _LANE / 2)
        stops = [source, *passed, target]
        links += pairwise(stops)
        lanes[source, target] = passed
    return links, lanes


def _sort(rows: list[list[str]], links: Sequence[Edge]) -> None:
    """Sort each layer by its neighbours."""
    before, after = _neighbours(links)
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        near = before if forth else after
        for row, other in (
            zip(rows[1:], rows, strict=False)
            if forth
            else zip(rows[-2::-1], rows[::-1], strict=False)
        ):
            at = {name: place for place, name in enumerate(other)}
            own = {name: place for place, name in enumerate(row)}
            row.sort(
                key=lambda name: _mean(
                    [at[one] for one in near.get(name, ()) if one in at], own[name]
                )
            )


def _neighbours(links: Sequence[Edge]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for source, target in links:
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    return before, after


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _heights(
    rows: list[list[str]], links: Sequence[Edge], needs: Sizes, gap: float
) -> dict[str, float]:
    """Return the top of each node, with its axis near those of its neighbours."""
    before, after = _neighbours(links)
    axes = {name: float(at) for row in rows for at, name in enumerate(row)}
    for row in rows:
        _spread(row, [0.0] * len(row), needs, gap, axes)
    for sweep in range(_SWEEPS):
        near = before if sweep % 2 == 0 else after
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([axes[one] for one in near.get(name, ())], axes[name]) for name in row]
            _spread(row, wanted, needs, gap, axes)
    lowest = min((axes[name] - needs[name].axis for name in axes), default=0.0)
    return {name: axes[name] - needs[name].axis - lowest for name in axes}


def _spread(
    row: Sequence[str], wanted: Sequence[float], needs: Sizes, gap: float, axes: dict[str, float]
) -> None:
    """Set the axes of a layer as near to the wanted ones as the order and the gap allow.

    Nodes that would overlap are moved as one block around the mean of their wishes (pool adjacent
    violators).
    """
    offsets, at = [], 0.0
    for name in row:
        offsets.append(at + needs[name].axis)
        at += needs[name].height + gap
    pools: list[list[float]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        pools.append([want - offset])
        while len(pools) > 1 and _mean(pools[-2], 0) > _mean(pools[-1], 0):
            last = pools.pop()
            pools[-1] += last
    shifts = [_mean(pool, 0) for pool in pools for _ in pool]
    for name, offset, shift in zip(row, offsets, shifts, strict=True):
        axes[name] = offset + shift


def _columns(
    rows: list[list[str]], needs: Sizes, tops: Mapping[str, float], between: float
) -> tuple[dict[str, Box], float]:
    boxes: dict[str, Box] = {}
    x = 0.0
    for row in rows:
        width = max((needs[name].width for name in row), default=0.0)
        for name in row:
            own = needs[name].width or width
            boxes[name] = Box(x, tops[name], own, needs[name].height, x, x + width)
        x += width + between
    return boxes, max(0.0, x - between)
