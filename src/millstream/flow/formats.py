"""The formats of files: Parquet, JSON lines and CSV."""

from __future__ import annotations

from typing import Final, Literal, cast, get_args

from millstream.errors import InvalidOption

Format = Literal["parquet", "jsonl", "csv"]
SUFFIXES: Final[dict[Format, tuple[str, ...]]] = {
    "parquet": (".parquet",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "csv": (".csv",),
}


def format_of(path: str, format: str | None) -> Format:
    """Return the format of the files at `path`, by its suffix if none is given."""
    if format in get_args(Format):
        return cast("Format", format)
    if format is not None:
        msg = f'files at "{path}" cannot be of format "{format}"'
        raise InvalidOption(msg, hint='formats are "parquet", "jsonl" and "csv"')
    name = path.lower().rstrip("/")
    for found, suffixes in SUFFIXES.items():
        if name.endswith(suffixes):
            return found
    msg = f'the suffix of "{path}" does not tell its format'
    raise InvalidOption(msg, hint='say format="parquet", "jsonl" or "csv"')
