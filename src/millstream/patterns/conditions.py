"""Conditions: what of them SQL can tell of the event alone, and what looks at the history of a run.

`delay > 60 and delay > late.delay` becomes a *test* with two parts: `delay > 60`, which Spark
computes for every event and hands on as a bit, and a small tree over the value `delay` and the
register last(late.delay), which the automaton evaluates, and only where the bit is set. A reference
to a block means its last event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from millstream.errors import (
    ConditionFailed,
    FlowError,
    InvalidCondition,
    PatternError,
    UnknownBlock,
    UnknownColumn,
    Where,
)
from millstream.flow import expressions
from millstream.flow.schema import Schema
from millstream.flow.site import meant
from millstream.patterns.blocks import Condition, Predicate, takes
from millstream.patterns.gathered import LABEL, gathered, is_gathered
from millstream.patterns.history import (
    COMPARISONS,
    PART,
    Function,
    Node,
    part_schema,
)
from millstream.patterns.literals import literal
from millstream.patterns.vocabulary import Vocabulary, kind_of, placed

_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "and",
    exp.Or: "or",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_UNARY: dict[type[exp.Expr], str] = {exp.Not: "not", exp.Neg: "neg", exp.Abs: "abs"}
_AGGREGATES: dict[type[exp.Expr], Function] = {
    exp.First: "first",
    exp.FirstValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.Any: "any",
    exp.LogicalOr: "any",
}
#: SQL's LAST with an offset: Spark's second argument means something else.
LAST_BACK = "__last_back"
_ANONYMOUS: dict[str, Function] = {"any": "any", "some": "any", "bool_or": "any", LAST_BACK: "last"}
#: How values begin that are not computed of the event: what another value was some rows before.
EARLIER = "__prev"
_ARITHMETIC = ("+", "-", "*", "/", "%", "div")
#: What takes several things of one kind.
_ALIKE = ("in", "coalesce", "least", "greatest")
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_INCOMPARABLE = [
    {"number", "text"},
    {"number", "boolean"},
    {"text", "boolean"},
    {"number", "time"},
    {"number", "date"},
]


@dataclass(frozen=True, slots=True)
class Test:
    """What is true or not of an event and a run: all of its parts that are there.

    Attributes:
        label: The condition as its user wrote it.
        event: Spark SQL over the event alone; None if there is nothing to ask of it.
        history: What the automaton evaluates.
        functions: Python predicates, of which any must hold: each of (event, history).
        alone: Python predicates of the event alone, of which any must hold: they are asked once for
            each event.
    """

    __test__ = False  # not one of pytest's

    label: str
    event: str | None = None
    history: Node | None = None
    functions: tuple[Predicate, ...] = ()
    alone: tuple[Predicate, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the event alone decides."""
        return self.history is None and not self.functions


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a condition is, for the text of mistakes."""

    title: str
    where: Where | None = None

    def mistake(self, error: type[FlowError], fact: str, *, hint: str | None = None) -> FlowError:
        return error(f"{self.title} {fact}", hint=hint, where=self.where)


def test_of(conditions: Sequence[Condition], words: Vocabulary, owner: Owner) -> Test | None:
    """Return the test that any of `conditions` holds; None without conditions: all events pass."""
    if not conditions:
        return None
    texts = [one for one in conditions if isinstance(one, str)]
    functions = tuple(one for one in conditions if not isinstance(one, str))
    if texts and functions:
        hint = "use functions alone, or make alternatives: Pattern.either(...)"
        fact = "has SQL and Python conditions in one list"
        raise owner.mistake(InvalidCondition, fact, hint=hint)
    if functions:
        label = " or ".join(_function_name(one) for one in functions)
        asked = tuple(Asked(one, owner.title, looks_back=takes(one, 2)) for one in functions)
        if any(one.looks_back for one in asked):
            return Test(label, functions=asked)
        return Test(label, alone=asked)
    return read_test(label_of(texts), words, owner)


def label_of(texts: Sequence[str]) -> str:
    """Return the one condition that any of several is met."""
    return texts[0] if len(texts) == 1 else " OR ".join(f"({text})" for text in texts)


def _function_name(function: Callable[..., object]) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}()"


@dataclass(frozen=True, slots=True)
class Asked:
    """A Python predicate and who asks it, for the text of its failures."""

    function: Predicate
    title: str
    looks_back: bool

    def __call__(
        self, event: dict[str, Any], history: dict[str, list[dict[str, Any]]] | None = None
    ) -> bool:
        """Return what the function says of an event, and of the history if it looks at that.

        Raises:
            ConditionFailed: It raised an error.
        """
        try:
            return bool(self.function(event, history) if self.looks_back else self.function(event))
        except Exception as error:
            fact = f"the predicate {_function_name(self.function)} of {self.title} failed with {type(error).__name__}: {error}"
            hint = f"the event was {event}; let it return False where it cannot tell"
            raise ConditionFailed(fact, hint=hint) from error


def read_test(text: str, words: Vocabulary, owner: Owner) -> Test:
    """Return the test that a Spark SQL condition stands for."""
    try:
        return _read_test(text, Reader(words, owner))
    except FlowError as error:
        if error.where is not None:
            raise
        fact = f"has a wrong condition: {error.message}"
        raise owner.mistake(type(error), fact, hint=error.hint) from None


def _read_test(text: str, reader: Reader) -> Test:
    tree = expressions.expression(text)
    reader.check_boolean(tree, text)
    event: list[exp.Expr] = []
    history: list[exp.Expr] = []
    for part in _conjuncts(tree):
        reader.check_boolean(part, part.sql(dialect="spark"))
        (history if reader.historic(part) else event).append(part)
    for part in event:
        reader.check_columns(part)
        reader.check_kinds(part)
    nodes = tuple(reader.truth(part) for part in history)
    event_sql = " AND ".join(
        f"({part.sql(dialect='spark')})" if len(event) > 1 else part.sql(dialect="spark")
        for part in event
    )
    node = None if not nodes else nodes[0] if len(nodes) == 1 else Node("and", nodes)
    return Test(text, event_sql or None, node)


def _conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(tree, exp.Paren):
        yield from _conjuncts(tree.this)
    elif isinstance(tree, exp.And):
        yield from _conjuncts(tree.this)
        yield from _conjuncts(tree.expression)
    else:
        yield tree


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads SQL trees into nodes, with the words of one pattern."""

    words: Vocabulary
    owner: Owner

    def historic(self, tree: exp.Expr) -> bool:
        """Tell whether a tree looks at more than the event."""
        if any(True for _ in self.references(tree)) or any(
            function_of(node) or is_gathered(node) for node in tree.walk()
        ):
            return True
        return any(column.name.startswith(EARLIER) for column in tree.find_all(exp.Column))

    def references(self, tree: exp.Expr) -> Iterator[exp.Column]:
        """Yield the columns that belong to blocks."""
        for node in tree.find_all(exp.Column):
            if len(node.parts) > 1 and node.parts[0].name.lower() in self.words.blocks:
                yield node

    def node(self, tree: exp.Expr) -> Node:
        """Return a tree that looks at the history, as nodes."""
        if isinstance(tree, exp.Paren):
            return self.node(tree.this)
        if (constant := literal(tree)) is not None:
            return constant
        if isinstance(tree, exp.Array):
            return Node("array", tuple(self.node(one) for one in tree.expressions))
        if not self.historic(tree):
            self.check_columns(tree)
            return Node("value", of=self.words.value(tree.sql(dialect="spark")))
        if (found := gathered(self, tree)) is not None:
            return found
        if (function := function_of(tree)) is not None:
            return self._aggregate(function, tree)
        if isinstance(tree, exp.Column) and tree.name == LABEL:
            fact = "has CLASSIFIER() inside of a function that is no aggregate here"
            raise self.owner.mistake(InvalidCondition, fact, hint="use array_agg(CLASSIFIER())")
        if isinstance(tree, exp.Column) and len(tree.parts) == 1:
            return Node("value", of=self.words.value(tree.name))
        if isinstance(tree, exp.Column):
            blocks, column = self.column_of(tree)
            return self._register("last", blocks, column)
        return self._checked(self._operator(tree), tree)

    def truth(self, tree: exp.Expr) -> Node:
        """Return a tree that looks at the history and is true or false, as nodes."""
        node = self.node(tree)
        self._check_truths(Node("not", (node,)), tree)
        return node

    def _operator(self, tree: exp.Expr) -> Node:
        if type(tree) in _BINARY:
            return Node(_BINARY[type(tree)], (self.node(tree.this), self.node(tree.expression)))
        if type(tree) in _UNARY:
            return Node(_UNARY[type(tree)], (self.node(tree.this),))
        match tree:
            case exp.Is() if isinstance(tree.expression, exp.Null):
                return Node("is null", (self.node(tree.this),))
            case exp.Between():
                this = self.node(tree.this)
                low, high = self.node(tree.args["low"]), self.node(tree.args["high"])
                return Node("and", (Node(">=", (this, low)), Node("<=", (this, high))))
            case exp.In() if tree.expressions:
                return Node("in", tuple(self.node(one) for one in (tree.this, *tree.expressions)))
            case exp.Coalesce() | exp.Least() | exp.Greatest():
                return Node(
                    tree.key, tuple(self.node(one) for one in (tree.this, *tree.expressions))
                )
            case exp.If() | exp.Case():
                return self._case(tree)
        if (found := self._computed(tree)) is not None:
            return found
        fact = f'uses "{_sql(tree)}" over the history, which only Spark could compute'
        hint = "compute it in a column before the pattern, or give a Python predicate"
        raise self.owner.mistake(InvalidCondition, fact, hint=hint)

    def _computed(self, tree: exp.Expr) -> Node | None:
        """Return a function over the history that Python computes as Spark does; None if it cannot."""
        from millstream.patterns.scalar.function import scalar

        parts: list[Node] = []

        def change(node: exp.Expr) -> exp.Expr:
            if (
                not isinstance(node, exp.Column)
                and function_of(node) is None
                and not is_gathered(node)
            ):
                return node
            return exp.column(PART.format(placed(parts, self.node(node))))

        text = tree.copy().transform(change).sql(dialect="spark")
        types = tuple(self.words.full_type(part) for part in parts)
        try:
            scalar(text, part_schema(types))
        except FlowError:
            return None
        return Node("sql", tuple(parts), (text, *types))

    def _case(self, tree: exp.Expr) -> Node:
        branches = tree.args.get("ifs") or [tree]
        default = tree.args.get("default") or tree.args.get("false")
        subject = tree.this if isinstance(tree, exp.Case) else None
        args: list[Node] = []
        for branch in branches:
            test = self.node(branch.this)
            args.append(test if subject is None else Node("=", (self.node(subject), test)))
            args.append(self.node(branch.args["true"]))
        return Node("case", (*args, Node("literal") if default is None else self.node(default)))

    def _checked(self, node: Node, tree: exp.Expr) -> Node:
        """Refuse a comparison of things that are of different kinds, and arithmetic with text."""
        self._check_truths(node, tree)
        if node.op in _ALIKE:
            kinds = [kind for kind in map(self.words.type_of, node.args) if kind is not None]
            if kinds and (other := next((k for k in kinds if k != kinds[0]), None)) is not None:
                raise self._incomparable(kinds[0], other, tree)
        if node.op in COMPARISONS or node.op in _ARITHMETIC:
            left, right = (self.words.type_of(arg) for arg in node.args)
            if node.op in _ARITHMETIC and "text" in (left, right):
                fact = f'calculates with text: "{_sql(tree)}"'
                hint = "cast it to a number in a column before"
                raise self.owner.mistake(InvalidCondition, fact, hint=hint)
            if node.op in COMPARISONS and left is not None and right is not None and left != right:
                raise self._incomparable(left, right, tree)
        return node

    def _check_truths(self, node: Node, tree: exp.Expr) -> None:
        """Refuse "and", "or" and "not" of what is plainly neither true nor false."""
        asked = node.args if node.op in ("and", "or", "not") else ()
        if node.op == "case":
            asked = node.args[:-1:2]
        for one in asked:
            kind = self.words.type_of(one)
            if kind not in (None, "boolean"):
                fact = f'takes {_a(kind)} for true or false in "{_sql(tree)}"'
                raise self.owner.mistake(InvalidCondition, fact, hint="compare it with something")

    def _incomparable(self, left: str, right: str, tree: exp.Expr) -> FlowError:
        fact = f'compares a {left} with a {right}: "{_sql(tree)}"'
        return self.owner.mistake(InvalidCondition, fact, hint="cast one of them")

    def check_kinds(self, tree: exp.Expr) -> None:
        """Refuse a comparison of columns for which Spark would have to guess what a text means."""
        if self.words.schema is None:
            return
        for node in tree.find_all(*_COMPARED, exp.In, exp.Between):
            left = self._kind(node.this)
            for other in _others(node):
                if {left, right := self._kind(other)} in _INCOMPARABLE:
                    raise self._incomparable(str(left), str(right), node)

    def _kind(self, tree: exp.Expr) -> str | None:
        """Return the coarse kind of a part about the event alone; a literal text may be a time."""
        if isinstance(tree, exp.Literal) and not tree.is_string:
            return "number"
        return kind_of(expressions.type_in(tree, self.words.schema or Schema(())))

    def _aggregate(self, function: Function, tree: exp.Expr) -> Node:
        argument = argument_of(tree)
        blocks = self.blocks_in(argument, tree)
        if isinstance(argument, exp.Star) or isinstance(getattr(argument, "this", None), exp.Star):
            if function != "count":
                hint = "only count() takes a *"
                raise self.owner.mistake(InvalidCondition, f'asks for "{_sql(tree)}"', hint=hint)
            return Node("register", of=self.words.register("count", blocks, None))
        self.check_summed(function, self.unqualified(argument), tree)
        return self._register(function, blocks, self.unqualified(argument), _back(tree))

    def check_summed(self, function: str, argument: exp.Expr, tree: exp.Expr) -> None:
        """Refuse a sum or an average of what is plainly no number."""
        kind = None if self.words.schema is None else self._kind(argument)
        if function in ("sum", "avg") and kind not in (None, "number"):
            fact = f'asks for "{_sql(tree)}", and "{_sql(argument)}" is {_a(kind)} and no number'
            hint = "count it, or cast it in a column before"
            raise self.owner.mistake(InvalidCondition, fact, hint=hint)

    def blocks_in(self, argument: exp.Expr, tree: exp.Expr) -> frozenset[int]:
        """Return the blocks that the argument of an aggregate is about; all, if it names none."""
        self._check_counted(argument, tree)
        named = {column.parts[0].name.lower() for column in self.references(argument)}
        if len(named) > 1:
            fact = f'mixes the blocks {", ".join(sorted(named))} in "{_sql(tree)}"'
            hint = "one aggregate is about one block"
            raise self.owner.mistake(InvalidCondition, fact, hint=hint)
        plain = [
            name
            for name, node in expressions.columns_in(argument)
            if node not in list(self.references(argument))
        ]
        if named and plain:
            fact = f'mixes column "{plain[0]}" of the event with block "{named.pop()}" in "{_sql(tree)}"'
            hint = "an aggregate is about the columns of one block"
            raise self.owner.mistake(InvalidCondition, fact, hint=hint)
        every = frozenset().union(*self.words.blocks.values())
        return self.words.blocks[named.pop()] if named else every

    def _check_counted(self, argument: exp.Expr, tree: exp.Expr) -> None:
        """Refuse to count the events of a block that is not known."""
        if not isinstance(argument, exp.Column) or not isinstance(argument.this, exp.Star):
            return
        name = argument.parts[0].name
        if name.lower() not in self.words.blocks:
            fact = f'asks for "{_sql(tree)}", and "{name}" is no block that it can look at'
            hint = f"it can look at {', '.join(self.words.blocks)}" if self.words.blocks else None
            raise self.owner.mistake(UnknownBlock, fact, hint=hint)

    def _register(
        self, function: Function, blocks: frozenset[int], argument: exp.Expr, back: int = 0
    ) -> Node:
        self.check_columns(argument)
        value = self.words.value(argument.sql(dialect="spark"))
        return Node("register", of=self.words.register(function, blocks, value, back))

    def column_of(self, column: exp.Column) -> tuple[frozenset[int], exp.Expr]:
        """Return the blocks and the plain column of a reference like late.delay."""
        return self.words.blocks[column.parts[0].name.lower()], self.unqualified(column)

    def unqualified(self, tree: exp.Expr) -> exp.Expr:
        """Return a copy of a tree in which the columns have lost the names of their blocks."""

        def strip(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and len(node.parts) > 1:
                first, *rest = node.parts
                if first.name.lower() in self.words.blocks and not isinstance(node.this, exp.Star):
                    return _column([part.copy() for part in rest])
            return node

        return tree.copy().transform(strip)

    def check_columns(self, tree: exp.Expr) -> None:
        """Refuse columns that the events do not have."""
        schema = self.words.schema
        if schema is None:
            return
        for name, node in expressions.columns_in(tree):
            if schema.find(name) is not None or name.startswith(EARLIER) or name == LABEL:
                continue
            qualified = isinstance(node, exp.Column) and len(node.parts) > 1
            if qualified and (close := get_close_matches(name.lower(), self.words.blocks, n=1)):
                fact = f'looks at "{_sql(node)}", and "{name}" is no block that it can look at'
                raise self.owner.mistake(UnknownBlock, fact, hint=f'did you mean "{close[0]}"?')
            if qualified:
                fact = f'looks at "{_sql(node)}", and "{name}" is neither a block nor a column'
                hint = f"its blocks are {', '.join(self.words.blocks)}; its columns are {', '.join(schema.names)}"
                raise self.owner.mistake(UnknownBlock, fact, hint=hint)
            fact = f'reads column "{name}", which the events do not have'
            raise self.owner.mistake(UnknownColumn, fact, hint=meant(schema, name))

    def check_boolean(self, tree: exp.Expr, text: str) -> None:
        found = (
            expressions.type_in(tree, self.words.schema) if self.words.schema is not None else None
        )
        if isinstance(tree, exp.Boolean) and not tree.this:
            hint = "say which events it means, or leave it out"
            fact = f'has the condition "{text}", which no event meets'
            raise self.owner.mistake(InvalidCondition, fact, hint=hint)
        calculated = isinstance(tree, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod | exp.Neg)
        if (
            isinstance(tree, exp.Literal)
            or calculated
            or (found is not None and found != "boolean")
        ):
            kind = found or ("a number" if calculated else "a literal")
            fact = f'has the condition "{text}", which is {kind} and not true or false'
            raise self.owner.mistake(InvalidCondition, fact, hint="compare it with something")


def _others(node: exp.Expr) -> list[exp.Expr]:
    """Return what the left side of a comparison is compared with."""
    if isinstance(node, exp.In):
        return list(node.expressions)
    if isinstance(node, exp.Between):
        return [node.args["low"], node.args["high"]]
    return [node.expression]


def _column(parts: list[exp.Expr]) -> exp.Expr:
    """Return the column that these parts name, outermost first."""
    names = ["this", "table", "db", "catalog"]
    return exp.Column(**dict(zip(names, reversed(parts), strict=False)))


def function_of(node: exp.Expr) -> Function | None:
    """Return which of our aggregates a node is."""
    if isinstance(node, exp.Anonymous):
        return _ANONYMOUS.get(node.name.lower())
    return _AGGREGATES.get(type(node))


def _back(tree: exp.Expr) -> int:
    """Return how many events before the last are meant."""
    if isinstance(tree, exp.Anonymous) and tree.name.lower() == LAST_BACK:
        return int(tree.expressions[1].name)
    return 0


def argument_of(tree: exp.Expr) -> exp.Expr:
    """Return what an aggregate is about."""
    found = tree.expressions[0] if isinstance(tree, exp.Anonymous) else tree.this
    while isinstance(found, exp.Paren | exp.IgnoreNulls):
        found = found.this
    if isinstance(found, exp.Distinct):
        msg = f'"{_sql(tree)}" has DISTINCT, which is for COUNT and lists alone'
        raise PatternError(msg, hint="leave DISTINCT out")
    return found  # type: ignore[no-any-return]


def _a(kind: str | None) -> str:
    return "text" if kind == "text" else f"a {kind}"


def _sql(tree: exp.Expr) -> str:
    return tree.sql(dialect="spark")
