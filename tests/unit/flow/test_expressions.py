import pytest

from millstream.errors import InvalidSql
from millstream.flow import expressions
from millstream.flow.schema import Schema

COLUMNS = Schema.parse("a int, b bigint, d double, p decimal(10,2), s string, at timestamp")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("avg(delay) + max(delay) * n", ("delay", "n")),
        ("count(*)", ()),
        ("transform(xs, x -> x + y)", ("xs", "y")),
        ("filter(xs, x -> x.price > 3)", ("xs",)),
        ("aggregate(xs, 0, (acc, x) -> acc + x)", ("xs",)),
        ("address.street.name", ("address",)),
        ("m['key'] + xs[0]", ("m", "xs")),
        ("timestampdiff(minute, began, ended)", ("began", "ended")),
        ("at + interval 1 day", ("at",)),
        ("extract(hour from at)", ("at",)),
        ("`odd name` > 1", ("odd name",)),
        ("count(*) filter (where delay > 60)", ("delay",)),
        ("current_date", ()),
    ],
)
def test_the_columns_of_an_expression_are_those_it_reads(text, names):
    assert sorted(expressions.columns(text)) == sorted(names)


@pytest.mark.parametrize(
    "text",
    [
        "count(*)",
        "try_avg(a)",
        "every(a > 1)",
        "max_by(a, b)",
        "1 + sum(a)",
        "percentile_cont(0.5) within group (order by a)",
    ],
)
def test_aggregates_are_known_as_such(text):
    assert expressions.aggregate(text)


@pytest.mark.parametrize(
    "text", ["a + 1", "upper(s)", "aggregate(xs, 0, (acc, x) -> acc + x)", "greatest(a, b)"]
)
def test_functions_of_one_row_are_not_aggregates(text):
    assert not expressions.aggregate(text)


def test_distinct_is_seen_inside_an_aggregate_and_not_in_a_comparison():
    assert expressions.distinct("count(distinct s)")
    assert not expressions.distinct("max(a is not distinct from b)")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("count(*)", "bigint"),
        ("approx_count_distinct(s)", "bigint"),
        ("sum(a)", "bigint"),
        ("sum(d)", "double"),
        ("sum(p)", "decimal(20,2)"),
        ("avg(a)", "double"),
        ("avg(p)", None),
        ("min(s)", "string"),
        ("max(at)", "timestamp"),
        ("first(b)", "bigint"),
        ("last(d)", "double"),
        ("max_by(s, d)", "string"),
        ("count(*) filter (where a > 1)", "bigint"),
        ("max(a > 1)", "boolean"),
        ("cast(s as decimal(4,1))", "decimal(4,1)"),
        ("'x'", "string"),
        ("a + b", None),
        ("collect_list(a)", None),
        ("max(nope)", None),
    ],
)
def test_a_type_is_told_where_it_is_plain_to_see(text, found):
    assert expressions.type_of(text, COLUMNS) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("AVG( delay )", "avg(delay)"),
        ("count(*) /* all */", "COUNT(*)"),
        ("SELECT a,b\n FROM t -- why\nWHERE a>1", "select a, b from t where a > 1"),
    ],
)
def test_spellings_of_one_expression_have_one_normal_form(one, other):
    assert expressions.normal(one) == expressions.normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a > 1", "a >= 1"), ("a + b", "b + a"), ("s = 'x'", "s = 'X'"), ("sum(a)", "sum(b)")],
)
def test_different_expressions_have_different_normal_forms(one, other):
    assert expressions.normal(one) != expressions.normal(other)


@pytest.mark.parametrize("text", ["avg(delay", "a +", "", "  ", "a; b", "select a from", None])
def test_what_is_not_sql_is_refused_in_few_words(text):
    with pytest.raises(InvalidSql) as caught:
        expressions.expression(text)
    assert "sqlglot" not in str(caught.value)


def test_a_reason_names_line_and_column():
    with pytest.raises(InvalidSql, match="line 1, column"):
        expressions.expression("avg(delay")


@pytest.mark.parametrize("text", ["select 1", "avg(a) as b"])
def test_an_expression_is_neither_a_query_nor_named(text):
    with pytest.raises(InvalidSql, match="not a plain expression"):
        expressions.expression(text)
