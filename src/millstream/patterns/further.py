"""Further aggregates of outputs: those that SQL computes from the list of what they are about.

max_by(x, y) is made of a list of pairs, stddev(x) of a list of numbers; the lists are pieces like
any other. Their functions are those of Spark, with its rules for missing values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from millstream.flow import expressions
from millstream.patterns.conditions import function_of
from millstream.patterns.gathered import SOME

Listed = Callable[[exp.Expr], str]
"""Returns the column of the list of what an expression is for each event."""

_WELFORD: Final = (
    "aggregate(array_compact({list}), named_struct('n', 0D, 'mean', 0D, 'off', 0D), (a, x) -> "
    "named_struct('n', a.n + 1, 'mean', a.mean + (x - a.mean) / (a.n + 1), "
    "'off', a.off + (x - a.mean) * (x - a.mean) * a.n / (a.n + 1)), a -> {end})"
)
_SAMPLE, _ALL = "if(a.n > 1, {}, null)", "if(a.n > 0, {}, null)"
#: SQL over the list of the argument.
_OF_LISTS: Final[dict[type[exp.Expr], str]] = {
    exp.AnyValue: "try_element_at(array_compact({list}), 1)",
    exp.ArrayUniqueAgg: "array_distinct(array_compact({list}))",
    exp.CountIf: "cast(size(filter({list}, x -> x)) as bigint)",
    exp.LogicalAnd: "if(size(array_compact({list})) = 0, null, forall(array_compact({list}), x -> x))",
    exp.Median: (
        "aggregate(array(array_sort(array_compact({list}))), cast(null as double), (a, s) -> "
        "if(size(s) = 0, null, (s[(size(s) - 1) div 2] + s[size(s) div 2]) / 2))"
    ),
    exp.Stddev: _WELFORD.replace("{end}", _SAMPLE.format("sqrt(a.off / (a.n - 1))")),
    exp.StddevSamp: _WELFORD.replace("{end}", _SAMPLE.format("sqrt(a.off / (a.n - 1))")),
    exp.StddevPop: _WELFORD.replace("{end}", _ALL.format("sqrt(a.off / a.n)")),
    exp.Variance: _WELFORD.replace("{end}", _SAMPLE.format("a.off / (a.n - 1)")),
    exp.VariancePop: _WELFORD.replace("{end}", _ALL.format("a.off / a.n")),
}
#: The same over lists of pairs (k, v).
_OF_PAIRS: Final[dict[type[exp.Expr], str]] = {
    exp.ArgMax: "array_max(filter({list}, x -> x.k IS NOT NULL)).v",
    exp.ArgMin: "array_min(filter({list}, x -> x.k IS NOT NULL)).v",
}
#: The first few, in order: behind them is how many.
_OF_SOME: Final = {
    f"__min{SOME}": "slice(sort_array(array_compact({list})), 1, {count})",
    f"__max{SOME}": "slice(sort_array(array_compact({list}), false), 1, {count})",
    f"__min_by{SOME}": "transform(slice(sort_array(filter({list}, x -> x.k IS NOT NULL)), 1, {count}), x -> x.v)",
    f"__max_by{SOME}": (
        "transform(slice(sort_array(filter({list}, x -> x.k IS NOT NULL), false), 1, {count}), x -> x.v)"
    ),
}
_KEYS: Final = "array_distinct(transform(filter({list}, x -> x.k IS NOT NULL), x -> x.k))"
_OWN: Final = "transform(filter({list}, x -> x.k = k), x -> x.v)"
_MAP: Final = f"map_from_arrays({_KEYS}, transform({_KEYS}, k -> {_OWN}[0]))"
#: Maps of lists of pairs; in a union, the pairs are those of all maps.
_MAPS: Final = {
    "map_agg": _MAP,
    "multimap_agg": f"map_from_arrays({_KEYS}, transform({_KEYS}, k -> {_OWN}))",
    "map_union": _MAP,
}
_ENTRIES: Final = (
    "flatten(transform(array_compact({list}), m -> transform(map_entries(m), "
    "e -> named_struct('k', e.key, 'v', e.value))))"
)
#: Names of the functions above that sqlglot does not know.
_OTHER_NAMES: Final[dict[str, type[exp.Expr]]] = {
    "every": exp.LogicalAnd,
    "arbitrary": exp.AnyValue,
    "array_distinct_agg": exp.ArrayUniqueAgg,
}
#: Aggregates of Spark that sqlglot does not know, and neither do we.
_UNKNOWN: Final = (
    "bitmap_or_agg",
    "count_min_sketch",
    "histogram_numeric",
    "hll_sketch_agg",
    "product",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "try_avg",
    "try_sum",
)
KNOWN: Final = (
    "count, sum, avg, min, max, first, last, any, any_value, bool_and, collect_list, collect_set, "
    "count_if, listagg, map_agg, max_by, median, min_by, stddev and variance"
)


def gathers(node: exp.Expr) -> bool:
    """Tell whether a node is an aggregate of events, known to us or not."""
    if isinstance(node, exp.Filter | exp.IgnoreNulls | exp.AggFunc):
        return True
    if function_of(node) is not None:
        return True
    others = {*_OTHER_NAMES, *_MAPS, *_OF_SOME, *_UNKNOWN}
    return isinstance(node, exp.Anonymous) and node.name.lower() in others


_WITH_COUNT: Final[dict[type[exp.Expr], str]] = {
    exp.Min: "min",
    exp.Max: "max",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
}


def counted(node: exp.Expr) -> exp.Expr:
    """Return a function of ours for min(x, n) and its like: to Spark, and in its SQL, they are others."""
    if type(node) not in _WITH_COUNT:
        return node
    others = [node.args.get("expression"), *node.expressions, node.args.get("count")]
    arguments = [node.this, *(one for one in others if one is not None)]
    if len(arguments) == (3 if isinstance(node, exp.ArgMin | exp.ArgMax) else 2):
        return exp.Anonymous(this=f"__{_WITH_COUNT[type(node)]}{SOME}", expressions=arguments)
    return node


def further(node: exp.Expr, listed: Listed) -> exp.Expr | None:
    """Return an aggregate as SQL over lists; None if it is none of those that are made so."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in _OTHER_NAMES:
        node = _OTHER_NAMES[node.name.lower()](this=node.expressions[0])
    sql = _sql(node, listed)
    return None if sql is None else expressions.parse(sql)


def _sql(node: exp.Expr, listed: Listed) -> str | None:
    if isinstance(node, exp.Anonymous) and node.name.lower() in _MAPS:
        return _map(node, listed)
    if isinstance(node, exp.Anonymous) and node.name in _OF_SOME:
        first, *by, count = node.expressions
        found = listed(_pair(by[0], first) if by else first)
        some = _OF_SOME[node.name].replace("{count}", count.sql(dialect="spark"))
        return f"nullif({some.replace('{list}', found)}, array())"
    if type(node) in _OF_PAIRS:
        pair = _pair(node.expression, node.this)
        return _OF_PAIRS[type(node)].replace("{list}", listed(pair))
    if isinstance(node, exp.ArrayAgg | exp.GroupConcat) and isinstance(node.this, exp.Order):
        return _joined(node, _in_order(node.this, listed))
    if isinstance(node, exp.GroupConcat):
        return _joined(node, listed(node.this))
    if isinstance(node, exp.ArrayAgg | exp.Count) and isinstance(node.this, exp.Distinct):
        return _distinct(node, listed)
    if isinstance(node, exp.IgnoreNulls) and function_of(node.this) in ("first", "last"):
        argument = node.this.expressions[0] if node.this.expressions else node.this.this
        place = 1 if function_of(node.this) == "first" else -1
        return f"try_element_at(array_compact({listed(argument)}), {place})"
    if type(node) in _OF_LISTS:
        return _OF_LISTS[type(node)].replace("{list}", listed(node.this))
    return None


def _map(node: exp.Anonymous, listed: Listed) -> str:
    """Return the map of the pairs, or of the maps, that an aggregate is about."""
    if node.name.lower() == "map_union":
        found = _ENTRIES.replace("{list}", listed(node.expressions[0]))
    else:
        found = listed(_pair(*node.expressions))
    return f"if(size({found}) = 0, null, {_MAPS[node.name.lower()].replace('{list}', found)})"


#: Plain aggregates as SQL over the list of their argument.
_PLAIN: Final = {
    "list": "{list}",
    "count": "cast(size(array_compact({list})) as bigint)",
    "min": "array_min({list})",
    "max": "array_max({list})",
    "first": "try_element_at({list}, 1)",
    "last": "try_element_at({list}, -1)",
    "any": "if(size(array_compact({list})) = 0, null, exists(array_compact({list}), x -> x))",
    "sum": (
        "aggregate(slice(array_compact({list}), 2, 2147483647), "
        "try_element_at(array_compact({list}), 1), (a, x) -> a + x)"
    ),
}
_PLAIN["avg"] = f"{_PLAIN['sum']} / nullif(size(array_compact({{list}})), 0)"


def of_list(function: str, listed: str) -> exp.Expr:
    """Return a plain aggregate as SQL over a list."""
    return expressions.parse(_PLAIN[function].replace("{list}", listed))


def _pair(key: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.func(
        "named_struct", exp.Literal.string("k"), key.copy(), exp.Literal.string("v"), value.copy()
    )


def _in_order(order: exp.Order, listed: Listed) -> str:
    """Return the list of x in x ORDER BY y."""
    key = order.expressions[0]
    rising = "false" if key.args.get("desc") else "true"
    pairs = listed(_pair(key.this, order.this))
    return f"transform(sort_array({pairs}, {rising}), x -> x.v)"


def _joined(node: exp.Expr, found: str) -> str:
    """Return a list as it is, or as the one text that a GroupConcat makes of it."""
    if isinstance(node, exp.ArrayAgg):
        return found
    separator = node.args.get("separator")
    text = "''" if separator is None else separator.sql(dialect="spark")
    some = f"array_compact({found})"
    joined = f"array_join(transform({some}, x -> cast(x as string)), {text})"
    return f"if(size({some}) = 0, null, {joined})"


def _distinct(node: exp.Expr, listed: Listed) -> str | None:
    if len(node.this.expressions) != 1:
        return None
    found = f"array_distinct(array_compact({listed(node.this.expressions[0])}))"
    return f"cast(size({found}) as bigint)" if isinstance(node, exp.Count) else found


def unfiltered(node: exp.Filter) -> exp.Expr:
    """Return f(x) FILTER (WHERE c) as f of what x is where c holds."""
    aggregate: exp.Expr = node.this.copy()
    condition = node.expression.this.copy()
    argument = aggregate.this
    if isinstance(argument, exp.Star) or isinstance(getattr(argument, "this", None), exp.Star):
        argument = exp.Literal.number(1)
    chosen = exp.Case().when(condition, argument)
    if isinstance(aggregate, exp.ArrayAgg):
        return exp.Anonymous(this="array_compact", expressions=[exp.ArrayAgg(this=chosen)])
    aggregate.set("this", chosen)
    return aggregate
