"""What an action stage may be told, checked while the flow is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from millstream.errors import InvalidOption
from millstream.flow import binary
from millstream.flow.schema import Schema
from millstream.flow.site import Site

Contract = Literal["one", "stream"]
Format = Literal["json", "msgpack", "arrow", "raw"]


@dataclass(frozen=True, slots=True)
class Checked:
    """What was told, and makes sense."""

    argv: tuple[str, ...]
    contract: Contract
    format: Format


def checked(site: Site, argv: Sequence[str], contract: str, format: str, attempts: int) -> Checked:
    """Return what a stage was told, or say what is wrong with it."""
    if isinstance(argv, str) or not argv or not all(isinstance(one, str) and one for one in argv[:1]):
        raise site.mistake(
            InvalidOption, f"runs {argv!r}", hint='name the program and its arguments: ["./score", "-v"]'
        )
    if "@" in argv[0] and "/" not in argv[0] and binary.parse(argv[0]) is None:
        hint = "a program that an engine keeps is named like score@2 or score@latest"
        raise site.mistake(InvalidOption, f'runs "{argv[0]}"', hint=hint)
    if attempts < 1:
        raise site.mistake(InvalidOption, f"tries a row {attempts} times", hint="try it at least once")
    for said, known, what in ((contract, get_args(Contract), "contract"), (format, get_args(Format), "format")):
        if said not in known:
            raise site.mistake(InvalidOption, f'has the {what} "{said}"', hint=f"it is one of {', '.join(known)}")
    if format == "arrow" and contract == "stream":
        hint = 'let the answer have a column "_row" that says which row of the batch each of its rows is of'
        raise site.mistake(InvalidOption, "has the format arrow and the contract stream", hint=hint)
    return Checked(tuple(str(one) for one in argv), _contract(contract), _format(format))


def check_format(site: Site, told: Checked, columns: tuple[str, ...], given: Schema | None, output: Schema) -> None:
    """Check that columns fit the format: raw bytes are one column in, one column out."""
    if told.format != "raw":
        return
    if len(columns) != 1 or len(output) != 1:
        raise site.mistake(
            InvalidOption, "has the format raw", hint="name one column: input=..., and one as output=..."
        )
    kinds = [output.fields[0].type, (found := given and given.find(columns[0])) and found.type]
    if any(kind not in (None, "binary", "string") for kind in kinds):
        raise site.mistake(InvalidOption, "has the format raw", hint="its columns are of type binary or string")


def _contract(name: str) -> Contract:
    return "stream" if name == "stream" else "one"


def _format(name: str) -> Format:
    formats: tuple[Format, ...] = get_args(Format)
    return next(one for one in formats if one == name)
