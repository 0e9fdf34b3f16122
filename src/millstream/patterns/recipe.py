"""A recipe: all that a runner needs to match patterns over rows, as plain data.

It says which columns to compute in SQL before (masks, values, rows for the output), which automata
to run over them, and which SQL makes the results of what they find. Several patterns run over one
stream at once; their tests share the masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from millstream.errors import DuplicateName, PatternError, UnknownColumn
from millstream.flow import durations, expressions
from millstream.flow.schema import Field, Schema
from millstream.flow.site import here, meant
from millstream.patterns.automaton import Automaton
from millstream.patterns.blocks import Block, Condition
from millstream.patterns.compile import compile_pattern
from millstream.patterns.conditions import Owner
from millstream.patterns.match_recognize import Recognition
from millstream.patterns.ordering import Ordering
from millstream.patterns.outputs import (
    PIECE,
    Lag,
    Output,
    Outputs,
    Piece,
    default_outputs,
    read_outputs,
)
from millstream.patterns.pattern import Pattern, Phenomenon
from millstream.patterns.vocabulary import Vocabulary

#: How many tests one mask holds: the bits of a signed 64-bit number, one to spare.
BITS: Final = 62
#: How the columns for outputs are called.
ROWS: Final = "__out{}"
TIMED_OUT, PATTERN = "timed_out", "pattern"
#: Why an event could not be matched, and the event, in results that tell of such.
DEAD_LETTER, EVENT = "dead_letter", "event"


@dataclass(frozen=True, slots=True)
class PatternPlan:
    """One pattern of a recipe: its tests are `count` bits of mask `word` from bit `shift` on."""

    automaton: Automaton
    outputs: Outputs
    word: int
    shift: int
    values: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def lags(self) -> tuple[Lag, ...]:
        """The columns for outputs that are those of earlier rows."""
        return tuple(
            Lag(ROWS.format(self.rows[target]), ROWS.format(self.rows[source]), back)
            for target, source, back in self.outputs.lags
        )


@dataclass(frozen=True, slots=True)
class Recipe:
    """Patterns over one stream.

    Attributes:
        plans: The patterns.
        keys: The columns that make a key.
        time: The time column; empty if the rows of a batch are in another order.
        masks: SQL of each mask.
        values: SQL of each value that automata look at.
        rows: SQL of each value that outputs are made of.
        late: Whether runs that ran out of time come out as well.
        all_rows: Whether each row of a match comes out, and not one for all.
        named: Whether the results say which pattern they are of.
        letters: Whether events that cannot be matched come out as well.
        certain: The column of the moment at which a match is certain: the time column, unless
            another is named.
        order: What the rows of a batch are ordered by, if that is more than a rising time.
        empty: Whether a match may be empty, in a batch.
        omitted: Whether empty matches do not come out.
        unmatched: Whether the rows of a batch that match nothing come out.
        keyless: Whether rows that have no key are a partition of their own, in a batch of SQL.
    """

    plans: tuple[PatternPlan, ...]
    keys: tuple[str, ...]
    time: str
    masks: tuple[str, ...]
    values: tuple[str, ...]
    rows: tuple[str, ...]
    late: bool = False
    all_rows: bool = False
    named: bool = False
    letters: bool = False
    certain: str = ""
    order: tuple[Ordering, ...] = ()
    empty: bool = False
    omitted: bool = False
    unmatched: bool = False
    keyless: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "certain", self.certain or self.time)

    @property
    def quiet(self) -> bool:
        """Whether rows that meet no test may be left out beforehand."""
        shown = self.empty or self.unmatched
        return not shown and all(plan.automaton.quiet for plan in self.plans)

    @property
    def computed(self) -> tuple[str, ...]:
        """SQL of all that is computed for each row beforehand.

        Values are computed only for rows that are not left out.
        """
        values = ", ".join(f"cast(({sql}) as string)" for sql in (*self.values, *self.rows))
        wanted = " OR ".join(f"({mask}) <> 0" for mask in self.masks) if self.quiet else "true"
        return (*self.masks, *([f"if({wanted}, xxhash64({values}), 0)"] if values else []))

    @property
    def asks_python(self) -> bool:
        """Whether a condition is a Python function, which is given whole rows."""
        return any(
            test.functions or test.alone for plan in self.plans for test in plan.automaton.tests
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(warning for plan in self.plans for warning in plan.automaton.warnings)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the results."""
        own = self.plans[0].outputs.names
        letters = (DEAD_LETTER, EVENT) if self.letters else ()
        extra = (*((PATTERN,) if self.named else ()), *((TIMED_OUT,) if self.late else ()))
        known = self._has_time or not self.certain
        return (*own, *extra, *letters, *(() if known else (self.certain,)))

    @property
    def _has_time(self) -> bool:
        return any(name.lower() == self.certain.lower() for name in self.plans[0].outputs.names)


def recipe(
    pattern: Pattern | Phenomenon,
    schema: Schema,
    *,
    time: str,
    key: Sequence[str] | None = None,
    emit: str | None = None,
    strict: bool = False,
    letters: bool = False,
) -> Recipe:
    """Return the recipe of a pattern, or of the patterns of a phenomenon.

    Raises:
        FlowError: The pattern does not fit these columns.
    """
    patterns = pattern.patterns if isinstance(pattern, Phenomenon) else (pattern,)
    keys = _keys(patterns, schema, key)
    found = [_compiled(one, schema, keys, emit, strict) for one in patterns]
    found = _aligned(found)
    late, named = any(one.late for one in patterns), isinstance(pattern, Phenomenon)
    made = replace(_joined(found, keys, time), late=late, named=named, letters=letters)
    _check_names(made)
    return made


def recognition_recipe(
    found: Recognition, schema: Schema, time: str, *, batch: bool = False
) -> Recipe:
    """Return the recipe of a MATCH_RECOGNIZE clause."""
    outputs = _with_columns(found, schema)
    made = _joined([(found.automaton, outputs)], found.partition, time)
    order = found.orders if len(found.orders) > 1 or not time else ()
    return replace(
        made,
        all_rows=found.all_rows,
        order=order,
        empty=found.empty,
        omitted=found.omitted,
        unmatched=found.unmatched,
        keyless=batch,
    )


def _with_columns(found: Recognition, schema: Schema) -> Outputs:
    """Return the measures behind the key, and for ALL ROWS the row's own columns around them."""
    pieces, values = list(found.outputs.pieces), list(found.outputs.values)
    every = frozenset(range(len(found.automaton.blocks)))

    def column(name: str) -> Output:
        sql = expressions.column(name)
        if sql not in values:
            values.append(sql)
        piece = Piece("row" if found.empty or found.unmatched else "last", every, values.index(sql))
        if piece not in pieces:
            pieces.append(piece)
        return Output(name, PIECE.format(pieces.index(piece)))

    measures = {output.name.lower() for output in found.outputs.columns}
    front = [column(name) for name in found.partition]
    back: list[Output] = []
    if found.all_rows:
        names = [one.column for one in found.orders if one.column]
        front += [column(name) for name in dict.fromkeys(names) if name not in found.partition]
        known = {*measures, *(output.name.lower() for output in front)}
        back = [column(name) for name in schema.names if name.lower() not in known]
    columns = (*front, *found.outputs.columns, *back)
    return Outputs(columns, tuple(pieces), tuple(values), found.outputs.lags)


#: The SQL of a column that a pattern of a phenomenon does not emit, while others do.
_NOTHING: Final = "NULL"


def _aligned(found: list[tuple[Automaton, Outputs]]) -> list[tuple[Automaton, Outputs]]:
    """Return patterns that all have the columns of any: what one does not emit is missing there."""
    names: dict[str, str] = {}
    for _, outputs in found:
        for name in outputs.names:
            names.setdefault(name.lower(), name)
    return [
        (automaton, replace(outputs, columns=_with_all(outputs, names)))
        for automaton, outputs in found
    ]


def _with_all(outputs: Outputs, names: dict[str, str]) -> tuple[Output, ...]:
    own = {output.name.lower(): output for output in outputs.columns}
    return tuple(own.get(key, Output(name, _NOTHING)) for key, name in names.items())


def _keys(
    patterns: Sequence[Pattern], schema: Schema, key: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the key's columns as the schema spells them."""
    own = {one.keys for one in patterns if one.keys is not None}
    if key is not None:
        own = {tuple(key)}
    if len(own) > 1:
        msg = "patterns of one phenomenon have different keys"
        raise PatternError(msg, hint="they see one stream", where=here())
    names = next(iter(own), ())
    found = [schema.find(name) for name in names]
    for name, field in zip(names, found, strict=True):
        if field is None:
            msg = f'the key "{name}" is not a column of the events'
            raise UnknownColumn(msg, hint=meant(schema, name), where=here())
    return tuple(field.name for field in found if field is not None)


def _compiled(
    pattern: Pattern, schema: Schema, keys: tuple[str, ...], emit: str | None, strict: bool
) -> tuple[Automaton, Outputs]:
    automaton = compile_pattern(pattern, schema, strict=strict)
    # The automaton's names: by BoboCEP's rules a negated block takes events as well.
    words = Vocabulary(dict(automaton.names), schema)
    text = pattern.output if pattern.output is not None else emit
    if text is None:
        return automaton, default_outputs(pattern, words, keys, schema)
    called = f'pattern "{pattern.name}"' if pattern.name else "the pattern"
    return automaton, read_outputs(text, words, keys, Owner(called, pattern.where or here()))


def _check_names(made: Recipe) -> None:
    if made._has_time:
        msg = f'the output "{made.time}" of a pattern is already the moment at which a match is certain'
        raise DuplicateName(msg, hint=f"name it otherwise: ... as first_{made.time}", where=here())
    names = [name.lower() for name in made.names]
    for name in made.names:
        if names.count(name.lower()) > 1 or name.startswith("__"):
            msg = f'the output "{name}" of a pattern has a name that is taken'
            raise DuplicateName(msg, hint="name it otherwise: ... as another", where=here())


def _joined(found: Sequence[tuple[Automaton, Outputs]], keys: tuple[str, ...], time: str) -> Recipe:
    """Return the patterns with numbered masks, values and rows that they share."""
    masks: list[list[str]] = [[]]
    values: list[str] = []
    rows: list[str] = []
    plans = []
    for automaton, outputs in found:
        tests = [test.event for test in automaton.tests]
        if len(tests) > BITS:
            fact = f'pattern "{automaton.name}" has {len(tests)} conditions, more than {BITS}'
            hint = "split it, or compute some in columns before"
            raise PatternError(fact, hint=hint, where=here())
        if len(masks[-1]) + len(tests) > BITS:
            masks.append([])
        shift = len(masks[-1])
        masks[-1] += [_bit(test, 1 << (shift + number)) for number, test in enumerate(tests)]
        own_values = tuple(
            _placed(values, sql) for sql in _filled(automaton.values, automaton.lags)
        )
        own_rows = tuple(_placed(rows, sql) for sql in _filled(outputs.values, outputs.lags))
        plans.append(PatternPlan(automaton, outputs, len(masks) - 1, shift, own_values, own_rows))
    sql = tuple(
        "cast(" + (" + ".join(f"cast({one} as bigint)" for one in mask) or "0") + " as bigint)"
        for mask in masks
    )
    return Recipe(tuple(plans), keys, time, sql, tuple(values), tuple(rows))


def _bit(test: str | None, bit: int) -> str:
    return f"if({test}, {bit}, 0)" if test else str(bit)


def _filled(values: Sequence[str], lags: Sequence[tuple[int, int, int]]) -> list[str]:
    """Return the SQL of values; those of earlier rows are empty columns of the same type."""
    found = list(values)
    for target, source, _ in lags:
        found[target] = f"if(false, {values[source]}, null) /* {values[target]} */"
    return found


def _placed(known: list[str], one: str) -> int:
    if one not in known:
        known.append(one)
    return known.index(one)


def outcome(pattern: Pattern | Phenomenon, schema: Schema, **asked: Any) -> Schema:
    """Return the columns of the matches in events with these columns, asked as of `recipe`."""
    return output_schema(recipe(pattern, schema, **asked), schema)


def described(pattern: Pattern) -> dict[str, Any]:
    """Return a pattern as data that JSON can hold: what is not as it is by default."""
    facts = {
        "name": pattern.name,
        "blocks": [_block(block) for block in pattern.blocks],
        "within": None if pattern.span is None else durations.format(pattern.span),
        "skip": None if pattern.skip.kind == "none" else str(pattern.skip),
        "preconditions": [_condition_text(one) for one in pattern.required],
        "halts": [_condition_text(one) for one in pattern.halting],
        "singleton": pattern.one_at_a_time,
        "key": None if pattern.keys is None else list(pattern.keys),
        "emit": pattern.output,
        "timeouts": pattern.late,
        "rules": pattern.rules,
    }
    return {name: fact for name, fact in facts.items() if fact not in (None, [], False)}


def _block(block: Block) -> dict[str, Any]:
    facts = {
        "name": block.name,
        "contiguity": block.contiguity,
        "negated": block.negated,
        "conditions": [_condition_text(one) for one in block.conditions],
        "body": [[_block(one) for one in sequence] for sequence in block.body],
        "times": None if (block.least, block.most) == (1, 1) else [block.least, block.most],
        "optional": block.optional,
        "preference": None if block.preference == "fork" else block.preference,
        "inner": None if block.inner == "relaxed" else block.inner,
        "until": [_condition_text(one) for one in block.until],
        "within": None if block.within is None else durations.format(block.within),
        "times_within": None if block.between is None else durations.format(block.between),
    }
    return {name: fact for name, fact in facts.items() if fact not in (None, [], False, "")}


def _condition_text(condition: Condition) -> str:
    if isinstance(condition, str):
        return expressions.normal(condition)
    return f"{getattr(condition, '__qualname__', type(condition).__qualname__)}()"


def output_schema(made: Recipe, schema: Schema) -> Schema:
    """Return the columns of the results, with types where they are plain to see."""
    fields = [
        Field(output.name, _type_of(place, made, schema))
        for place, output in enumerate(made.plans[0].outputs.columns)
    ]
    known = {field.name.lower() for field in fields}
    extra = {
        PATTERN: "string",
        TIMED_OUT: "boolean",
        DEAD_LETTER: "string",
        EVENT: "string",
        made.certain: "timestamp",
    }
    fields += [Field(name, extra[name]) for name in made.names if name.lower() not in known]
    return Schema(tuple(fields))


def _type_of(place: int, made: Recipe, schema: Schema) -> str | None:
    """Return the type of an output that is one piece and no more, of the first that emits it."""
    plans = [plan for plan in made.plans if plan.outputs.columns[place].sql != _NOTHING]
    outputs = (plans or made.plans)[0].outputs
    output, pieces = outputs.columns[place], outputs.pieces
    for number, piece in enumerate(pieces):
        if output.sql == PIECE.format(number):
            sql = None if piece.value is None else outputs.sql_of(piece.value)
            return piece_type(piece, None if sql is None else expressions.type_of(sql, schema))
    return None


def piece_type(piece: Piece, value: str | None) -> str | None:
    """Return the Spark type of a piece whose value has a type."""
    value = "string" if piece.classifies else value
    match piece.function:
        case "count" | "match_number":
            return "bigint"
        case "any":
            return "boolean"
        case "avg":
            return "double"
        case "sum":
            return None if value is None else _sum(value)
        case "list":
            return None if value is None else f"array<{value}>"
    return value


def _sum(value: str) -> str:
    if value in ("tinyint", "smallint", "int", "bigint"):
        return "bigint"
    if value.startswith("decimal("):
        precision, scale = value[8:-1].split(",")
        return f"decimal({min(38, int(precision) + 10)},{scale})"
    return "double"
