"""The output of `millstream run --json` over time, as the lines of a plot.

When a flow is restarted, its counters start again, and between two runs there are none. Both are
gaps in a line, never a fall.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from millstream.web.plots import Point


@dataclass(frozen=True, slots=True)
class Sample:
    """The statistics `at` seconds after the start; `run` counts the starts of the flow."""

    at: float
    run: int
    statistics: Mapping[str, Any]


def rates(samples: Sequence[Sample], group: str) -> list[Point]:
    """Return a group's rows in per second, each over the batch that it belongs to.

    Rows are counted when their batch is done. They are spread over the time since the count last
    grew; otherwise a steady flow would seem to stop and jump.
    """
    points: list[Point] = []
    for run in _runs(samples):
        counted = [(sample.at, float(_group(sample, group)["rows_in"])) for sample in run]
        points += [*_slopes(counted), (counted[-1][0], None)]
    return points[:-1]


def lags(samples: Sequence[Sample], group: str) -> list[Point]:
    """Return how many rows of its journals a group still had to read."""
    points: list[Point] = []
    for run in _runs(samples):
        points += [(sample.at, float(_group(sample, group)["lag_rows"])) for sample in run]
        points.append((run[-1].at, None))
    return points[:-1]


def _slopes(counted: Sequence[tuple[float, float]]) -> list[Point]:
    grown = [
        0,
        *(place for place in range(1, len(counted)) if counted[place][1] > counted[place - 1][1]),
    ]
    points: list[Point] = [(counted[0][0], 0.0)]
    for start, stop in pairwise(grown):
        (then, before), (at, rows) = counted[start], counted[stop]
        points += [
            (counted[place][0], (rows - before) / (at - then))
            for place in range(start + 1, stop + 1)
        ]
    return points + [(at, 0.0) for at, _ in counted[grown[-1] + 1 :]]


def _runs(samples: Sequence[Sample]) -> list[list[Sample]]:
    runs: dict[int, list[Sample]] = {}
    for sample in samples:
        runs.setdefault(sample.run, []).append(sample)
    return list(runs.values())


def _group(sample: Sample, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        group for group in sample.statistics["groups"] if group["name"] == name
    )
    return found
