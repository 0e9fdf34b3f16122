"""Whether something grows: the last third of a run beside its second third, beyond noise.

The first third is warm-up and says nothing. Each of the other two is cut into blocks, and a block
counts by its median, so that the teeth of a saw (a restart, a segment that goes) are noise and not
growth. Something is flat if the last third lies above the second by no more than the noise, or by
no more than the limit that is given for it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

#: Each third is cut into so many blocks.
BLOCKS: Final = 8
#: So many standard errors between two thirds are noise.
ERRORS: Final = 3.0

#: Seconds since the start, and what was seen.
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Limit:
    """Growth that is not worth a word: so much, or such a part of the second third."""

    most: float
    share: float = 0.05


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the thirds say; `grown` beyond both `noise` and `allowed` is not flat."""

    second: float
    last: float
    grown: float
    noise: float
    allowed: float
    per_hour: float
    flat: bool

    def plain(self) -> dict[str, Any]:
        found = asdict(self)
        return {key: value if key == "flat" else round(value, 3) for key, value in found.items()}


def verdict(points: Points, limit: Limit) -> Verdict:
    """Return whether the last third of the points lies above the second."""
    if not points:
        return Verdict(0.0, 0.0, 0.0, 0.0, limit.most, 0.0, True)
    begin, end = points[0][0], points[-1][0]
    third = (end - begin) / 3
    middle, late = (
        _blocks(points, begin + third * place, begin + third * (place + 1)) for place in (1, 2)
    )
    if not middle or not late:
        middle = late = [value for _, value in points]
    second, last = statistics.fmean(middle), statistics.fmean(late)
    noise = ERRORS * math.hypot(_error(middle), _error(late))
    allowed = max(limit.most, limit.share * second)
    grown = last - second
    per_hour = grown / third * 3600 if third else 0.0
    return Verdict(second, last, grown, noise, allowed, per_hour, grown <= max(noise, allowed))


def _blocks(points: Points, begin: float, end: float) -> list[float]:
    """Return the medians of the blocks of a third; a block without points is left out."""
    size = (end - begin) / BLOCKS
    inside: list[list[float]] = [[] for _ in range(BLOCKS)]
    for at, value in points:
        if begin <= at <= end:
            inside[min(BLOCKS - 1, int((at - begin) / size)) if size else 0].append(value)
    return [statistics.median(values) for values in inside if values]


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
