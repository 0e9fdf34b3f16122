"""What is computed of the lists that a run remembers: folds of all values, and places in them.

They are for what one number for all events cannot hold: array_agg(x), COUNT(DISTINCT x), FIRST(x,
2), or an aggregate of CLASSIFIER(). Values that are missing are left out, as in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, isnan, sqrt
from typing import Any, Final

# What a value is, only the user's columns know.
Value = Any
Values = Sequence[Value]


def ordered(value: Value) -> tuple[bool, Value]:
    """Return what values are compared by, as Spark has it: NaN is equal to itself, and above all."""
    if isinstance(value, list):
        return False, tuple(value)
    return (True, 0.0) if isinstance(value, float) and isnan(value) else (False, value)


def each(element: Callable[[list[Value]], Value], listed: Sequence[bool], parts: Values) -> Values:
    """Return an expression of every event; parts that are not lists are the same for all."""
    count = next(len(part) for part, one in zip(parts, listed, strict=True) if one)
    columns = [part if one else [part] * count for part, one in zip(parts, listed, strict=True)]
    return tuple(element(list(row)) for row in zip(*columns, strict=True))


def place(found: Values, labels: Sequence[int], asked: tuple[Any, ...]) -> Value:
    """Return the value of one event: counted among those of some blocks, then moved on from there.

    `asked` are the blocks, whether it is counted from the last, how many on, and the move.
    """
    blocks, from_last, back, shift = asked
    own = [at for at, block in enumerate(labels) if block in blocks]
    if back >= len(own):
        return None
    at = own[-1 - back if from_last else back] + shift
    return found[at] if 0 <= at < len(found) else None


PLACE: Final = place


def _known(found: Values) -> list[Value]:
    return [value for value in found if value is not None]


def _of_known(fold: Callable[[list[Value]], Value], least: int = 1) -> Callable[[Values], Value]:
    """Return a fold of what is not missing, which is missing where there are too few."""

    def apply(found: Values) -> Value:
        known = _known(found)
        return fold(known) if len(known) >= least else None

    return apply


def _distinct(found: Values) -> tuple[Value, ...]:
    return tuple({ordered(value): value for value in _known(found)}.values())


def _variance(spare: int) -> Callable[[list[Value]], float]:
    def apply(known: list[Value]) -> float:
        mean = fsum(known) / len(known)
        return fsum((value - mean) ** 2 for value in known) / (len(known) - spare)

    return apply


def _deviation(spare: int) -> Callable[[list[Value]], float]:
    return lambda known: sqrt(_variance(spare)(known))


def _median(known: list[Value]) -> Value:
    rising = sorted(known, key=ordered)
    return (rising[(len(rising) - 1) // 2] + rising[len(rising) // 2]) / 2


def _by(choose: Callable[..., Any]) -> Callable[[Values, Values], Value]:
    def apply(found: Values, by: Values) -> Value:
        pairs = [pair for pair in zip(by, found, strict=True) if pair[0] is not None]
        return choose(pairs, key=lambda pair: ordered(pair[0]))[1] if pairs else None

    return apply


def _some(falling: bool) -> Callable[[Values, int], Value]:
    """Return the fold of the first few in order."""

    def apply(found: Values, count: int) -> Value:
        return tuple(sorted(_known(found), key=ordered, reverse=falling)[:count]) or None

    return apply


def _some_by(falling: bool) -> Callable[[Values, Values, int], Value]:
    def apply(found: Values, by: Values, count: int) -> Value:
        pairs = [pair for pair in zip(by, found, strict=True) if pair[0] is not None]
        pairs.sort(key=lambda pair: ordered(pair[0]), reverse=falling)
        return tuple(value for _, value in pairs[:count]) or None

    return apply


def _lists(keys: Values, values: Values) -> dict[Value, list[Value]] | None:
    found: dict[Value, list[Value]] = {}
    for key, value in zip(keys, values, strict=True):
        if key is not None:
            found.setdefault(key, []).append(value)
    return found or None


def _map(keys: Values, values: Values) -> dict[Value, Value] | None:
    """Return the first value of each key."""
    found = _lists(keys, values)
    return None if found is None else {key: some[0] for key, some in found.items()}


def _union(found: Values) -> dict[Value, Value] | None:
    pairs = [pair for one in _known(found) for pair in dict(one).items()]
    return _map([key for key, _ in pairs], [value for _, value in pairs])


def _joined(found: Values, separator: Value = "") -> str | None:
    known = _known(found)
    return str(separator).join(map(str, known)) if known else None


FOLDS: Final[dict[str, Callable[..., Value]]] = {
    "any": _of_known(any),
    "any_value": _of_known(lambda known: known[0]),
    "avg": _of_known(lambda known: sum(known[1:], known[0]) / len(known)),
    "count": lambda found: len(_known(found)),
    "count_distinct": lambda found: len(_distinct(found)),
    "count_if": lambda found: sum(value is True for value in found),
    "every": _of_known(all),
    "first": lambda found: found[0] if found else None,
    "join": _joined,
    "last": lambda found: found[-1] if found else None,
    "list": tuple,
    "map": _map,
    "map_union": _union,
    "max": _of_known(lambda known: max(known, key=ordered)),
    "max_by": _by(max),
    "max_by_some": _some_by(falling=True),
    "max_some": _some(falling=True),
    "median": _of_known(_median),
    "min": _of_known(lambda known: min(known, key=ordered)),
    "min_by": _by(min),
    "min_by_some": _some_by(falling=False),
    "min_some": _some(falling=False),
    "multimap": _lists,
    "set": _distinct,
    "stddev": _of_known(_deviation(1), least=2),
    "stddev_pop": _of_known(_deviation(0)),
    "sum": _of_known(lambda known: sum(known[1:], known[0])),
    "sum_distinct": lambda found: FOLDS["sum"](_distinct(found)),
    "variance": _of_known(_variance(1), least=2),
    "variance_pop": _of_known(_variance(0)),
}
