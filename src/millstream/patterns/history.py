"""Expressions over a run's history: small trees that the automaton evaluates by itself.

Everything in a condition that is about the event alone is a *value*, computed in SQL before the
automaton sees the event. What is left are values, literals and *registers*, which hold what the run
remembers of the events that it took, joined by operators. Times are whole microseconds, so that
differences and intervals are plain numbers. A missing value makes an expression unknown (None), as
in SQL; so does a division by zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final, Literal

from millstream.clock import micros, moment_of
from millstream.flow.schema import Field, Schema
from millstream.patterns import folds
from millstream.patterns.folds import ordered

# What a value is, only the user's columns know: numbers, text, booleans, or None.
Value = Any
Function = Literal["first", "last", "count", "sum", "avg", "min", "max", "any", "list", "labels"]
#: What remembers every event, and not one thing of all: only the plain automaton has it.
GATHERING: Final = ("list", "labels")
#: The value that is the number of the match: it is filled in where a match is looked for.
MATCH_NUMBER: Final = "CAST(0 AS BIGINT) /* MATCH_NUMBER() */"


@dataclass(frozen=True, slots=True)
class Register:
    """What a run remembers of the events that some blocks took.

    It is `function` over value number `value` (None: the events themselves).

    A "last" that lies `back` takes over what the one that lies one less back held before. A "list"
    has the value of every event, "labels" the numbers of the blocks that took them.
    """

    function: Function
    blocks: frozenset[int]
    value: int | None = None
    back: int = 0

    @property
    def nearer(self) -> Register:
        """The register that this one takes over from."""
        return replace(self, back=self.back - 1)

    @property
    def empty(self) -> Value:
        """The content before any event."""
        return 0 if self.function == "count" else None


@dataclass(frozen=True, slots=True)
class Node:
    """An operator with its operands; for a value or register `of` is its number."""

    op: str
    args: tuple[Node, ...] = ()
    of: Value = None
    #: Part of what makes two nodes equal: to Python 1, 1.0 and True are the same.
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.of).__name__)

    def walk(self) -> Sequence[Node]:
        return [self, *(inner for arg in self.args for inner in arg.walk())]


def updated(
    registers: Sequence[Register], contents: tuple[Value, ...], block: int, values: Sequence[Value]
) -> tuple[Value, ...]:
    """Return the contents of the registers after `block` took an event with these values."""
    if not registers:
        return contents
    return tuple(
        content
        if block not in register.blocks
        else contents[registers.index(register.nearer)]
        if register.back
        else _with(register, content, values, block)
        for register, content in zip(registers, contents, strict=True)
    )


def _with(register: Register, content: Value, values: Sequence[Value], block: int) -> Value:
    value = True if register.value is None else values[register.value]
    if register.function in GATHERING:
        return (*(content or ()), value if register.function == "list" else block)
    match register.function:
        case "last":
            return value
        case "first":
            # A pair, since the first value may itself be missing.
            return content if content is not None else (value,)
        case "count":
            return content + (value is not None)
    if value is None:
        return content
    match register.function:
        case "sum":
            return value if content is None else content + value
        case "avg":
            return (value, 1) if content is None else (content[0] + value, content[1] + 1)
        case "min":
            return value if content is None else min(content, value, key=ordered)
        case "max":
            return value if content is None else max(content, value, key=ordered)
        case "any":
            return bool(content or value)


def read(register: Register, content: Value) -> Value:
    """Return the value of a register."""
    if register.function in GATHERING:
        return content or ()
    if content is None:
        return None
    if register.function == "first":
        return content[0]
    return content[0] / content[1] if register.function == "avg" else content


Evaluator = Callable[[Sequence[Value], Sequence[Value]], Value]


def evaluate(
    node: Node, values: Sequence[Value], contents: Sequence[Value], registers: Sequence[Register]
) -> Value:
    """Return what an expression is for an event's values and a run's registers."""
    read_out = [
        read(register, content) for register, content in zip(registers, contents, strict=True)
    ]
    return evaluator(node)(values, read_out)


@lru_cache(maxsize=4096)
def evaluator(node: Node) -> Evaluator:
    """Return the function that evaluates an expression for values and contents of registers."""
    match node.op:
        case "literal":
            constant = node.of
            return lambda _values, _registers: constant
        case "value":
            place = node.of
            return lambda values, _registers: values[place]
        case "register":
            place = node.of
            return lambda _values, registers: registers[place]
    args = [evaluator(arg) for arg in node.args]
    if node.op in ("named", "each", "fold", "place"):
        return _gathered(node, args)
    if node.op == "sql":
        computed = _computed(*node.of)
        return lambda values, registers: computed([arg(values, registers) for arg in args])
    function = _LAZY.get(node.op) or _strict(_PLAIN[node.op])
    return lambda values, registers: function([arg(values, registers) for arg in args])


def _gathered(node: Node, args: list[Evaluator]) -> Evaluator:
    """Return the function of lists, which evaluates what is computed of each event and of all."""
    if node.op == "named":
        names, labels = node.of, args[0]
        return lambda values, registers: tuple(names[one] for one in labels(values, registers))
    if node.op == "each":
        parts, sql, *types = node.of
        element = _computed(sql, *types)
        return lambda values, registers: folds.each(
            element, parts, [arg(values, registers) for arg in args]
        )
    function = folds.PLACE if node.op == "place" else folds.FOLDS[node.of]
    extra = (node.of,) if node.op == "place" else ()
    return lambda values, registers: function(*(arg(values, registers) for arg in args), *extra)


#: How the parts of a function over the history are called in its SQL.
PART: Final = "__part{}"


def part_schema(types: Sequence[str | None]) -> Schema | None:
    """Return the columns of the parts of a function; None if the type of one is not known."""
    known = [Field(PART.format(number), kind) for number, kind in enumerate(types)]
    return None if None in types else Schema(tuple(known))


def _computed(sql: str, *types: str | None) -> Callable[[list[Value]], Value]:
    """Return a function of Spark SQL over parts, whose times are whole microseconds here."""
    from millstream.patterns.scalar.function import scalar

    function = scalar(sql, part_schema(types))

    def apply(args: list[Value]) -> Value:
        pairs = enumerate(zip(args, types, strict=True))
        found = function({PART.format(number): _moment(*pair) for number, pair in pairs})
        return _micros(found) if isinstance(found, date) else found

    return apply


def _micros(found: date) -> int:
    """Return a time, or the beginning of a date, as whole microseconds."""
    if not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day, tzinfo=UTC)
    return micros(found if found.tzinfo is not None else found.replace(tzinfo=UTC))


def _moment(value: Value, kind: str | None) -> Value:
    """Return a value as Python has it: a time or a date, of its microseconds."""
    if value is None or kind not in ("timestamp", "date"):
        return value
    return moment_of(value) if kind == "timestamp" else moment_of(value).date()


def _strict(function: Callable[..., Value]) -> Callable[[list[Value]], Value]:
    def apply(args: list[Value]) -> Value:
        return None if any(arg is None for arg in args) else function(*args)

    return apply


def _and(args: list[Value]) -> Value:
    if any(arg is False for arg in args):
        return False
    return None if any(arg is None for arg in args) else True


def _or(args: list[Value]) -> Value:
    if any(arg is True for arg in args):
        return True
    return None if any(arg is None for arg in args) else False


def _compared(test: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: test(ordered(left), ordered(right))


def _in(args: list[Value]) -> Value:
    first, *others = (None if arg is None else ordered(arg) for arg in args)
    return _or([None if first is None or one is None else first == one for one in others])


def _case(args: list[Value]) -> Value:
    """Return the value of the first pair whose condition holds; the last argument is what else."""
    for place in range(0, len(args) - 1, 2):
        if args[place] is True:
            return args[place + 1]
    return args[-1]


def _divide(left: Value, right: Value) -> Value:
    return left / right if right else None


def _quotient(left: Value, right: Value) -> Value:
    if not right:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return int(left / right)
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _remainder(left: Value, right: Value) -> Value:
    """Return the remainder with the sign of the dividend, as in Spark."""
    if not right:
        return None
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


_PLAIN: dict[str, Callable[..., Value]] = {
    "=": _compared(operator.eq),
    "<>": _compared(operator.ne),
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "not": operator.not_,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
    "div": _quotient,
    "neg": operator.neg,
    "abs": abs,
}
_LAZY: dict[str, Callable[[list[Value]], Value]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "case": _case,
    "is null": lambda args: args[0] is None,
    "array": tuple,
    "<=>": lambda args: ordered(args[0]) == ordered(args[1]),
    "coalesce": lambda args: next((arg for arg in args if arg is not None), None),
    "least": lambda args: min((arg for arg in args if arg is not None), default=None, key=ordered),
    "greatest": lambda args: max(
        (arg for arg in args if arg is not None), default=None, key=ordered
    ),
}
COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "<=>"])
