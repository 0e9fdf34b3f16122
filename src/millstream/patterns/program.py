"""Expressions over the history as short programs for the kernel's stack machine.

A number is whole ("i") or not ("f"); truth is 1 or 0; a text ("t") is its place among all texts in
order, so that texts are compared as whole numbers are. What the machine does not know (decimals,
Python predicates) makes a pattern run on the plain automaton instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from millstream.patterns.history import GATHERING, Node, Register
from millstream.patterns.kernel import opcodes

Kind = Literal["i", "f", "t", "x"]
"""Whole numbers, times and truth; other numbers; text; what the kernel does not know."""
Step = tuple[int, int, int, float]
"""An operation, whether its operands are real numbers, an argument and a constant."""

_PAIRS: Final = {
    "+": opcodes.ADD,
    "-": opcodes.SUBTRACT,
    "*": opcodes.MULTIPLY,
    "=": opcodes.EQUAL,
    "<>": opcodes.NOT_EQUAL,
    "<": opcodes.LESS,
    "<=": opcodes.LESS_EQUAL,
    ">": opcodes.GREATER,
    ">=": opcodes.GREATER_EQUAL,
    "%": opcodes.REMAINDER,
    "<=>": opcodes.SAME,
    "least": opcodes.LEAST,
    "greatest": opcodes.GREATEST,
}
_TRUTHS: Final = frozenset(["=", "<>", "<", "<=", ">", ">=", "<=>"])


class Unsupported(Exception):
    """The kernel cannot evaluate this expression."""


@dataclass
class Program:
    """Operations, each with the kind of its operands, an argument and a constant."""

    steps: list[Step] = field(default_factory=list)

    def add(
        self, operation: int, kind: Kind = "i", argument: int = 0, constant: float = 0.0
    ) -> None:
        self.steps.append((operation, int(kind == "f"), argument, constant))


def register_kind(register: Register, values: Sequence[Kind]) -> Kind:
    """Return what kind of number a register holds."""
    if register.function in GATHERING:
        return "x"
    if register.function == "count" or register.value is None:
        return "i"
    kind = values[register.value]
    if kind == "t" and register.function in ("sum", "avg", "any"):
        return "x"
    return "f" if register.function == "avg" and kind == "i" else kind


def program(
    node: Node, values: Sequence[Kind], registers: Sequence[Register], texts: list[str]
) -> list[Step]:
    """Return the program of an expression.

    Texts that it compares with are added to `texts`; they are values behind the others.

    Raises:
        Unsupported: It needs more than numbers, truth and text.
    """
    made = Program()
    _Lowering(values, registers, made, texts).lower(node)
    if _depth(node) > opcodes.DEPTH - 2:
        raise Unsupported("the expression is too deep")
    return made.steps


def _depth(node: Node) -> int:
    return 1 + max((place + _depth(arg) for place, arg in enumerate(node.args)), default=0)


@dataclass
class _Lowering:
    values: Sequence[Kind]
    registers: Sequence[Register]
    made: Program
    texts: list[str]

    def lower(self, node: Node) -> Kind:
        match node.op:
            case "literal":
                return self._literal(node)
            case "value":
                kind = self._known(self.values[node.of])
                self.made.add(opcodes.VALUE, kind, node.of)
                return kind
            case "register":
                return self._register(node)
            case "and" | "or":
                return self._chain(opcodes.AND if node.op == "and" else opcodes.OR, node.args)
            case "not" | "is null":
                self.lower(node.args[0])
                self.made.add(opcodes.NOT if node.op == "not" else opcodes.IS_NULL)
                return "i"
            case "neg" | "abs":
                kind = self._number(self.lower(node.args[0]))
                self.made.add(opcodes.NEGATE if node.op == "neg" else opcodes.ABSOLUTE, kind)
                return kind
            case "in":
                pairs = tuple(Node("=", (node.args[0], other)) for other in node.args[1:])
                return self._chain(opcodes.OR, pairs)
            case "/" | "div":
                return self._divide(node)
        return self._several(node)

    def _several(self, node: Node) -> Kind:
        match node.op:
            case "case":
                return self._case(node.args)
            case "coalesce":
                return self._fold(node.args, opcodes.COALESCE)
            case "least" | "greatest":
                return self._fold(node.args, _PAIRS[node.op])
        if node.op not in _PAIRS:
            raise Unsupported(node.op)
        kind = self._pair(*node.args)
        self.made.add(_PAIRS[node.op], kind)
        return "i" if node.op in _TRUTHS else self._number(kind)

    def _literal(self, node: Node) -> Kind:
        if node.of is None:
            self.made.add(opcodes.NULL)
            return "i"
        if isinstance(node.of, bool | int):
            self.made.add(opcodes.LITERAL, "i", int(node.of))
            return "i"
        if isinstance(node.of, float):
            self.made.add(opcodes.LITERAL, "f", 0, node.of)
            return "f"
        if not isinstance(node.of, str):
            raise Unsupported(type(node.of).__name__)
        if node.of not in self.texts:
            self.texts.append(node.of)
        self.made.add(opcodes.VALUE, "t", len(self.values) + self.texts.index(node.of))
        return "t"

    def _register(self, node: Node) -> Kind:
        register = self.registers[node.of]
        kind = self._known(register_kind(register, self.values))
        if register.function == "avg":
            self.made.add(opcodes.AVERAGE, "f", node.of)
            return "f"
        self.made.add(opcodes.REGISTER, kind, node.of)
        return kind

    def _known(self, kind: Kind) -> Kind:
        if kind == "x":
            raise Unsupported("neither a number, a truth nor a text")
        return kind

    def _number(self, kind: Kind) -> Kind:
        if kind == "t":
            raise Unsupported("arithmetic with text")
        return kind

    def _chain(self, operation: int, args: Sequence[Node]) -> Kind:
        for place, arg in enumerate(args):
            self.lower(arg)
            if place:
                self.made.add(operation)
        return "i"

    def _pair(self, left: Node, right: Node) -> Kind:
        """Put two numbers of one kind on the stack."""
        if self._kind(left) == self._kind(right):
            self.lower(left)
            return self.lower(right)
        for node in (left, right):
            self._as_float(node)
        return "f"

    def _as_float(self, node: Node) -> None:
        if self._number(self.lower(node)) == "i":
            self.made.add(opcodes.TO_REAL)

    def _kind(self, node: Node) -> Kind:
        return _Lowering(self.values, self.registers, Program(), self.texts).lower(node)

    def _divide(self, node: Node) -> Kind:
        for arg in node.args:
            self._number(self._kind(arg))
        if node.op == "div" and all(self._kind(arg) == "i" for arg in node.args):
            self._pair(*node.args)
            self.made.add(opcodes.QUOTIENT)
            return "i"
        if node.op == "div":
            raise Unsupported("div of numbers that are not whole")
        for arg in node.args:
            self._as_float(arg)
        self.made.add(opcodes.DIVIDE, "f")
        return "f"

    def _case(self, args: Sequence[Node]) -> Kind:
        """Lower "condition, value, rest" to a choice; the rest may be a case again."""
        if len(args) == 1:
            return self.lower(args[0])
        rest = args[2] if len(args) == 3 else Node("case", tuple(args[2:]))
        self.lower(args[0])
        kind = self._pair(args[1], rest)
        self.made.add(opcodes.SELECT, kind)
        return kind

    def _fold(self, args: Sequence[Node], operation: int) -> Kind:
        """Lower an operation of several to one of two after the other."""
        kinds = {self._kind(arg) for arg in args}
        kind: Kind = "f" if "f" in kinds else "i"
        if "t" in kinds:
            if kinds != {"t"}:
                raise Unsupported("text and something else")
            kind = "t"
        for place, arg in enumerate(args):
            if kind == "f":
                self._as_float(arg)
            else:
                self.lower(arg)
            if place:
                self.made.add(operation, kind)
        return kind
