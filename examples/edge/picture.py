"""The picture of the demo: who was away when, and what was found meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, LEFT, ROW, TOP = 960, 90, 46, 64
COLOURS = {"killed": "#c0392b", "cut off": "#e0a030"}


@dataclass
class Story:
    """What happened, in seconds since the start."""

    devices: tuple[str, ...]
    seconds: float = 0.0
    #: (device, what, from, to)
    away: list[tuple[str, str, float, float]] = field(default_factory=list)
    #: (device, when) of what each has published
    found: list[tuple[str, float]] = field(default_factory=list)
    #: When each of them reached the flow.
    reached: list[float] = field(default_factory=list)
    expected: int = 0
    counted: int = 0


def svg(story: Story) -> str:
    """Return the picture."""
    rows = [*story.devices, "flow"]
    height = TOP + ROW * len(rows) + 60
    scale = (WIDTH - LEFT - 20) / max(story.seconds, 1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="17" font-weight="600">{escape(_title(story))}</text>',
        '<text x="16" y="46" fill="#555">each line is a complex event; red: killed, '
        "yellow: cut off from the others and from the flow</text>",
    ]
    for number, name in enumerate(rows):
        y = TOP + ROW * number
        parts.append(f'<text x="16" y="{y + 24}" font-weight="600">{escape(name)}</text>')
        parts.append(_box(LEFT, y + 8, WIDTH - LEFT - 20, 24, "#eef2f5"))
        for device, what, begin, end in story.away:
            if device == name:
                x, width = LEFT + begin * scale, max(2.0, (end - begin) * scale)
                parts.append(_box(x, y + 8, width, 24, COLOURS[what], what))
        moments = (
            story.reached
            if name == "flow"
            else [when for device, when in story.found if device == name]
        )
        colour = "#1f6f43" if name == "flow" else "#22567a"
        parts += [_line(LEFT + when * scale, y + 8, y + 32, colour) for when in moments]
    parts += _axis(story.seconds, scale, TOP + ROW * len(rows))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _title(story: Story) -> str:
    return (
        f"{story.expected} matches, {story.counted} counted by the flow, each once; "
        f"{len(story.devices)} devices sent {len(story.reached)}"
    )


def _box(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    size = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}"'
    return f'<rect {size} rx="3" fill="{fill}">{inner}</rect>'


def _line(x: float, top: float, bottom: float, colour: str) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" '
        f'stroke="{colour}" stroke-opacity="0.7"/>'
    )


def _axis(seconds: float, scale: float, y: int) -> Sequence[str]:
    step = next(s for s in (5, 10, 20, 30, 60, 120, 300, 3600) if seconds / s <= 12)
    return [
        f'<text x="{LEFT + at * scale:.1f}" y="{y + 22}" fill="#555" text-anchor="middle">{at} s</text>'
        for at in range(0, int(seconds) + 1, step)
    ]
