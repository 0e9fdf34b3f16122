"""The words of a pattern's conditions and outputs, numbered as they come, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.patterns.history import Function, Node, Register, part_schema

#: What folds are, whatever they are of.
_FOLD_TYPES = {
    **dict.fromkeys(["count", "count_distinct", "count_if"], "bigint"),
    **dict.fromkeys(["any", "every"], "boolean"),
    **dict.fromkeys(
        ["avg", "median", "stddev", "stddev_pop", "variance", "variance_pop"], "double"
    ),
    "join": "string",
}
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@dataclass
class Vocabulary:
    """The words of a pattern's conditions and outputs; numbers values and registers as they come.

    `blocks` gives for each name, in lower case, the numbers of the blocks that it stands for.
    `known` are those that a condition may look at: the ones before it.
    """

    blocks: Mapping[str, frozenset[int]]
    schema: Schema | None = None
    values: list[str] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    #: The names of the blocks as they are spelled, by their numbers.
    labels: tuple[str, ...] = ()

    def value(self, sql: str) -> int:
        return placed(self.values, sql)

    def register(
        self, function: Function, blocks: frozenset[int], value: int | None, back: int = 0
    ) -> int:
        for nearer in range(back):
            placed(self.registers, Register(function, blocks, value, nearer))
        return placed(self.registers, Register(function, blocks, value, back))

    def type_of(self, node: Node) -> str | None:
        """Return a coarse kind ("number", "text", "time", "boolean") where it is plain to see."""
        match node.op:
            case "literal":
                return _literal_kind(node.of)
            case "value":
                if self.schema is None:
                    return None
                return kind_of(expressions.type_of(self.values[node.of], self.schema))
            case "register":
                register = self.registers[node.of]
                if register.function in ("count", "avg", "sum"):
                    return "number"
                if register.value is None:
                    return None
                return self.type_of(Node("value", of=register.value))
            case "fold" | "place":
                return kind_of(self.full_type(node))
        return None

    def element_type(self, node: Node) -> str | None:
        """Return the Spark type of what a list has of each event, where it is plain to see."""
        match node.op:
            case "named":
                return "string"
            case "each":
                schema = part_schema(node.of[2:])
                return None if schema is None else expressions.type_of(node.of[1], schema)
            case "register" if (value := self.registers[node.of].value) is not None:
                return self.full_type(Node("value", of=value))
        return self.full_type(node)

    def _fold_type(self, function: str, lists: Sequence[Node]) -> str | None:
        if function in _FOLD_TYPES:
            return _FOLD_TYPES[function]
        inner = self.element_type(lists[0])
        if inner is None:
            return None
        if function in ("list", "set") or function.endswith("_some"):
            return f"array<{inner}>"
        if function in ("map", "multimap"):
            value = self.element_type(lists[1])
            return value and f"map<{inner},{value if function == 'map' else f'array<{value}>'}>"
        return inner if not function.startswith("sum") or inner in ("bigint", "double") else None

    def full_type(self, node: Node) -> str | None:
        """Return the Spark type of a value, a register or a fold, where it is plain to see."""
        if node.op == "place":
            return self.element_type(node.args[0])
        if node.op == "fold":
            return self._fold_type(node.of, node.args)
        if node.op == "value":
            known = None if self.schema is None else self.values[node.of]
            return None if known is None else expressions.type_of(known, self.schema or Schema(()))
        register = self.registers[node.of] if node.op == "register" else None
        if register is None or register.value is None or register.function == "count":
            return "bigint" if register is not None else None
        inner = self.full_type(Node("value", of=register.value))
        if register.function == "avg":
            return "double"
        return None if register.function == "sum" and inner != "double" else inner


def placed(known: list[Any], one: Any) -> int:
    """Return the place of something in a list, at the end of which it is put if need be."""
    if one not in known:
        known.append(one)
    return known.index(one)


def kind_of(type_: str | None) -> str | None:
    """Return the coarse kind of a Spark type."""
    if type_ is None:
        return None
    if type_.split("(")[0] in _NUMBERS:
        return "number"
    return {
        "string": "text",
        "timestamp": "time",
        "timestamp_ntz": "time",
        "boolean": "boolean",
        "date": "date",
    }.get(type_)


def _literal_kind(of: object) -> str | None:
    if isinstance(of, bool):
        return "boolean"
    if isinstance(of, int | float):
        return None  # a number, or a length of time
    return "text" if isinstance(of, str) else None
