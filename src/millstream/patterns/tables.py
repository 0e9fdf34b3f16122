"""An automaton as the arrays that the kernel reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.patterns.automaton import END, Automaton, Edge
from millstream.patterns.kernel import layout, opcodes
from millstream.patterns.kernel.records import Rules, Table
from millstream.patterns.program import Kind, Unsupported, program, register_kind
from millstream.patterns.reading import read_later
from millstream.patterns.sharing import shares

_SKIPS = {
    "none": layout.NO_SKIP,
    "next": layout.TO_NEXT,
    "past_last": layout.PAST_LAST,
    "to_first": layout.TO_FIRST,
    "to_last": layout.TO_LAST,
}
#: Masks of tests, blocks and registers are the bits of a signed 64-bit number.
MOST = 62
#: Beyond so many states, most of which few rows reach, moving runs is quicker than a table of all.
MOST_TABLED = 32


@dataclass(frozen=True)
class Tables:
    """An automaton for the kernel. `texts` are those that programs compare with."""

    rules: Rules
    kinds: tuple[Kind, ...]
    texts: tuple[str, ...] = ()
    prefers: bool = False
    #: Whether what becomes of a run depends on its state and the rows to come alone.
    forgetful: bool = False
    #: Whether all runs of a state can be moved at once.
    shares: bool = False

    @property
    def width(self) -> int:
        """How many numbers a run has."""
        return int(self.rules.settings[layout.RUN_WIDTH])

    @cached_property
    def text_values(self) -> list[int]:
        """The values that are texts and more than counted."""
        used = {
            int(argument)
            for operation, real, argument in self.rules.programs
            if operation == opcodes.VALUE and not real
        }
        used |= {int(row[layout.VALUE]) for row in self.rules.registers if _remembers(row)}
        return [place for place, kind in enumerate(self.kinds) if kind == "t" and place in used]

    @cached_property
    def text_registers(self) -> list[int]:
        """The registers that hold texts."""
        return [
            at
            for at, row in enumerate(self.rules.registers)
            if _remembers(row) and row[layout.VALUE] >= 0 and self.kinds[row[layout.VALUE]] == "t"
        ]


def _remembers(register: Table) -> bool:
    """Tell whether a register holds values, and does not only count them."""
    return bool(register[layout.FUNCTION] != layout.R_COUNT)


def kind_of(type_: pa.DataType) -> Kind:
    """Return how the kernel sees a column: whole numbers, other numbers, text, or not at all."""
    types = pa.types
    moment = types.is_timestamp(type_) or types.is_date(type_) or types.is_duration(type_)
    if moment or types.is_boolean(type_) or (types.is_integer(type_) and type_ != pa.uint64()):
        return "i"
    if types.is_string(type_) or types.is_large_string(type_):
        return "t"
    return "f" if types.is_floating(type_) else "x"


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
    registers, extra = _registers(automaton, kinds)
    read = _read(automaton, registers, extra)
    states = [
        (edge_ends[place], edge_ends[place + 1], *_waiting(automaton, place), read[place])
        for place in range(len(groups))
    ]
    rules = Rules(
        edges=_table(edges, layout.EDGE_WIDTH),
        states=_table(states, layout.STATE_WIDTH),
        asks=_table(asks, layout.ASK_WIDTH),
        programs=_table([step[:-1] for step in steps], layout.STEP_WIDTH),
        program_ends=np.cumsum([0, *(len(one) for one in lowered)]).astype(np.int64),
        constants=np.array([step[-1] for step in steps], np.float64),
        registers=_table(registers, layout.REGISTER_WIDTH),
        settings=_settings(automaton, late, layout.REGISTERS + len(registers) + extra),
    )
    prefers, forgetful = automaton.prefers, _forgetful(automaton)
    return Tables(rules, kinds, tuple(texts), prefers, forgetful, shares(automaton, late=late))


def _forgetful(automaton: Automaton) -> bool:
    """Tell whether an automaton can be matched by a table of its few states for each row."""
    if not automaton.prefers or automaton.within is not None or automaton.registers:
        return False
    edges = [*automaton.start, *(edge for state in automaton.states for edge in state.edges)]
    plain = all(not edge.forbid and edge.before is None for edge in edges)
    return plain and len(automaton.states) < MOST_TABLED


def _check(automaton: Automaton) -> None:
    if any(test.functions for test in automaton.tests):
        raise Unsupported("it has Python predicates")
    edges = [*automaton.start, *(edge for state in automaton.states for edge in state.edges)]
    if automaton.prefers and any(edge.take is None for edge in edges):
        raise Unsupported("it prefers, and passes over events")
    if max(len(automaton.tests), len(automaton.blocks), len(automaton.registers)) > MOST:
        raise Unsupported(f"it has more than {MOST} tests, blocks or registers")


def _table(rows: Sequence[Sequence[int]], width: int) -> Table:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _bits(numbers: Collection[int]) -> int:
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
        len(asks),
    ]


def _waiting(automaton: Automaton, place: int) -> tuple[int, int]:
    if place == len(automaton.states):
        return 0, -1
    state = automaton.states[place]
    pending = int(state.pending) + int(state.unfinished)
    return pending, -1 if state.patience is None else state.patience


def _read(automaton: Automaton, registers: list[list[int]], extra: int) -> list[int]:
    """Return for each state the slots of registers that are still read, and for the start all."""
    if len(registers) + extra > MOST:
        return [-1] * (len(automaton.states) + 1)
    found = []
    for later in read_later(automaton):
        beside = [registers[at][layout.BESIDE] for at in later if not automaton.registers[at].back]
        found.append(_bits({*later, *(slot for slot in beside if slot >= 0)}))
    return [*found, -1]


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
        function = getattr(layout, f"R_{register.function.upper()}")
        if register.back:
            function = layout.R_BACK + register.back
            beside = automaton.registers.index(register.nearer)
        rows.append([function, value, _bits(register.blocks), int(real), beside])
    return rows, extra


def _settings(automaton: Automaton, late: bool, width: int) -> Table:
    skip, registers = automaton.skip, automaton.registers
    edges = max(len(automaton.start), *(len(state.edges) for state in automaton.states), 0)
    found = np.zeros(layout.SETTINGS, np.int64)
    found[layout.WITHIN] = -1 if automaton.within is None else automaton.within
    found[layout.SKIP] = _SKIPS[skip.kind]
    found[layout.SKIP_BLOCKS] = 0 if skip.block is None else _bits(automaton.blocks_of(skip.block))
    found[layout.SINGLETON] = int(automaton.singleton)
    found[layout.LAZY] = int(skip.kind == "none" and not automaton.singleton)
    found[layout.LATE_WANTED] = int(late)
    found[layout.RUN_WIDTH] = width
    found[layout.ROOM] = 2 + edges
    unset = [at for at, register in enumerate(registers) if register.empty is None]
    found[layout.EMPTY_REGISTERS] = _bits(unset)
    found[layout.DEEPEST] = max((register.back for register in registers), default=0)
    return found
