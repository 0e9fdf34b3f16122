"""Hints for misspelt names in Python, the same ones that YAML gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Final, NoReturn, ParamSpec, TypeVar

from millstream.errors import MillstreamError, UnknownArgument, UnknownName
from millstream.flow.kinds import check_types, title
from millstream.flow.site import here

P = ParamSpec("P")
R = TypeVar("R")
Kind = TypeVar("Kind", bound=type)
_SEVERAL: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def intended(name: str, known: Collection[str], what: str) -> str:
    """Return the hint about a name that is none of those that are known."""
    close = get_close_matches(name, known, n=1)
    return f'did you mean "{close[0]}"?' if close else f"{what} {', '.join(known)}"


def spelled(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with hints for whoever calls it with arguments that it does not take."""
    signature = inspect.signature(function)
    several = [one.name for one in signature.parameters.values() if one.kind in _SEVERAL]

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise _wrong_call(function, signature, kwargs, error) from None
        given = {name: value for name, value in bound.items() if name not in several}
        check_types(function, given)
        try:
            return function(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            if isinstance(error, MillstreamError):
                raise
            check_types(function, given, strictly=True)
            raise

    return called


def _wrong_call(
    function: Callable[..., object],
    signature: inspect.Signature,
    given: Iterable[str],
    error: TypeError,
) -> UnknownArgument:
    known = [name for name in signature.parameters if name != "self"]
    called = title(function)
    unknown = next((name for name in given if name not in known), None)
    if unknown is None:
        # Python's own words: a required argument is missing, or there are too many.
        return UnknownArgument(f"{called}: {error}", hint=_usage(known), where=here())
    hint = intended(unknown, known, "its arguments are")
    return UnknownArgument(f'{called} has no argument "{unknown}"', hint=hint, where=here())


def _usage(known: Collection[str]) -> str:
    return f"its arguments are {', '.join(known)}" if known else "it has no arguments"


def spelled_methods(kind: Kind) -> Kind:
    """Give hints for arguments of all public methods of a class, and for methods that it lacks."""
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, spelled(member))
    kind.__getattr__ = _no_such_member  # type: ignore[attr-defined]
    return kind


def _no_such_member(self: object, name: str) -> NoReturn:
    # Python probes for names like __deepcopy__, and needs to hear no.
    known = [] if name.startswith("_") else [one for one in dir(type(self)) if one[0] != "_"]
    title = type(self).__name__
    hint = intended(name, known, "it has") if known else None
    raise UnknownName(f'{title} has no "{name}"', hint=hint, where=here() if known else None)
