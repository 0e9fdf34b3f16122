"""`millstream pack`: the Python packages that executors need, as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive: a .tar.gz file.")],
    also: Annotated[
        list[str] | None, typer.Option(help="A package that your flow needs besides; repeatable.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A package that it does not need; repeatable.")
    ] = None,
) -> None:
    """Pack Millstream and its packages for executors."""
    if not file.name.endswith((".tar.gz", ".tgz")):
        raise typer.BadParameter("expected a name that ends in .tar.gz", param_hint="FILE")
    from millstream.spark.session.packing import pack as write

    packages = write(file, also or (), without or ())
    print(f"{file}: {len(packages)} packages, {file.stat().st_size >> 20} MB")
    print(f"give it to a run with --executor-python {file}")
