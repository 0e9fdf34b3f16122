"""`millstream scheme check`: check a scheme and list its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def scheme() -> None:
    """Check schemes of runtimes."""


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The scheme: a .yaml or .json file.")]) -> None:
    """Check a scheme and list its nodes; a mistake is reported with its line and column."""
    from millstream.actions.scheme import load

    found = load(file)
    print(f"{found.name}  {len(found.nodes)} nodes")
    width = max(len(node.name) for node in found.nodes)
    for node in found.nodes:
        bare = "in Spark" if found.role(node.name) == "processor" else "beside its engine"
        where = ", ".join(node.addresses) or bare
        to = ", ".join(found.downstreams(node.name))
        print(
            f"  {node.name:<{width}}  {found.role(node.name):<9}  {where}"
            + (f"  -> {to}" if to else "")
        )
