"""`millstream checkpoint show FLOW.GROUP`: how far a group is."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from millstream.cli.options import Storage
from millstream.cli.output import moment
from millstream.errors import NotThere

app = typer.Typer(no_args_is_help=True)


@app.callback()
def checkpoints() -> None:
    """Show the checkpoints of groups."""


@app.command()
def show(
    group: Annotated[str, typer.Argument(help="FLOW.GROUP")],
    data: Annotated[Path, typer.Option(help="The data folder.")] = Path(".millstream"),
    storage: Storage = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the last committed batch of a group, its watermark and the positions of its inputs."""
    found = read(group, data, storage)
    if json:
        print(jsonlib.dumps(found, indent=2))
        return
    print(f"{group}  checkpoint {found['checkpoint']}")
    print(f"  last committed batch  {found['batch'] if found['batch'] is not None else 'none'}")
    print(f"  last logged batch     {found['logged'] if found['logged'] is not None else 'none'}")
    print(f"  watermark             {found['watermark'] or 'none'}")
    for name, offset in found["inputs"].items():
        positions = ", ".join(f"{position:,}" for position in offset["positions"])
        print(f"  reads {name:<20} up to {positions}")


def read(group: str, data: Path, storage: str | None = None) -> dict[str, Any]:
    """Return the checkpoint of a group as plain data."""
    from millstream.spark.io.checkpoint import Checkpoint, recorded

    flow, _, name = group.partition(".")
    folder = data / flow / "groups" / name
    address = None if storage is None else f"{storage.rstrip('/')}/{flow}/groups/{name}"
    record = recorded(address or folder) if name else None
    if record is None:
        known = sorted(path.parent.name for path in (data / flow / "groups").glob("*/group.json"))
        raise NotThere(
            f'there is no checkpoint of a group "{group}" in {storage or data}',
            hint=f"FLOW.GROUP is one of {[f'{flow}.{one}' for one in known]}"
            if known
            else "run the flow first",
        )
    checkpoint = Checkpoint(folder, name, record["checkpoint"], {}, address)
    committed = checkpoint.committed()
    shown = moment(committed.watermark_ms) if committed and committed.watermark_ms > 0 else None
    return {
        "group": name,
        "checkpoint": checkpoint.id,
        "batch": committed.batch if committed else None,
        "logged": checkpoint.last("offsets"),
        "watermark": shown,
        "inputs": {k: msgspec.to_builtins(v) for k, v in committed.offsets.items()}
        if committed
        else {},
    }
