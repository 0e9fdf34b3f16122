import json
from datetime import timedelta

import millstream as ms
from millstream.flow.describe import describe


def total(state, row):
    return state, None


def make() -> ms.Flow:
    flow = ms.Flow("f")
    rows = flow.source(
        "rows", ms.inbox("a string, at timestamp"), time="at", lateness="1 min", key="a"
    )
    rows.fold("total", total, initial={"n": 0, "since": timedelta(1)}, output="at timestamp").sink(
        "out", ms.console()
    )
    rows.apply("same", lambda frame: frame)
    rows.window("w", every="1 h", n="count(*)").sink(
        "db", ms.postgres("postgresql://me:secret@h/d", table="t")
    )
    rows.join("named", ms.table("x.csv", schema="a string, b int"), on="a").journal(
        "kept", keep_for="1 d"
    )
    return flow


def test_a_description_is_json():
    assert json.loads(json.dumps(describe(make()))) == describe(make())


def test_it_names_functions_and_holds_no_path_of_code():
    described = describe(make())
    assert described["stages"][1]["step"] == {"function": "total"}
    assert described["stages"][1]["place"].startswith("test_describe.py:")
    assert __file__ not in json.dumps(described)


def test_it_holds_no_passwords():
    text = json.dumps(describe(make()))
    assert "secret" not in text
    assert "postgresql://me:***@h/d" in text


def test_each_stage_says_what_comes_out_of_it():
    window = next(stage for stage in describe(make())["stages"] if stage["name"] == "w")
    assert window["kind"] == "window"
    assert window["inputs"] == ["rows"]
    assert window["output"]["time"] == "window_time"
    assert ["n", "bigint"] in window["output"]["columns"]
    assert window["aggregates"] == [["n", "count(*)"]]
