"""Complex events from histories, one at a time: the columns that results.py computes for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.clock import moment_of
from millstream.errors import ConditionFailed, DuplicateName
from millstream.flow import expressions
from millstream.flow.schema import Field, Schema
from millstream.patterns.conditions import Owner
from millstream.patterns.history import Value
from millstream.patterns.outputs import PIECE, Piece, read_outputs, several
from millstream.patterns.parts import Parts
from millstream.patterns.pattern import Pattern
from millstream.patterns.recipe import PATTERN, TIMED_OUT, piece_type
from millstream.patterns.scalar import arithmetic
from millstream.patterns.scalar.codes import compiled
from millstream.patterns.scalar.function import Row, reading, writer_for

Taken = Sequence[tuple[int, Row]]
"""The blocks and rows of a history, in order."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a pattern emits for a history.

    Attributes:
        columns: The columns of events that it is made of; None for all.
        names: The columns that the pattern names itself.
        make: Returns the pattern's own columns, given the history.
        time: The column of the moment at which a match is certain.
        late: Whether runs that timed out come out too, and "timed_out" tells.
        named: The pattern's name, if it stands beside others of a phenomenon.
    """

    columns: frozenset[str] | None
    names: tuple[str, ...]
    make: Callable[[Taken], dict[str, Value]]
    time: str
    late: bool
    named: str | None = None

    @classmethod
    def of(cls, pattern: Pattern, schema: Schema | None, time: str, keys: Sequence[str]) -> Emitted:
        """Return what a pattern emits over events with these columns."""
        parts = Parts.of(pattern, schema)
        owner = Owner(f'pattern "{pattern.name or "pattern"}"', pattern.where)
        beside = (time, TIMED_OUT) if pattern.late else (time,)
        if pattern.output is None:
            columns = None if schema is None else frozenset(schema.names)
            names = (*keys, *(block.name for block in parts.blocks))
            check_names(names, beside, owner)
            whole = _Whole.of(pattern, parts, schema, keys)
            return cls(columns, names, whole, time, pattern.late)
        made = _Outputs.of(pattern.output, parts, schema, time, keys, owner)
        check_names(made.names, beside, owner)
        return cls(made.columns, made.names, made, time, pattern.late)

    def complex_event(self, taken: Taken, at: int, *, timed_out: bool) -> dict[str, Value]:
        """Return the columns of a complex event."""
        found = self.make(taken)
        if self.named is not None:
            found[PATTERN] = self.named
        if self.late:
            found[TIMED_OUT] = timed_out
        found[self.time] = moment_of(at)
        return found


@dataclass(frozen=True, slots=True)
class _Whole:
    """The key and the events of each block: what a pattern emits that names nothing."""

    keys: tuple[str, ...]
    blocks: tuple[tuple[str, int, bool], ...]
    names: tuple[str, ...] | None

    @classmethod
    def of(
        cls, pattern: Pattern, parts: Parts, schema: Schema | None, keys: Sequence[str]
    ) -> _Whole:
        blocks = tuple(
            (block.name, number, several(block, pattern))
            for number, block in enumerate(parts.blocks)
        )
        return cls(tuple(keys), blocks, None if schema is None else schema.names)

    def __call__(self, taken: Taken) -> dict[str, Value]:
        found = {name: taken[-1][1].get(name) for name in self.keys}
        for name, number, many in self.blocks:
            rows = [self._shown(row) for block, row in taken if block == number]
            found[name] = rows if many else rows[-1] if rows else None
        return found

    def _shown(self, row: Row) -> dict[str, Value]:
        return dict(row) if self.names is None else {name: row.get(name) for name in self.names}


@dataclass(frozen=True, slots=True)
class _Outputs:
    """The columns that a pattern names: SQL over pieces of the history."""

    names: tuple[str, ...]
    pieces: tuple[Piece, ...]
    values: Callable[[Row], tuple[Value, ...]]
    emit: Callable[[Row], dict[str, Value]]
    columns: frozenset[str]
    title: str
    blocks: tuple[str, ...]

    @classmethod
    def of(
        cls,
        text: str,
        parts: Parts,
        schema: Schema | None,
        time: str,
        keys: Sequence[str],
        owner: Owner,
    ) -> _Outputs:
        outputs = read_outputs(text, parts.words, keys, owner)
        inner = writer_for(schema, owner)
        if schema is None:
            inner.schema = Schema.of((time, "timestamp"))
        codes = [inner.code(expressions.expression(sql)) for sql in outputs.values]
        values = "".join(f"{code.value}, " for code in codes)
        body = [*reading(inner.columns, inner), f"return ({values})"]
        kinds = [
            piece_type(piece, None if piece.value is None else codes[piece.value].type)
            for piece in outputs.pieces
        ]
        fields = [Field(PIECE.format(number), kind) for number, kind in enumerate(kinds)]
        outer = writer_for(Schema(tuple(fields)), owner)
        found = {one.name: outer.code(expressions.expression(one.sql)) for one in outputs.columns}
        pairs = ", ".join(f"{outer.name(name)}: {code.value}" for name, code in found.items())
        emit = [*reading(outer.columns, outer), f"return {{{pairs}}}"]
        return cls(
            outputs.names,
            outputs.pieces,
            compiled("values", "row", body, inner),
            compiled("emit", "row", emit, outer),
            frozenset(inner.columns),
            owner.title,
            tuple(block.name for block in parts.blocks),
        )

    def __call__(self, taken: Taken) -> dict[str, Value]:
        try:
            rows = [(block, self.values(row)) for block, row in taken]
            pieces = {
                PIECE.format(number): _piece(piece, rows, self.blocks)
                for number, piece in enumerate(self.pieces)
            }
            return self.emit(pieces)
        except (ArithmeticError, ValueError, TypeError) as error:
            fact = f"the outputs of {self.title} could not be computed: {error}"
            raise ConditionFailed(fact, hint="use try_divide() or try_cast() there") from error


def check_names(names: Sequence[str], beside: Sequence[str], owner: Owner) -> None:
    """Refuse outputs that have the name of another, or of a column that stands beside them."""
    taken = [name.lower() for name in (*names, *beside)]
    for name in names:
        if taken.count(name.lower()) > 1 or name.startswith("__"):
            fact = f'emits "{name}", a name that is taken'
            raise owner.mistake(DuplicateName, fact, hint="name it otherwise: ... as another")


def _piece(
    piece: Piece, rows: Sequence[tuple[int, tuple[Value, ...]]], names: Sequence[str]
) -> Value:
    """Return a piece of an output from the values of a history's events."""
    own = [(block, values) for block, values in rows if block in piece.blocks]
    if piece.classifies:
        found: list[Value] = [names[block] for block, _ in own]
    elif piece.value is None:
        return len(own)
    else:
        found = [values[piece.value] for _, values in own]
    if piece.function in ("first", "last"):
        return None if not found else found[0 if piece.function == "first" else -1]
    if piece.function == "list":
        return found
    return _AGGREGATES[piece.function]([value for value in found if value is not None])


def _mean(values: list[Value]) -> Value:
    return float(sum(values)) / len(values) if values else None


_AGGREGATES: Final[dict[str, Callable[[list[Value]], Value]]] = {
    "count": len,
    "sum": lambda values: sum(values[1:], values[0]) if values else None,
    "avg": _mean,
    "min": lambda values: min(values, key=arithmetic.ordered, default=None),
    "max": lambda values: max(values, key=arithmetic.ordered, default=None),
    "any": lambda values: any(values) if values else None,
}
