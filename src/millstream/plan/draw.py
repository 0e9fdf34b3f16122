"""A plan as text, as a picture and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from millstream.flow.describe import describe
from millstream.flow.durations import format as shown
from millstream.flow.flow import Flow
from millstream.flow.stages import EntryPoint, Reach, Written
from millstream.plan.groups import Group, Plan
from millstream.plan.picture import svg
from millstream.plan.sharing import sharing_lines

__all__ = ["stages", "svg", "to_json", "tree"]

_WIDTH = 120


def tree(plan: Plan, *, switch: bool = False) -> str:
    """Return the groups as a tree, with what a `switch` would cost if that is asked for.

    flights  1 group, switch interval 1 h
    └─ hourly   departures ── hourly ──▶ hourly   parquet out/hourly   state: windows
    a switch of hourly would overlap for 30 min; no state is carried over
    """
    count = len(plan.groups)
    head = f"{plan.flow.name}  {count} group{'s' if count > 1 else ''}"
    head += f", switch interval {shown(plan.flow.switch_every)}" if switch else ""
    blocks = [_block(plan.flow, group) for group in plan.groups]
    lines = [head, *_aligned(blocks)]
    for sentence in (
        *sharing_lines(plan),
        *([_switch(plan)] if switch else []),
        *_delays(plan),
        *(f"warning: {warning}" for warning in plan.warnings),
    ):
        lines += textwrap.wrap(
            sentence, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)


def stages(plan: Plan) -> str:
    """Return a table of the stages with the horizon and look-back of each."""
    rows = [("stage", "kind", "horizon", "look-back")]
    for name, stage in plan.flow.stages.items():
        rows.append((name, stage.kind, *_reached(stage.reach(plan.flow.switch_every))))
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _reached(found: Reach) -> tuple[str, str]:
    if found.handed_over:
        return "handed over", "handed over"
    return _length(found.horizon), _length(found.look_back)


def _length(length: timedelta | None) -> str:
    return "open" if length is None else shown(length)


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON: the flow, its groups, its journals, how far its stages reach."""
    return {
        **describe(plan.flow),
        "groups": [_group_json(group) for group in plan.groups],
        "journals": [
            {"name": use.name, "kind": use.kind, "writer": use.writer, "readers": list(use.readers)}
            for use in plan.journals.values()
        ],
        "reach": {
            name: _reach_json(stage.reach(plan.flow.switch_every))
            for name, stage in plan.flow.stages.items()
        },
        "shared": [{"name": one.name, "groups": list(one.groups)} for one in plan.shared],
        "warnings": list(plan.warnings),
    }


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "stages": list(group.stages),
        "output": group.output,
        "inputs": list(group.inputs),
        "sinks": list(group.sinks),
        "journal": group.journal,
        "stateful": group.stateful,
        "timed": group.timed,
        "horizon": _seconds(group.horizon),
        "look_back": _seconds(group.look_back),
        "handed_over": list(group.handed_over),
        "behind": _seconds(group.behind),
        "lateness": _seconds(group.lateness),
        "overlap": _seconds(group.overlap),
    }


def _reach_json(found: Reach) -> dict[str, Any]:
    bounds = {"horizon": _seconds(found.horizon), "look_back": _seconds(found.look_back)}
    return {**bounds, "handed_over": found.handed_over, "behind": _seconds(found.behind)}


def _seconds(length: timedelta | None) -> float | None:
    """Return seconds, null where there is no bound."""
    return None if length is None else length.total_seconds()


class _Block:
    """The lines of one group, in columns."""

    def __init__(
        self, name: str, chain: list[str], outputs: list[tuple[str, str]], state: str
    ) -> None:
        self.name = name
        self.chain = chain
        self.outputs = outputs
        self.state = state

    @property
    def height(self) -> int:
        return max(len(self.chain), len(self.outputs))


def _block(flow: Flow, group: Group) -> _Block:
    chain = _chain(flow, group, group.output, set())
    if group.journal is not None:
        journal = flow.stages[group.journal]
        assert isinstance(journal, Written)
        outputs = [
            (
                group.journal,
                f"journal, {journal.partitions} partition{'s' if journal.partitions > 1 else ''}",
            )
        ]
    else:
        outputs = [(name, flow.sinks[name].target.text) for name in group.sinks]
    return _Block(group.name, chain, outputs, _state(flow, group))


def _chain(flow: Flow, group: Group, name: str, seen: set[str]) -> list[str]:
    """Return the way to a stage as lines; it leaves at the end of the first."""
    inputs = [source for source in flow.stages[name].inputs if source in group.stages]
    if isinstance(flow.stages[name], EntryPoint) or not inputs:
        return [name]
    if name in seen:
        return [f"({name})"]
    seen.add(name)
    blocks = [_chain(flow, group, source, seen) for source in inputs]
    if len(blocks) == 1:
        (block,) = blocks
        return [f"{block[0]} ── {name}", *block[1:]]
    return _joined(blocks, name)


def _joined(blocks: list[list[str]], name: str) -> list[str]:
    """Return several ways one below the other, running together into a stage."""
    width = max(len(line) for block in blocks for line in block)
    lines: list[str] = []
    for at, block in enumerate(blocks):
        last = at == len(blocks) - 1
        corner = f"─┬─ {name}" if at == 0 else ("─┘" if last else "─┤")
        lines.append(f"{block[0]} ".ljust(width + 1, "─") + corner)
        below = "" if last else " │"
        lines += [f"{line.ljust(width + 1)}{below}".rstrip() for line in block[1:]]
    return lines


def _aligned(blocks: list[_Block]) -> Iterator[str]:
    names = max(len(block.name) for block in blocks)
    chains = max(len(line) for block in blocks for line in block.chain)
    outputs = max(len(name) for block in blocks for name, _ in block.outputs)
    targets = max(len(target) for block in blocks for _, target in block.outputs)
    for at, block in enumerate(blocks):
        last = at == len(blocks) - 1
        for row in range(block.height):
            branch = ("└─ " if last else "├─ ") if row == 0 else ("   " if last else "│  ")
            name = (block.name if row == 0 else "").ljust(names)
            out = _output_cells(block, row, outputs, targets)
            state = f"   {block.state}" if row == 0 else ""
            yield f"{branch}{name}   {_chain_cell(block, row, chains)}{out}{state}".rstrip()


def _chain_cell(block: _Block, row: int, width: int) -> str:
    line = block.chain[row] if row < len(block.chain) else ""
    # The first line runs on to the arrow.
    return f"{line} ".ljust(width + 1, "─") if row == 0 else f"{line} ".ljust(width + 1)


def _output_cells(block: _Block, row: int, names: int, targets: int) -> str:
    if row >= len(block.outputs):
        return " " * (names + targets + 7)
    several, last = len(block.outputs) > 1, row == len(block.outputs) - 1
    first, further = "─┬▶" if several else "──▶", " └▶" if last else " ├▶"
    arrow = further if row else first
    name, target = block.outputs[row]
    return f"{arrow} {name.ljust(names)}   {target.ljust(targets)}"


def _state(flow: Flow, group: Group) -> str:
    kinds = dict.fromkeys(
        text for name in group.stages if (text := flow.stages[name].bounded_state)
    )
    return f"state: {', '.join(kinds)}" if kinds else "no state"


def _switch(plan: Plan) -> str:
    """Return the sentence that says what a switch would cost."""
    overlaps = [f"of {group.name} {_overlap(group)}" for group in plan.groups]
    overlaps[0] = f"a switch {overlaps[0].replace(' for ', ' would overlap for ', 1)}"
    moved = list(dict.fromkeys(name for group in plan.groups for name in group.handed_over))
    names = " and ".join(f'"{name}"' for name in moved)
    carried = f"the state of {names} is handed over" if moved else "no state is carried over"
    return f"{', '.join(overlaps)}; {carried}"


def _overlap(group: Group) -> str:
    if not group.timed:
        return "for no time, as it has none and is cut at a position"
    if group.overlap is None:
        return "for as long as the sessions last that are open (longest= would bound it)"
    return f"for {shown(group.overlap)}" if group.overlap else "for no time"


def _delays(plan: Plan) -> Iterator[str]:
    """Yield when results appear: once the lateness is over, nothing can change them any more."""
    late: dict[timedelta, list[str]] = {}
    for group in plan.groups:
        if group.stateful and group.lateness:
            late.setdefault(group.lateness, []).append(group.name)
    for lateness, names in late.items():
        span = f"{shown(lateness)} (the lateness)"
        yield f"{', '.join(names)}: results appear {span} after the event time that completes them"
