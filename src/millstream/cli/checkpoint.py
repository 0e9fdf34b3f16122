"""`millstream checkpoint show | diff | verify`: how far groups are, and whether all of it is there.

A checkpoint is named FLOW.GROUP, or JOB.GROUP for a job in the data folder of an engine. With
`@VERSION` it is that of an earlier version, and with `:BATCH` it is as of an earlier batch.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from millstream.cli.data import data_of
from millstream.cli.options import Data, Json, Storage
from millstream.cli.output import encoded, moment
from millstream.cli.state_reading import reading_spark
from millstream.errors import NotThere

if TYPE_CHECKING:
    from millstream.spark.inspection.opened import Opened
    from millstream.spark.inspection.report import CheckpointReport

app = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="FLOW.GROUP; with @VERSION or :BATCH, an earlier version or batch.")
]


@app.callback()
def checkpoints() -> None:
    """Show, compare and verify the checkpoints of groups."""


class Named(NamedTuple):
    """What a name says."""

    flow: str
    group: str
    batch: int | None


def named(text: str) -> Named:
    """Return the parts of FLOW.GROUP[@VERSION][:BATCH].

    Raises:
        NotThere: It is no such name.
    """
    whole, colon, batch = text.partition(":")
    flow, _, group = whole.partition(".")
    if (colon and not batch.isdigit()) or not flow or flow.startswith(("/", "..")):
        msg = f'"{text}" is not the name of a checkpoint'
        raise NotThere(msg, hint="write FLOW.GROUP, or FLOW.GROUP:BATCH for an earlier batch")
    return Named(flow, group, int(batch) if colon else None)


def find(name: str, data: Path | None, storage: str | None = None) -> tuple[Opened, int | None]:
    """Return the checkpoint of a name, and the batch that it names.

    Raises:
        NotThere: There is none.
    """
    from millstream.spark.inspection.opened import opened
    from millstream.spark.inspection.place import job_place

    flow, group, batch = named(name)
    return opened(job_place(data_of(data), flow, storage), group), batch


def read(name: str, data: Path | None, storage: str | None = None) -> dict[str, Any]:
    """Return the checkpoint of a group as plain data."""
    from millstream.spark.inspection.report import report

    return plain(report(*find(name, data, storage)))


def plain(found: CheckpointReport) -> dict[str, Any]:
    """Return a checkpoint as JSON has it."""
    watermark = None if found.watermark_ms is None else moment(found.watermark_ms)
    return {**msgspec.json.decode(msgspec.json.encode(found)), "watermark": watermark}


@app.command()
def show(group: Name, data: Data = None, storage: Storage = None, json: Json = False) -> None:
    """Show how far a group is: its inputs, what it has published, and its state."""
    from millstream.spark.inspection.report import report

    found = report(*find(group, data, storage))
    if json:
        print(encoded(plain(found)))
        return
    for left, right in (
        ("", f"{found.job}.{found.folder}  checkpoint {found.checkpoint}"),
        *_lines(found),
    ):
        print(f"  {left:<22}{right}" if left else right)


def _lines(found: CheckpointReport) -> list[tuple[str, str]]:
    from millstream.spark.inspection.diff import moment as exactly

    lines = [
        ("last committed batch", _number(found.batch)),
        ("last logged batch", _number(found.logged)),
        ("watermark", "none" if found.watermark_ms is None else moment(found.watermark_ms)),
        ("fingerprint", found.fingerprint[:12]),
    ]
    if found.generation is not None:
        lines.append(("generation", f"{found.generation}, {found.holder or 'released'}"))
    for name, offset in found.inputs.items():
        positions = ", ".join(f"{position:,}" for position in offset.positions)
        floor = "" if offset.floor is None else f", floor {exactly(offset.floor)}"
        lines.append((f"reads {name}", f"up to {positions}{floor}"))
    for output in found.published:
        decided = "" if output.decided is None else f", decided up to {output.decided}"
        lines.append(
            (f"writes {output.name}", f"{output.kind}, epoch {_number(output.epoch)}{decided}")
        )
    for state in found.state:
        what = state.stage or f"operator {state.operator}"
        held = f"version {state.version}, {state.bytes:,} B in {state.files} files"
        lines.append((f"state of {what}", f"{state.kind or state.name}, {held}"))
    return lines


def _number(number: int | None) -> str:
    return "none" if number is None else str(number)


@app.command()
def diff(
    group: Name,
    other: Annotated[
        str | None,
        typer.Argument(help="The other one; without it, GROUP is compared with its batch before."),
    ] = None,
    data: Data = None,
    storage: Storage = None,
    json: Json = False,
) -> None:
    """Show what differs between two checkpoints, or between two batches of one."""
    from millstream.spark.inspection import diff as differ
    from millstream.spark.inspection.report import report

    found, batch = find(group, data, storage)
    before = report(found, batch)
    if other is None:
        second, after = found, before
        if not after.batch:
            raise NotThere(f'"{group}" has no batch before its last one', hint="name another group")
        before = report(found, after.batch - 1)
    else:
        second, batch = find(other, data, storage)
        after = report(second, batch)
    changes, meaning = differ.differences(before, after), differ.meanings(found, second)
    if json:
        both = {"before": plain(before), "after": plain(after)}
        print(encoded({**both, "changes": changes, "meaning": meaning}))
        return
    print(f"{_title(before)} -> {_title(after)}")
    for line in (*changes, *meaning):
        print(f"  {line}")
    if before.checkpoint == after.checkpoint:
        for name, count in differ.read_between(before, after).items():
            print(f"  {count:,} positions of {name} lie between them")
    if not changes and not meaning:
        print("  nothing differs")


def _title(one: CheckpointReport) -> str:
    return f"{one.job}.{one.folder}" + ("" if one.batch is None else f":{one.batch}")


@app.command()
def verify(
    group: Annotated[str, typer.Argument(help="FLOW.GROUP, or FLOW for all of its groups.")],
    data: Data = None,
    storage: Storage = None,
    root: Annotated[
        Path, typer.Option(help="The folder that the paths of the flow's sinks count from.")
    ] = Path(),
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not start Spark, which reads the keys of stages.")
    ] = False,
    json: Json = False,
) -> None:
    """Check that all that a checkpoint names is there and agrees; with status 1 if it does not."""
    from millstream.spark.inspection import verify as verifier
    from millstream.spark.inspection.opened import opened
    from millstream.spark.inspection.place import job_place

    flow, name, _ = named(group)
    place = job_place(data_of(data), flow, storage)
    groups = [name] if name else place.current
    if not groups:
        place.checkpoint("")
    with ExitStack() as stack:
        spark = None if quick else cache(lambda: stack.enter_context(reading_spark(storage)))
        checked = ((one, opened(place, one)) for one in groups)
        results = {f"{flow}.{one}": verifier.verify(it, root, spark) for one, it in checked}
    faulty = any(one.faults for one in results.values())
    if json:
        print(encoded(results))
    else:
        for title, one in results.items():
            _print_verified(title, one)
    raise typer.Exit(1 if faulty else 0)


def _print_verified(title: str, one: Any) -> None:
    for fault in one.faults:
        print(f"{title}: {fault}")
    if not one.faults:
        seen = f"{one.batches} batches, {one.files} files of state, {one.outputs} outputs"
        print(f"{title}: sound; {seen}")
    for line in one.unseen:
        print(f"{title}: not checked: {line}")
