"""An automaton as the arrays that the kernel reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.patterns import kernel
from millstream.patterns.automaton import END, Automaton, Edge
from millstream.patterns.kernel import Floats, Table
from millstream.patterns.program import VALUE_I, Kind, Unsupported, program, register_kind

_FUNCTIONS = {
    "first": kernel.R_FIRST,
    "last": kernel.R_LAST,
    "count": kernel.R_COUNT,
    "sum": kernel.R_SUM,
    "min": kernel.R_MIN,
    "max": kernel.R_MAX,
    "any": kernel.R_ANY,
    "avg": kernel.R_AVG,
}
_SKIPS = {
    "none": kernel.NO_SKIP,
    "next": kernel.TO_NEXT,
    "past_last": kernel.PAST_LAST,
    "to_first": kernel.TO_FIRST,
    "to_last": kernel.TO_LAST,
}
#: Masks of tests, blocks and registers are the bits of a signed 64-bit number.
MOST = 62


@dataclass(frozen=True)
class Tables:
    """The arrays of one automaton; see kernel.py for their columns. `texts` are those that programs compare with."""

    edges: Table
    states: Table
    asks: Table
    programs: Table
    ends: Table
    constants: Floats
    registers: Table
    settings: Table
    kinds: tuple[Kind, ...]
    texts: tuple[str, ...] = ()
    prefers: bool = False

    @property
    def width(self) -> int:
        """How many numbers a run has."""
        return int(self.settings[kernel.RUN_WIDTH])

    @cached_property
    def text_values(self) -> list[int]:
        """The values that are texts and more than counted."""
        used = {int(place) for operation, place in self.programs if operation == VALUE_I}
        used |= {int(value) for function, value, *_ in self.registers if function != kernel.R_COUNT}
        return [place for place, kind in enumerate(self.kinds) if kind == "t" and place in used]

    @cached_property
    def text_registers(self) -> list[int]:
        """The registers that hold texts."""
        known = enumerate(self.registers)
        return [
            at
            for at, row in known
            if row[0] != kernel.R_COUNT and row[1] >= 0 and self.kinds[row[1]] == "t"
        ]


def kind_of(type_: pa.DataType) -> Kind:
    """Return how the kernel sees a column: whole numbers, other numbers, text, or not at all."""
    whole = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_timestamp,
        pa.types.is_date,
        pa.types.is_duration,
    )
    if any(test(type_) for test in whole) and type_ != pa.uint64():
        return "i"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "t"
    return "f" if pa.types.is_floating(type_) else "x"


def tables(automaton: Automaton, types: Sequence[pa.DataType], *, late: bool = False) -> Tables:
    """Return the arrays of an automaton whose values have these types.

    Raises:
        Unsupported: The kernel cannot run it.
    """
    _check(automaton)
    kinds = tuple(kind_of(type_) for type_ in types)
    texts: list[str] = []
    lowered = [
        [] if test.history is None else program(test.history, kinds, automaton.registers, texts)
        for test in automaton.tests
    ]
    steps = [step for one in lowered for step in one]
    asks: list[tuple[int, int]] = []
    groups = [*(state.edges for state in automaton.states), automaton.start]
    edges = [_edge(automaton, edge, asks) for group in groups for edge in group]
    edge_ends = np.cumsum([0, *(len(group) for group in groups)])
    states = [
        (edge_ends[place], edge_ends[place + 1], *_waiting(automaton, place))
        for place in range(len(groups))
    ]
    registers, extra = _registers(automaton, kinds)
    return Tables(
        edges=_table(edges, kernel.EDGE_WIDTH),
        states=_table(states, 4),
        asks=_table(asks, 2),
        programs=_table([step[:2] for step in steps], 2),
        ends=np.cumsum([0, *(len(one) for one in lowered)]).astype(np.int64),
        constants=np.array([step[2] for step in steps], np.float64),
        registers=_table(registers, 5),
        settings=_settings(automaton, late, kernel.REGISTERS + len(registers) + extra),
        kinds=kinds,
        texts=tuple(texts),
        prefers=automaton.prefers,
    )


def _check(automaton: Automaton) -> None:
    if any(test.functions for test in automaton.tests):
        raise Unsupported("it has Python predicates")
    taking = [
        edge.take is not None
        for edges in (automaton.start, *(s.edges for s in automaton.states))
        for edge in edges
    ]
    if automaton.prefers and not all(taking):
        raise Unsupported("it prefers, and passes over events")
    if max(len(automaton.tests), len(automaton.blocks), len(automaton.registers)) > MOST:
        raise Unsupported(f"it has more than {MOST} tests, blocks or registers")


def _table(rows: Sequence[Sequence[int]], width: int) -> Table:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _bits(numbers: Sequence[int] | frozenset[int]) -> int:
    return sum(1 << number for number in numbers)


def _edge(automaton: Automaton, edge: Edge, asks: list[tuple[int, int]]) -> list[int]:
    plain = [number for number in edge.forbid if automaton.tests[number].plain]
    ask = [(number, 1 << number) for number in edge.need if not automaton.tests[number].plain]
    deny = [(number, 1 << number) for number in edge.forbid if not automaton.tests[number].plain]
    at = len(asks)
    asks += [*ask, *deny]
    return [
        _bits(edge.need),
        _bits(plain),
        -1 if edge.take is None else edge.take,
        -1 if edge.target == END else edge.target,
        int(edge.completes),
        -1 if edge.before is None else edge.before,
        at,
        at + len(ask),
        at + len(ask),
        len(asks),
    ]


def _waiting(automaton: Automaton, place: int) -> tuple[int, int]:
    if place == len(automaton.states):
        return 0, -1
    state = automaton.states[place]
    return int(state.pending), -1 if state.patience is None else state.patience


def _registers(automaton: Automaton, kinds: Sequence[Kind]) -> tuple[list[list[int]], int]:
    """Return the rows of the registers, and how many slots they need besides their own."""
    rows, extra = [], 0
    for register in automaton.registers:
        beside = -1
        if register.function in ("avg", "first"):
            beside = len(automaton.registers) + extra
            extra += 1
        value = -1 if register.value is None else register.value
        kind = "i" if value < 0 else kinds[value]
        if register_kind(register, kinds) == "x" and register.function != "count":
            raise Unsupported("a register that is neither a number, a truth nor a text")
        real = kind == "f" and register.function != "count"
        function = _FUNCTIONS[register.function]
        if register.back:
            function, beside = (
                kernel.R_SHIFT + register.back,
                automaton.registers.index(register.nearer),
            )
        rows.append([function, value, _bits(register.blocks), int(real), beside])
    return rows, extra


def _settings(automaton: Automaton, late: bool, width: int) -> Table:
    skip = automaton.skip
    found = np.zeros(8, np.int64)
    found[kernel.WITHIN] = -1 if automaton.within is None else automaton.within
    found[kernel.SKIP] = _SKIPS[skip.kind]
    found[kernel.SKIP_BLOCKS] = 0 if skip.block is None else _bits(automaton.blocks_of(skip.block))
    found[kernel.SINGLETON] = int(automaton.singleton)
    found[kernel.LATE_WANTED] = int(late)
    found[kernel.RUN_WIDTH] = width
    found[kernel.ROOM] = 2 + max(
        len(automaton.start), *(len(state.edges) for state in automaton.states), 0
    )
    return found
