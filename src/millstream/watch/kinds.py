"""Inputs and outputs by name: each is a file of `inputs` or `outputs`, or of another package.

    stdin                          the kind alone
    mqtt://broker/plant/+/heat     a URL, whose scheme is the kind
    program:./alarm --loud         the kind, and what it is given

A package adds its own with an entry point of the group "millstream.watch.inputs" or
"millstream.watch.outputs", which names a function like `make` of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any, Final, Literal

from millstream.errors import InvalidOption, MillstreamError
from millstream.extras import missing

Side = Literal["inputs", "outputs"]
#: Addresses that are usually written without their kind.
_SCHEMES: Final[dict[str, dict[str, str]]] = {
    "outputs": {"http": "webhook", "https": "webhook", "mqtts": "mqtt"},
    "inputs": {"mqtts": "mqtt"},
}


def split(address: str) -> tuple[str, str]:
    """Return the kind of an address, and what it is given: all of a URL.

    Example:
        >>> split("program:./alarm -v"), split("mqtt://broker/heat"), split("stdin")
        (('program', './alarm -v'), ('mqtt', 'mqtt://broker/heat'), ('stdin', ''))
    """
    kind, _, rest = address.partition(":")
    return kind.strip(), address if rest.startswith("//") else rest.strip()


def make(side: Side, address: str, **context: Any) -> Any:
    """Return the input or output that an address names.

    Raises:
        InvalidOption: There is no such kind, or it is not given what it needs.
        MissingExtra: It needs a package that is not installed.
    """
    kind, rest = split(address)
    kind = _SCHEMES[side].get(kind, kind)
    try:
        return _maker(side, kind)(rest, **context)
    except ImportError as error:
        raise missing(error, f'{side[:-1]} "{kind}"') or error from error
    except ValueError as error:  # of a port, or of quotes
        raise InvalidOption(f'"{address}" is not an address: {error}') from error


def _maker(side: Side, kind: str) -> Callable[..., Any]:
    home = f"millstream.watch.{side}"
    ours = [one.name for one in iter_modules(import_module(home).__path__)]
    if kind in ours:
        found: Callable[..., Any] = import_module(f"{home}.{kind}").make
        return found
    points = {point.name: point for point in entry_points(group=home)}
    if kind in points:
        try:
            loaded: Callable[..., Any] = points[kind].load()
        except Exception as error:
            msg = f'{side[:-1]} "{kind}" ({points[kind].value}) cannot be loaded: {error}'
            raise MillstreamError(msg) from error
        return loaded
    known = sorted({*ours, *points, *_SCHEMES[side]})
    close = get_close_matches(kind, known, n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(known)}"
    raise InvalidOption(f'a watcher has no {side[:-1]} "{kind}"', hint=hint)
