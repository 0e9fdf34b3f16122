"""The lines of a picture as SVG paths, and the width of text."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.graph.layout import Box

_NARROW, _WIDE = "fijlrt.,:;'|!()[]{} -1", "mwMW@%—▶"


def through(source: Box, y: float, lanes: Sequence[Box], target: Box, to_y: float) -> str:
    """Return a line that bends only between layers, so that it meets no other node."""
    steps = [f"M{source.right:.1f} {y:.1f}H{source.right_end:.1f}"]
    x = source.right_end
    for lane in lanes:
        steps += [_bend(x, y, lane.left, lane.middle), f"H{lane.right_end:.1f}"]
        x, y = lane.right_end, lane.middle
    steps.append(f"{_bend(x, y, target.left, to_y)}H{target.x:.1f}")
    return "".join(steps)


def _bend(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(y - to_y) < 0.5:
        return f"L{to_x:.1f} {to_y:.1f}"
    half = (x + to_x) / 2
    return f"C{half:.1f} {y:.1f} {half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"


def rounded(corners: Sequence[tuple[float, float]], radius: float = 8.0) -> str:
    """Return a line through right-angled corners, rounded."""
    steps = [f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"]
    for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
        near, far = _toward(corner, before, radius), _toward(corner, after, radius)
        steps.append(
            f"L{near[0]:.1f} {near[1]:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {far[0]:.1f} {far[1]:.1f}"
        )
    return "".join([*steps, f"L{corners[-1][0]:.1f} {corners[-1][1]:.1f}"])


def _toward(
    point: tuple[float, float], other: tuple[float, float], distance: float
) -> tuple[float, float]:
    length = abs(other[0] - point[0]) + abs(other[1] - point[1])
    share = min(0.5, distance / length) if length else 0.0
    return point[0] + (other[0] - point[0]) * share, point[1] + (other[1] - point[1]) * share


def text_width(text: str, size: float) -> float:
    """Return the approximate width of a text, rather too wide than too narrow."""
    return sum(
        size
        * (
            0.4
            if letter in _NARROW
            else 0.95
            if letter in _WIDE
            else 0.68
            if letter.isupper()
            else 0.6
        )
        for letter in text
    )
