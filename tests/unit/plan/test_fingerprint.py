"""What makes a group another one, and what does not."""

import ast
import json

import pytest

import millstream as ms
from millstream.plan.fingerprint import difference, digest, fingerprint
from millstream.plan.groups import plan as plan_of

FOLD = """
LIMIT = 3

def helper(x):
    return x * 2

def step(state, row):
    if row["v"] > LIMIT:
        return state + helper(1), {"n": state, "at": row["at"]}
    return state, None

rows.fold("total", step, initial=0, output="n long, at timestamp").sink("out", ms.memory())
"""


def same(one: dict, other: dict) -> None:
    assert difference(one, other) == []
    assert digest(one) == digest(other)


def differs(one: dict, other: dict, *lines: str) -> None:
    found = difference(one, other)
    assert digest(one) != digest(other)
    for line in lines:
        assert line in found, found


def test_a_fingerprint_is_json_and_survives_it(described):
    one = described(FOLD)
    same(one, json.loads(json.dumps(one)))


def test_it_holds_the_sources_of_functions(described):
    functions = described(FOLD)["functions"]
    assert set(functions) == {"step", "helper"}
    assert functions["helper"]["source"] == "def helper(x):\n    return x * 2\n"
    assert functions["step"]["globals"] == {"LIMIT": 3, "helper": {"function": "helper"}}


def test_comments_docstrings_layout_and_moved_lines_do_not_count(described):
    other = """
    # Moved down, with words.


    LIMIT = (3)

    def unused():
        return 7

    def helper( x ):
        '''Return twice.'''
        # twice
        return (x
                * 2)

    def step(state, row):
        '''Count.

        Over lines.
        '''
        if row['v']>LIMIT: return (state+helper(1), {'n': state, 'at': row['at'],})
        return state, None

    rows.fold("total", step, initial=0, output="n bigint, at timestamp").sink("out", ms.memory())
    """
    same(described(FOLD), described(other))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("LIMIT = 3", "LIMIT = 4", 'function "step", "globals": "LIMIT" was 3, now 4'),
        ("LIMIT = 3", "LIMIT = 3.0", 'function "step", "globals": "LIMIT" was 3, now 3.0'),
        ("x * 2", "x * 3", "    +     return x * 3"),
        ("helper(1)", "helper(2)", 'function "step" has another source:'),
        ("initial=0", "initial=1", 'stage "total": "initial" was 0, now 1'),
        ('row["v"] > LIMIT', 'row["v"] >= LIMIT', 'function "step" has another source:'),
    ],
)
def test_a_constant_a_global_or_a_helper_counts(described, old, new, line):
    assert old in FOLD
    differs(described(FOLD), described(FOLD.replace(old, new)), line)


def test_a_closure_counts(described):
    text = """
    def make(n):
        def step(state, row):
            return state + n, None
        return step

    rows.fold("total", make(1), initial=0, output="at timestamp").sink("out", ms.memory())
    """
    line = 'function "make.<locals>.step", "closure": "n" was 1, now 2'
    differs(described(text), described(text.replace("make(1)", "make(2)")), line)


def test_defaults_count(described):
    text = """
    N = 1
    def step(state, row, n=N):
        return state + n, None
    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    assert difference(described(text), described(text.replace("N = 1", "N = 2")))


def test_lambdas_of_one_line_are_told_apart(described):
    text = """
    pick = [lambda frame: frame.where("v > 1"), lambda frame: frame.where("v > 2")]
    rows.apply("a", pick[0]).sink("out", ms.memory())
    """
    one = described(text)
    assert one["functions"]["<lambda>"]["source"] == 'lambda frame: frame.where("v > 1")'
    same(one, described(text.replace("v > 2", "v > 3")))
    differs(one, described(text.replace("pick[0]", "pick[1]")))


def test_a_lambda_over_several_lines_is_read(described):
    text = 'rows.apply("a", lambda frame: frame.where("v > 1")).sink("out", ms.memory())'
    other = 'rows.apply("a", (\n  lambda frame:\n    frame.where("v > 1")  # big\n)).sink("out", ms.memory())'
    same(described(text), described(other))


def test_functions_of_the_user_s_other_modules_are_followed(described):
    text = """
    import helpers_of_test
    from helpers_of_test import twice

    def step(state, row):
        return helpers_of_test.add(state), twice(row)

    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    helpers = """
    STEP = 1
    UNUSED = 2

    def add(x):
        return x + STEP

    def twice(x):
        return x
    """
    one = described(text, helpers=helpers)
    same(one, described(text, helpers=helpers.replace("UNUSED = 2", "UNUSED = 3")))
    differs(
        one,
        described(text, helpers=helpers.replace("STEP = 1", "STEP = 2")),
        'function "add", "globals": "STEP" was 1, now 2',
    )
    differs(one, described(text, helpers=helpers.replace("return x\n", "return x or None\n")))


def test_libraries_count_by_name_only(described):
    text = """
    import json
    import math
    from collections import OrderedDict

    def step(state, row):
        return math.floor(state), json.loads(json.dumps(OrderedDict(row)))

    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    used = described(text)["functions"]
    assert list(used) == ["step"]
    assert used["step"]["globals"] == {
        "OrderedDict": {"library": "collections.OrderedDict"},
        "json": {"module": "json"},
        "math": {"module": "math"},
    }


def test_objects_and_classes_of_the_user_s_count(described):
    text = """
    import dataclasses, enum, functools, re

    class Colour(enum.Enum):
        RED = 1

    @dataclasses.dataclass(frozen=True)
    class Settings:
        '''How much.'''
        limit: int = 3

        def over(self, x):
            return x > self.limit * FACTOR

    FACTOR = 2
    SETTINGS = Settings(5)
    WORD = re.compile("a+")

    def step(state, row, more=0):
        if SETTINGS.over(row["v"]) and WORD.match("a") and Colour.RED:
            return state, None
        return state, None

    rows.fold("total", functools.partial(step, more=1), initial={"a": (1, {2, 3})}, output="at timestamp").sink("out", ms.memory())
    """
    one = described(text)
    same(one, described(text.replace("'''How much.'''", "'''Else.'''")))
    for old, new in [
        ("Settings(5)", "Settings(6)"),
        ("x > self", "x >= self"),
        ("FACTOR = 2", "FACTOR = 3"),
        ('"a+"', '"b+"'),
        ("RED = 1", "RED = 2"),
        ("more=1", "more=2"),
        ("{2, 3}", "{2, 4}"),
    ]:
        differs(one, described(text.replace(old, new)))


def test_an_object_that_can_be_called_counts_with_its_state(described):
    text = """
    class Counter:
        def __init__(self, by):
            self.by = by

        def __call__(self, state, row):
            return state + self.by, None

    rows.fold("total", Counter(1), initial=0, output="at timestamp").sink("out", ms.memory())
    """
    differs(described(text), described(text.replace("Counter(1)", "Counter(2)")))
    differs(described(text), described(text.replace("state + self.by", "state - self.by")))


def test_decorated_functions_count_with_what_they_wrap(described):
    text = """
    import functools

    def logged(function):
        @functools.wraps(function)
        def inner(*arguments):
            return function(*arguments)
        return inner

    @logged
    def step(state, row):
        return state + 1, None

    @functools.lru_cache
    def cached(x):
        return x + 1

    @logged
    def other(state, row):
        return cached(state), None

    rows.fold("a", step, initial=0, output="at timestamp").fold("b", other, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    one = described(text)
    differs(one, described(text.replace("state + 1", "state + 2")))
    differs(one, described(text.replace("x + 1", "x + 2")))
    differs(
        one,
        described(
            text.replace("return function(*arguments)", "return function(*arguments) or None")
        ),
    )


def test_what_a_library_makes_of_a_function_counts_by_the_function(described):
    """A UDF of Spark is a function inside a function of Spark's, which must not be looked at: it changes with Spark."""
    text = """
    from wrapping_library import udf

    K = 2

    @udf("double")
    def twice(x):
        return x * K

    upper = udf("string")(lambda s: s.upper())

    def clean(frame):
        return twice(upper(frame))

    rows.apply("clean", clean).sink("out", ms.memory())
    """
    one = described(text)
    assert one["functions"]["clean"]["globals"]["twice"] == {
        "wrapped": [{"function": "twice"}],
        "by": "wrapping_library",
        "returns": "double",
    }
    differs(
        one,
        described(text.replace("K = 2", "K = 3")),
        'function "twice", "globals": "K" was 2, now 3',
    )
    differs(one, described(text.replace("s.upper()", "s.lower()")))
    differs(one, described(text.replace('udf("string")', 'udf("binary")')))


def test_functions_that_call_each_other_are_read_once(described):
    text = """
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    def step(state, row):
        return even(state), None

    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    assert set(described(text)["functions"]) == {"step", "even", "odd"}


def test_a_value_that_holds_itself_is_read_once(described):
    text = """
    LOOP = {}
    LOOP["self"] = LOOP

    def step(state, row):
        return LOOP, None

    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    same(described(text), described(text))


def test_a_large_global_counts_by_its_digest(described):
    text = """
    TABLE = {n: n * 2 for n in range(10_000)}

    def step(state, row):
        return TABLE[state], None

    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    one = described(text)
    assert len(json.dumps(one)) < 5_000
    differs(one, described(text.replace("n * 2", "n * 3")))


def test_a_flow_or_stream_among_the_globals_does_not_count(described):
    text = """
    def step(state, row):
        return (state, flow, rows), None

    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    more = """
    rows.sql("more", "SELECT * FROM rows").sink("other", ms.memory())
    """
    same(described(text), described(text + more))


def test_addresses_do_not_count(described):
    text = """
    import threading
    LOCK = threading.Lock()
    THING = object()

    def step(state, row):
        with LOCK:
            return state, THING

    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    """
    same(described(text), described(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SELECT k, v, at FROM rows WHERE v > 1", "select k,\n v, at from rows -- why\n where v>1"),
        ("count(*)", "COUNT( * )"),
        ('every="1 h"', 'every="60 min"'),
    ],
)
def test_the_spelling_of_sql_and_times_does_not_count(described, old, new):
    text = 'rows.sql("q", """SELECT k, v, at FROM rows WHERE v > 1""").window("w", every="1 h", n="count(*)").sink("out", ms.memory())'
    assert old in text
    same(described(text), described(text.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "v > 1",
            "v > 2",
            'stage "q": "query" was SELECT k, v, at FROM rows WHERE v > 1, now SELECT k, v, at FROM rows WHERE v > 2',
        ),
        ('every="1 h"', 'every="2 h"', 'stage "w": "every" was 1 h, now 2 h'),
        ("count(*)", "sum(v)", 'stage "w", "aggregates": "n" was count(*), now sum(v)'),
        ('n="count(*)"', 'm="count(*)"', 'stage "w", "aggregates", "m" is new: count(*)'),
        ('by="k"', "by=[]", 'stage "w", "by", "k" is gone: k'),
        ('ms.parquet("a")', 'ms.parquet("b")', 'the output, "sinks", "out": "path" was a, now b'),
    ],
)
def test_what_a_stage_says_counts(described, old, new, line):
    text = """
    rows.sql("q", "SELECT k, v, at FROM rows WHERE v > 1").window("w", every="1 h", by="k", n="count(*)").sink("out", ms.parquet("a"))
    """
    assert old in text
    differs(described(text), described(text.replace(old, new)), line)


def test_a_stage_that_is_new_or_gone_is_named(described):
    one = described('rows.sql("q", "SELECT * FROM rows").sink("out", ms.memory())')
    other = described('rows.sql("p", "SELECT * FROM rows").sink("out", ms.memory())')
    differs(one, other, 'stage "q" is gone', 'stage "p" is new', 'the output: "stage" was q, now p')


def test_the_order_of_aggregates_counts(described):
    text = 'rows.window("w", every="1 h", a="count(*)", b="max(v)").sink("out", ms.memory())'
    other = 'rows.window("w", every="1 h", b="max(v)", a="count(*)").sink("out", ms.memory())'
    differs(described(text), described(other))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ms.console(rows=5)", "ms.console(rows=6)"),
        ('ms.Flow("f")', 'ms.Flow("f", window="2 h")'),
        ("partitions=1", "partitions=2"),
        ('idle="1 s"', 'idle="2 s"'),
        ("ms.rate(5)", "ms.rate(6, rows=7)"),
    ],
)
def test_what_changes_neither_results_nor_state_does_not_count(tmp_path, old, new):
    def described(text: str) -> dict:
        names = {"ms": ms}
        exec(text, names)
        return fingerprint(plan_of(names["flow"]), "out")

    text = """if True:
        flow = ms.Flow("f")
        flow.source("rows", ms.rate(5), time="at", idle="1 s", partitions=1).sink("out", ms.console(rows=5))
    """
    assert old in text
    same(described(text), described(text.replace(old, new)))


def test_the_lateness_and_the_columns_of_what_is_read_count():
    def described(**arguments: str) -> dict:
        flow = ms.Flow("f")
        ddl = arguments.pop("ddl", "a int, at timestamp")
        flow.source("rows", ms.inbox(ddl), time="at", **arguments).sink("out", ms.memory())
        return fingerprint(plan_of(flow), "out")

    differs(described(), described(lateness="1 h"), 'stage "rows": "lateness" was 0 s, now 1 h')
    differs(described(), described(ddl="a int, b int, at timestamp"))


def test_a_password_is_neither_kept_nor_compared():
    def described(password: str) -> dict:
        flow = ms.Flow("f")
        url = f"postgresql://me:{password}@h/d"
        flow.source("rows", ms.rate(1)).sink("out", ms.postgres(url, table="t"))
        return fingerprint(plan_of(flow), "out")

    same(described("one"), described("two"))
    assert "one" not in json.dumps(described("one")["output"])


def test_another_flow_may_move_but_not_become_another_source():
    def described(where: str, source: str, **options: object) -> dict:
        flow = ms.Flow("f")
        flow.source("rows", ms.rate(1)).sink("out", ms.outbox(where, source, **options))
        return fingerprint(plan_of(flow), "out")

    moved = described("tcp://other:1", "b.rows", key="k", server="s", end=True)
    same(described("tcp://h:1", "b.rows"), moved)
    differs(
        described("tcp://h:1", "b.rows"),
        described("tcp://h:1", "b.others"),
        'the output, "sinks", "out": "source" was b.rows, now b.others',
    )


def test_a_static_table_counts_by_path_and_snapshot():
    flow = ms.Flow("f")
    flow.source("rows", ms.inbox("a int")).join("j", ms.table("t.csv"), on="a").sink(
        "out", ms.memory()
    )
    plan = plan_of(flow)
    one = fingerprint(plan, "out", {"t.csv": "yesterday"})
    differs(one, fingerprint(plan, "out", {"t.csv": "today"}))


def test_what_an_action_ships_counts_by_its_content():
    def described(snapshots: dict[str, str], *argv: str) -> dict:
        flow = ms.Flow("f")
        rows = flow.source("rows", ms.inbox("a int"))
        rows.action("scored", argv, output="b int", files=["m.bin"]).sink("out", ms.memory())
        return fingerprint(plan_of(flow), "out", snapshots)

    before, after = {"./score": "1", "m.bin": "1", "score@2": "1", "python3": "1"}, {"m.bin": "1"}
    for program in ("./score", "score@2"):
        differs(
            described(before, program),
            described({**before, program: "2"}, program),
            f'stage "scored", "shipped", "{program}": its content has changed',
        )
    differs(described(before, "./score"), described({**before, "m.bin": "2"}, "./score"))
    # What the executors have themselves counts by its name.
    for program in ("python3", "/opt/score"):
        same(described(before, program), described(after, program))


def test_an_unrelated_group_keeps_its_fingerprint(described):
    text = FOLD + '\nrows.window("w", every="1 h", n="count(*)").sink("other", ms.memory())\n'
    changed = text.replace("count(*)", "max(v)")
    same(described(text), described(changed))
    differs(described(text, group="other"), described(changed, group="other"))


def test_a_function_typed_at_a_prompt_counts_by_what_was_compiled():
    def described(text: str) -> dict:
        names: dict = {}
        exec(text, names)
        flow = ms.Flow("f")
        rows = flow.source("rows", ms.inbox("k string, at timestamp"), time="at")
        rows.fold("total", names["step"], initial=0, output="at timestamp").sink("out", ms.memory())
        return fingerprint(plan_of(flow), "out")

    text = "def step(state, row):\n    return state + 1, None\n"
    assert described(text)["functions"]["step"]["source"] is None
    same(described(text), described(text))
    differs(described(text), described(text.replace("1", "2")))


def test_the_normal_form_is_made_when_two_are_compared(described, monkeypatch):
    """A later Python writes trees in another way; what was stored before must not look changed by it."""
    one = json.loads(json.dumps(described(FOLD)))
    real = ast.unparse
    monkeypatch.setattr(ast, "unparse", lambda tree: f"# a later Python\n{real(tree)}")
    assert difference(one, described(FOLD)) == []


def test_strings_over_several_lines_count_as_they_are(described):
    text = '''
    def step(state, row):
        return """a
      b""", None
    rows.fold("total", step, initial=0, output="at timestamp").sink("out", ms.memory())
    '''
    differs(described(text), described(text.replace("  b", " b")))
