"""The PATTERN of a MATCH_RECOGNIZE clause, read into blocks.

    A B+? (C | D){2,3} {- E -} PERMUTE(F, G)

Rows follow each other directly, so every block is strict; a quantifier is greedy unless a "?"
follows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

from millstream.errors import FlowError, UnsupportedSql
from millstream.flow.site import here
from millstream.patterns.blocks import Block, Condition

_TOKEN = re.compile(r"\s*(\{-|-\}|[A-Za-z_][A-Za-z0-9_]*|`[^`]+`|\"[^\"]+\"|\d+|[()|*+?{},^$])")
#: How many parts of a PERMUTE are written out in all orders, and how many it may have.
_WRITTEN_OUT, _MOST_PERMUTED = 5, 8
#: What stands for the first and for the last row of a partition.
ANCHORS = ("^", "$")
Mistake = Callable[[type[FlowError], str, str], FlowError]


def read_row_pattern(
    text: str, define: dict[str, Condition], mistake: Mistake, *, batch: bool = False
) -> tuple[Block, ...]:
    """Return the blocks of a row pattern; `define` maps lower-case names to conditions.

    In a batch it may have anchors, which are negated blocks: they take no row.
    """
    reader = _Reader(text, define, mistake, batch)
    blocks = reader.alternation()
    if reader.next:
        raise mistake(
            UnsupportedSql,
            f'has "{reader.next}" where the PATTERN should end',
            "check the parentheses",
        )
    return blocks


class _Reader:
    def __init__(
        self, text: str, define: dict[str, Condition], mistake: Mistake, batch: bool
    ) -> None:
        self.define, self.mistake, self.batch = define, mistake, batch
        self.tokens = self._tokens(text)
        self.at = 0
        self.shown = True

    def _tokens(self, text: str) -> list[str]:
        found, at = [], 0
        while at < len(text.rstrip()):
            token = _TOKEN.match(text, at)
            if token is None:
                fact = f'has a PATTERN that cannot be read at "{text[at:].strip()}"'
                raise self.mistake(UnsupportedSql, fact, _HINT)
            found.append(token[1])
            at = token.end()
        return found

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str) -> bool:
        found = self.next.upper() == token
        self.at += found
        return found

    def expect(self, token: str) -> None:
        if not self.take(token):
            fact = f'has "{self.next or "the end"}" in its PATTERN where "{token}" should be'
            raise self.mistake(UnsupportedSql, fact, _HINT)

    def alternation(self) -> tuple[Block, ...]:
        branches = [self.concatenation()]
        while self.take("|"):
            branches.append(self.concatenation())
        if len(branches) == 1:
            return branches[0]
        return (Block("", "strict", body=tuple(branches), inner="strict"),)

    def concatenation(self) -> tuple[Block, ...]:
        blocks: list[Block] = []
        while self.next and self.next not in ("|", ")", "-}", ","):
            blocks.append(self.quantified(self.primary()))
        if not blocks:
            fact = "has an empty part in its PATTERN"
            raise self.mistake(UnsupportedSql, fact, "a match has at least one row")
        return tuple(blocks)

    def primary(self) -> Block:
        if self.batch and self.next in ANCHORS:
            self.at += 1
            return Block(self.tokens[self.at - 1], "strict", negated=True)
        if self.next in ANCHORS:
            if self.next == "$":
                why = "a stream has no last row"
            else:
                why = "a stream does not remember where it began"
            fact = f'has the anchor "{self.next}" in its PATTERN'
            raise self.mistake(UnsupportedSql, fact, f"{why}: leave it out")
        if self.batch and self.tokens[self.at : self.at + 2] == ["(", ")"]:
            self.at += 2
            return Block("", "strict", body=((),), inner="strict")
        if self.take("("):
            inside = self.alternation()
            self.expect(")")
            return _grouped(inside)
        if self.take("{-"):
            before, self.shown = self.shown, False
            inside = self.alternation()
            self.shown = before
            self.expect("-}")
            return _grouped(inside)
        if self.next.upper() == "PERMUTE" and self.tokens[self.at + 1 : self.at + 2] == ["("]:
            return self.permute()
        return self.variable()

    def variable(self) -> Block:
        name = self.next.strip('`"')
        quoted = name != self.next
        if not name or not (quoted or name[0].isalpha() or name[0] == "_"):
            fact = f'has "{self.next}" in its PATTERN where a variable should be'
            raise self.mistake(UnsupportedSql, fact, _HINT)
        self.at += 1
        condition = self.define.get(name.lower())
        tests = () if condition is None else (condition,)
        return Block(name, "strict", tests, inner="strict", shown=self.shown, where=here())

    def permute(self) -> Block:
        self.at += 2
        parts = [self.alternation()]
        while self.take(","):
            parts.append(self.alternation())
        self.expect(")")
        if len(parts) > _MOST_PERMUTED:
            fact = f"permutes {len(parts)} parts, which is more than {_MOST_PERMUTED}"
            raise self.mistake(
                UnsupportedSql,
                fact,
                "all orders are tried: write those that you need as alternatives",
            )
        if self.batch or len(parts) > _WRITTEN_OUT:
            # Runs of streams are kept by the numbers of blocks, so these stay as they were.
            return _grouped(_permuted(parts, tuple(range(len(parts))), {}))
        orders = tuple(
            tuple(_fresh(block) for part in order for block in part)
            for order in permutations(parts)
        )
        return Block("", "strict", body=orders, inner="strict")

    def quantified(self, block: Block) -> Block:
        before = self.at
        least, most = self.bounds()
        if block.negated:
            # An anchor takes no row: it is met once or, if it need not be, makes no difference.
            self.take("?")
            return block if least else Block("", "strict", body=((),), inner="strict")
        preference = "reluctant" if self.at > before and self.take("?") else "fork"
        if (least, most) == (1, 1):
            return block
        if block.loops or block.optional:
            block = Block("", "strict", body=((block,),), inner="strict")
        optional = least == 0
        return replace(
            block,
            least=max(1, least),
            most=most,
            optional=optional,
            preference=preference,  # type: ignore[arg-type]
        )

    def bounds(self) -> tuple[int, int | None]:
        for token, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(token):
                return found
        if not self.take("{"):
            return 1, 1
        least = self.number()
        most = least
        if self.take(","):
            most = self.number()
            least = 0 if least is None else least
        self.expect("}")
        if least is None or (most is not None and (most < least or most < 1)):
            fact = "has a quantifier that counts nothing"
            raise self.mistake(UnsupportedSql, fact, "write {2}, {2,}, {,3} or {2,3}")
        return least, most

    def number(self) -> int | None:
        if not self.next.isdigit():
            return None
        self.at += 1
        return int(self.tokens[self.at - 1])


_HINT = "write variables, ( ), |, *, +, ?, {n,m}, {- -} and PERMUTE"


def _grouped(inside: tuple[Block, ...]) -> Block:
    return inside[0] if len(inside) == 1 else Block("", "strict", body=(inside,), inner="strict")


def _permuted(
    parts: Sequence[tuple[Block, ...]],
    rest: tuple[int, ...],
    known: dict[tuple[int, ...], tuple[Block, ...]],
) -> tuple[Block, ...]:
    """Return some parts in every order; what is left behind the same parts is the same block."""
    if len(rest) == 1:
        return parts[rest[0]]
    if rest not in known:
        orders = tuple(
            (*parts[one], *_permuted(parts, tuple(other for other in rest if other != one), known))
            for one in rest
        )
        known[rest] = (Block("", "strict", body=orders, inner="strict"),)
    return known[rest]


def _fresh(block: Block) -> Block:
    """Return a copy of a block: each place in a pattern is a block of its own."""
    return replace(
        block, body=tuple(tuple(_fresh(one) for one in sequence) for sequence in block.body)
    )


# How long a match is


def least_rows(block: Block) -> int:
    """Return how many rows a block takes at least."""
    if block.nullable:
        return 0
    once = min((sum(map(least_rows, sequence)) for sequence in block.body), default=1)
    return block.least * once


def rows_behind(
    blocks: Sequence[Block], leaves: Sequence[Block], wanted: frozenset[int]
) -> int | None:
    """Return the fewest rows that come behind a row of the wanted leaves; None without such."""
    found: list[int] = []
    behind = 0
    for block in reversed(blocks):
        inside = [rows_behind(sequence, leaves, wanted) for sequence in block.body]
        if not block.body and any(block is leaves[number] for number in wanted):
            inside = [0]
        found += [behind + one for one in inside if one is not None]
        behind += least_rows(block)
    return min(found, default=None)
