"""`millstream new`: a project with a flow, its data, a test and a README."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
#: Where each template goes in the project.
_FILES: Final = {
    "flow.py.tmpl": "flow.py",
    "test_flow.py.tmpl": "tests/test_flow.py",
    "README.md.tmpl": "README.md",
    "orders.jsonl.tmpl": "data/orders.jsonl",
    "gitignore.tmpl": ".gitignore",
}


def new(
    name: Annotated[str, typer.Argument(help="The name of the flow and of its new folder.")],
    folder: Annotated[Path | None, typer.Option(help="The folder of the project.")] = None,
) -> None:
    """Create a project: a flow, its data, a test, a README."""
    if not _NAME.fullmatch(name):
        msg = f'"{name}" is not one word of letters, digits, "_" and "-" that starts with a letter'
        raise typer.BadParameter(msg, param_hint="NAME")
    place = folder or Path(name)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise typer.BadParameter(f'"{place}" exists and is not an empty folder', param_hint="NAME")
    for path in make(name, place):
        print(f"made {path}")
    print(f"\nnext:\n  cd {place}\n  millstream run flow.py --until-end\n  pytest")


def make(name: str, place: Path) -> list[Path]:
    """Write the project's files and return their paths."""
    made = []
    for template, target in _FILES.items():
        text = (files("millstream.cli") / "templates" / template).read_text(encoding="utf-8")
        path = place / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(name=name), encoding="utf-8")
        made.append(path)
    return made
