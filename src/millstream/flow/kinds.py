"""Arguments of the wrong type, named by what the function takes.

Numbers and texts are checked before a call, because a wrong one may be noticed only when a flow
runs. The rest is left to the function, which knows better what was meant; only if it fails with an
error of Python's own, its arguments are compared with its annotations.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from millstream.errors import InvalidOption
from millstream.flow.site import here

#: How users call the types of arguments.
_WORDS: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "timedelta": "a timedelta",
    "PathLike": "a path",
    "Sequence": "a list",
    "Mapping": "a dict",
    "Callable": "a function",
    "NoneType": "None",
}


def title(function: Callable[..., object]) -> str:
    """Return how a user calls a function."""
    owner, _, name = function.__qualname__.rpartition(".")
    return f"{owner if name == '__init__' else name}()"


def check_types(
    function: Callable[..., object], given: Mapping[str, object], *, strictly: bool = False
) -> None:
    """Refuse numbers and texts of the wrong type; `strictly` everything that does not fit.

    Raises:
        InvalidOption: An argument is none that the function takes.
    """
    for name, value in given.items():
        kinds = _kinds(function, name)
        plain = {*kinds} <= {str, int, float, NoneType} and value is not None
        if kinds and (plain or strictly) and not any(_fits(value, kind) for kind in kinds):
            words = dict.fromkeys(_word(kind) for kind in kinds if kind is not NoneType)
            msg = f"{title(function)} is given {_shown(value)} as {name}="
            raise InvalidOption(msg, hint=f"give {' or '.join(words) or 'None'}", where=here())


@cache
def _kinds(function: Callable[..., object], name: str) -> tuple[Any, ...]:
    """Return the types that an argument may have; none if they are not known."""
    found: Any = function.__annotations__.get(name)
    if isinstance(found, str):
        names = vars(sys.modules[function.__module__])
        try:
            found = eval(found, names)  # noqa: S307 (our own annotations)
        except (NameError, TypeError):
            found = None  # named for the checker of types alone
    if found is None:
        return ()
    return (
        get_args(found) if isinstance(found, UnionType) or get_origin(found) is Union else (found,)
    )


def _fits(value: object, kind: Any) -> bool:
    if kind is int:
        return isinstance(value, Integral)
    if kind is float:
        return isinstance(value, Real) and math.isfinite(value)
    plain = get_origin(kind) or kind
    if plain is Callable:
        return callable(value)
    # What is more than a class, a Literal for instance, is the function's own business.
    return not isinstance(plain, type) or isinstance(value, plain)


def _word(kind: Any) -> str:
    name = getattr(get_origin(kind) or kind, "__name__", str(kind))
    return _WORDS.get(name, f"a {name}")


def _shown(value: object) -> str:
    if isinstance(value, str | int | float | NoneType):
        return repr(value) if len(repr(value)) < 60 else f"{repr(value)[:57]}..."
    return f"a {type(value).__name__}"
