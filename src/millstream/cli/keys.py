"""`millstream keys new | ls | show`: keys for inboxes that other hosts can reach."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.options import Json
from millstream.errors import InvalidKey

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, typer.Option("--folder", help="The folder of the key files.")]
_KEYS = Path("keys")


@app.callback()
def keys() -> None:
    """Create and show keys."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Who the key is for: a producer or an engine.")],
    folder: Folder = _KEYS,
    may: Annotated[
        str | None, typer.Option(help='What the producer may do: "rows, end, watermark".')
    ] = None,
    rows_per_second: Annotated[
        int | None, typer.Option(min=1, help="The most rows that it may send in a second.")
    ] = None,
    bytes_per_second: Annotated[
        int | None, typer.Option(min=1, help="The most bytes that it may send in a second.")
    ] = None,
    connections: Annotated[
        int | None, typer.Option(min=1, help="The most connections that it may have.")
    ] = None,
    json: Json = False,
) -> None:
    """Create a key, and print where its files belong.

    What a producer may do is written into its .pub file; you can change it there at any time.
    """
    from millstream.links.keys import new_keys, read_public

    given = {
        "may": may,
        "rows_per_second": rows_per_second,
        "bytes_per_second": bytes_per_second,
        "connections": connections,
    }
    granted = {line: str(value) for line, value in given.items() if value is not None}
    made = new_keys(folder, name, granted)
    if json:
        public = read_public(made.public).public.decode()
        print(
            jsonlib.dumps(
                {"name": name, "key": str(made.secret), "pub": str(made.public), "public": public}
            )
        )
        return
    print(f'made {made.secret}  both halves: keep it secret, with "{name}" only')
    print(f'made {made.public}  the public half: give it to those who have to recognize "{name}"')
    print(
        "put a producer's .pub into the engine's --producers folder; "
        "give the engine's .pub to its producers"
    )


@app.command("ls")
def list_keys(folder: Folder = _KEYS, json: Json = False) -> None:
    """List the keys in a folder, with their public halves, and whether the secret half is there."""
    found, damaged = _found(folder)
    if json:
        print(jsonlib.dumps({"keys": list(found.values()), "damaged": damaged}, indent=2))
    else:
        _print_keys(folder, found)
        for name, why in damaged.items():
            typer.echo(f"damaged: {name}: {why}", err=True)
    if damaged:
        raise typer.Exit(1)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A .key or a .pub.")], json: Json = False
) -> None:
    """Check a key file and show its public half; the secret one is never shown."""
    found = _read(file)
    if json:
        print(jsonlib.dumps(found))
        return
    print(f"{found['name']}  {found['public']}  {_halves(found)}")


def _found(folder: Path) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
    """Return the keys of a folder by name, and the files that are damaged."""
    if not folder.is_dir():
        msg = f'there is no folder "{folder}"'
        raise InvalidKey(msg, hint="create a key with millstream keys new NAME, or set --folder")
    found: dict[str, dict[str, object]] = {}
    damaged: dict[str, str] = {}
    # .key comes before .pub, so a key with both files is listed once.
    for file in sorted([*folder.glob("*.key"), *folder.glob("*.pub")]):
        try:
            found.setdefault(file.stem, _read(file))
        except InvalidKey as error:
            damaged[file.name] = error.message
    return found, damaged


def _read(file: Path) -> dict[str, object]:
    from millstream.links.keys import read_key, read_public

    key = read_public(file) if file.suffix == ".pub" else read_key(file)
    return {
        "name": key.name,
        "public": key.public.decode(),
        "secret": file.suffix != ".pub",
        "file": str(file),
    }


def _print_keys(folder: Path, found: dict[str, dict[str, object]]) -> None:
    if not found:
        print(f"there are no keys in {folder}")
        return
    width = max(len(name) for name in found)
    for name, key in found.items():
        print(f"{name:<{width}}  {key['public']}  {_halves(key)}")


def _halves(key: dict[str, object]) -> str:
    return "both halves" if key["secret"] else "public half"
