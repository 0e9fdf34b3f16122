"""What conditions ask of every event that a run took, read into nodes over lists.

    COUNT(DISTINCT a.x), array_agg(x || CLASSIFIER()), FIRST(x, 2), PREV(CLASSIFIER())

An aggregate of a plain expression is a register that holds one thing; these are registers that hold
a list, and a fold of it. LABEL is a column in whose place the name of the block stands that took the
event; MATCH_NUMBER and PLACE are functions that stand for what SQL says in other words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from millstream.errors import FlowError, InvalidCondition, UnknownBlock
from millstream.patterns.history import MATCH_NUMBER, PART, Node, part_schema
from millstream.patterns.vocabulary import placed

if TYPE_CHECKING:
    from millstream.patterns.conditions import Reader

LABEL: Final = "__label"
NUMBER: Final = "__match_number"
#: One event: argument, "first" or "last", how many on from there, and a move over all events.
PLACE: Final = "__place"
#: What ends the names of min(x, n) and its like, which return the first few.
SOME: Final = "_some"
_FOLDS: Final[dict[type[exp.Expr], str]] = {
    exp.AnyValue: "any_value",
    exp.ArgMax: "max_by",
    exp.ArgMin: "min_by",
    exp.ArrayAgg: "list",
    exp.ArrayUniqueAgg: "set",
    exp.CountIf: "count_if",
    exp.GroupConcat: "join",
    exp.LogicalAnd: "every",
    exp.Median: "median",
    exp.Stddev: "stddev",
    exp.StddevSamp: "stddev",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "variance",
    exp.VariancePop: "variance_pop",
}
_NAMED: Final = {
    "arbitrary": "any_value",
    "array_distinct_agg": "set",
    "every": "every",
    **{f"__{name}{SOME}": f"{name}{SOME}" for name in ("max", "max_by", "min", "min_by")},
    "map_agg": "map",
    "map_union": "map_union",
    "multimap_agg": "multimap",
}
_DISTINCT: Final = {"count": "count_distinct", "list": "set", "sum": "sum_distinct"}


def is_gathered(node: exp.Expr) -> bool:
    """Tell whether a node is about the events that were taken, and no plain aggregate of ours."""
    if isinstance(node, exp.AggFunc | exp.Filter):
        return True
    if isinstance(node, exp.Column):
        return node.name == LABEL
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name in (NUMBER, PLACE) or name in _NAMED


def gathered(reader: Reader, tree: exp.Expr) -> Node | None:
    """Return the node of what is asked of every event; None for what a plain register holds."""
    from millstream.patterns.further import unfiltered

    if isinstance(tree, exp.Filter):
        return reader.node(unfiltered(tree))
    name = tree.name.lower() if isinstance(tree, exp.Anonymous) else ""
    if name == NUMBER:
        return Node("value", of=reader.words.value(MATCH_NUMBER))
    if name == PLACE:
        return _place(reader, tree)
    function, arguments = _fold(tree)
    if function is None:
        return None
    count = arguments.pop() if function.endswith(SOME) else None
    if isinstance(arguments[0], exp.Distinct):
        if function not in _DISTINCT or len(arguments[0].expressions) != 1:
            fact = f'asks for "{_sql(tree)}", which takes no DISTINCT'
            raise reader.owner.mistake(InvalidCondition, fact, hint="leave DISTINCT out")
        function, arguments = _DISTINCT[function], arguments[0].expressions
    blocks = reader.blocks_in(_all_of(arguments), tree)
    lists = [_listed(reader, one, blocks) for one in arguments]
    beside = tree.args.get("separator") or count
    extra = () if beside is None else (reader.node(beside),)
    return Node("fold", (*lists, *extra), function)


def _fold(tree: exp.Expr) -> tuple[str | None, list[exp.Expr]]:
    """Return the name of the fold that a tree is, and what it is about; no name for others."""
    from millstream.patterns.conditions import function_of

    if isinstance(tree, exp.Anonymous) and tree.name.lower() in _NAMED:
        return _NAMED[tree.name.lower()], list(tree.expressions)
    function: str | None = _FOLDS.get(type(tree))
    arguments = [tree.this, tree.expression] if function in ("max_by", "min_by") else [tree.this]
    if function is None and (plain := function_of(tree)) is not None:
        argument = tree.expressions[0] if isinstance(tree, exp.Anonymous) else tree.this
        many = isinstance(argument, exp.Distinct) or any(map(_special, argument.walk()))
        return (plain, [argument]) if many else (None, [])
    return function, arguments


def _special(node: exp.Expr) -> bool:
    """Tell whether a node is not computed of the event alone."""
    if isinstance(node, exp.Column):
        return node.name == LABEL
    return isinstance(node, exp.Anonymous) and node.name.lower() == NUMBER


def _all_of(arguments: list[exp.Expr]) -> exp.Expr:
    return arguments[0] if len(arguments) == 1 else exp.Tuple(expressions=arguments)


def _place(reader: Reader, tree: exp.Expr) -> Node:
    argument, end, back, shift = tree.expressions
    blocks = reader.blocks_in(argument, tree)
    every = frozenset().union(*reader.words.blocks.values())
    among = every if any(map(_special, argument.walk())) or int(shift.name) else blocks
    labels = Node("register", of=reader.words.register("labels", among, None))
    asked = tuple(sorted(blocks)), end.name == "last", int(back.name), int(shift.name)
    return Node("place", (_listed(reader, argument, among), labels), asked)


def _listed(reader: Reader, argument: exp.Expr, blocks: frozenset[int]) -> Node:
    """Return the list of what an expression is for each event that some blocks took."""
    words = reader.words
    plain = reader.unqualified(argument)
    _check_labels(reader, plain)
    reader.check_columns(plain)
    if not any(map(_special, plain.walk())):
        value = words.value(_sql(plain))
        return Node("register", of=words.register("list", blocks, value))
    parts: list[Node] = []

    def change(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) and not _special(node):
            return node
        return exp.column(PART.format(placed(parts, part(node))))

    def labels() -> Node:
        taken = Node("register", of=words.register("labels", blocks, None))
        return Node("named", (taken,), tuple(words.labels))

    def part(node: exp.Expr) -> Node:
        if not isinstance(node, exp.Column):
            return Node("value", of=words.value(MATCH_NUMBER))
        if node.name == LABEL:
            return labels()
        return Node("register", of=words.register("list", blocks, words.value(_sql(node))))

    text = _sql(plain.transform(change))
    if text == PART.format(0) and parts[0].op == "named":
        return parts[0]
    if all(one.op == "value" for one in parts):
        # What is the same for all events is there as often as there are events.
        parts.append(labels())
    types = tuple(words.element_type(one) for one in parts)
    _check_computed(reader, argument, text, types)
    return Node("each", tuple(parts), (tuple(one.op != "value" for one in parts), text, *types))


def _check_labels(reader: Reader, plain: exp.Expr) -> None:
    """Refuse CLASSIFIER(u) of a variable that is not known."""
    for column in plain.find_all(exp.Column):
        if column.name == LABEL and column.table:
            fact = f'asks for "CLASSIFIER({column.table})", and has no variable "{column.table}"'
            hint = f"its variables are {', '.join(reader.words.blocks)}"
            raise reader.owner.mistake(UnknownBlock, fact, hint=hint)


def _check_computed(
    reader: Reader, argument: exp.Expr, text: str, types: tuple[str | None, ...]
) -> None:
    """Refuse an expression of every event that Python does not compute."""
    from millstream.patterns.scalar.function import scalar

    try:
        scalar(text, part_schema(types))
    except FlowError as error:
        fact = f'uses "{_sql(argument)}" of every event, which Python does not compute'
        raise reader.owner.mistake(InvalidCondition, fact, hint=error.hint) from None


def _sql(tree: exp.Expr) -> str:
    return tree.sql(dialect="spark")
