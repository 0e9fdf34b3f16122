"""What an action stage may be told, checked while the flow is built."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
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
    if (
        isinstance(argv, str)
        or not argv
        or not all(isinstance(one, str) and one for one in argv[:1])
    ):
        raise site.mistake(
            InvalidOption,
            f"runs {argv!r}",
            hint='name the program and its arguments: ["./score", "-v"]',
        )
    if "@" in argv[0] and "/" not in argv[0] and binary.parse(argv[0]) is None:
        hint = "a program that an engine keeps is named like score@2 or score@latest"
        raise site.mistake(InvalidOption, f'runs "{argv[0]}"', hint=hint)
    if attempts < 1:
        raise site.mistake(
            InvalidOption, f"tries a row {attempts} times", hint="try it at least once"
        )
    for said, known, what in (
        (contract, get_args(Contract), "contract"),
        (format, get_args(Format), "format"),
    ):
        if said not in known:
            raise site.mistake(
                InvalidOption, f'has the {what} "{said}"', hint=f"it is one of {', '.join(known)}"
            )
    if format == "arrow" and contract == "stream":
        hint = 'let the answer have a column "_row" that says which row of the batch each of its rows is of'
        raise site.mistake(InvalidOption, "has the format arrow and the contract stream", hint=hint)
    return Checked(tuple(str(one) for one in argv), _contract(contract), _format(format))


def check_format(
    site: Site, told: Checked, columns: tuple[str, ...], given: Schema | None, output: Schema
) -> None:
    """Check that columns fit the format: raw bytes are one column in, one column out."""
    if told.format != "raw":
        return
    if len(columns) != 1 or len(output) != 1:
        raise site.mistake(
            InvalidOption,
            "has the format raw",
            hint="name one column: input=..., and one as output=...",
        )
    kinds = [output.fields[0].type, (found := given and given.find(columns[0])) and found.type]
    if any(kind not in (None, "binary", "string") for kind in kinds):
        raise site.mistake(
            InvalidOption, "has the format raw", hint="its columns are of type binary or string"
        )


def check_whitelist(site: Site, addresses: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return where a program may connect to, or say what is wrong with it."""
    if isinstance(addresses, str):
        raise site.mistake(
            InvalidOption, f"may connect to {addresses!r}", hint="give a list of addresses, IP:port"
        )
    for address in addresses or ():
        if not whitelisted(address):
            hint = "name an IP address and a port, like 10.0.0.5:5432"
            raise site.mistake(InvalidOption, f'may connect to "{address}"', hint=hint)
    return None if addresses is None else tuple(addresses)


def _contract(name: str) -> Contract:
    return "stream" if name == "stream" else "one"


def _format(name: str) -> Format:
    formats: tuple[Format, ...] = get_args(Format)
    return next(one for one in formats if one == name)


def whitelisted(address: str) -> bool:
    """Tell whether a text is an address that a program can be let through to: an IP address, not a name, and a port.

    Example:
        >>> whitelisted("10.0.0.5:5432"), whitelisted("[fd00::1]:80"), whitelisted("db:5432"), whitelisted("10.0.0.5")
        (True, True, False, False)
    """
    host, colon, port = address.rpartition(":")
    with suppress(ValueError):
        ip = ip_address(host[1:-1] if host.startswith("[") else host)
        return bool(colon) and (ip.version == 4) != host.startswith("[") and 0 < int(port) < 1 << 16
    return False
