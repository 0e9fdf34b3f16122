"""The demo, short: the first three weeks of the year. And that its check would find a fault."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from examples.flights import check

ROOT = Path(__file__).parents[2]
DAYS = 21


@pytest.mark.spark
@pytest.mark.slow
def test_every_flight_is_counted_once_although_the_flow_is_killed_and_then_switched(tmp_path):
    # Recordings and results lie beside the flow, and its program reads the SDK: this one has its
    # own.
    for name in (
        "examples/flights/flow.py",
        "examples/flights/airline",
        "sdk/python/millstream_action.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    flow = tmp_path / "examples/flights/flow.py"
    options = ["--days", str(DAYS), "--batches", "8"]
    ended = subprocess.run(
        [
            sys.executable,
            "examples/flights/demo.py",
            *options,
            "--flow",
            flow,
            "--data",
            tmp_path / "state",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=1740,
        check=False,
    )
    lines = ended.stdout.splitlines()
    assert lines[-1] == "demo: ok", f"{ended.stdout}\n{ended.stderr}"
    assert ended.returncode == 0
    pages = [line for line in lines if re.fullmatch(r"console: http://\S+/jobs/flights", line)]
    assert len(pages) == 2  # of the engine that is killed, and of the next one
    (killed,) = (line for line in lines if line.startswith("kill -9"))
    processed = int(re.search(r"([\d,]+) flights processed", killed)[1].replace(",", ""))
    assert 0 < processed < len(check.expected(DAYS).totals)
    assert any("then not at all was found: 2 rows, all equal" in line for line in lines)
    page = (flow.parent / "out" / "report.html").read_text()
    assert any(line.startswith("flights runs version 2; cut at ") for line in lines)
    assert "10 of 10 promises kept" in page
    assert "ExpressJet Airlines" in page
    assert "kill -9" in page


@pytest.fixture(scope="module")
def tables() -> check.Tables:
    return check.expected(days=3)


def broken(promises: list[check.Check]) -> list[str]:
    return [one.found for one in promises if not one.ok]


def test_what_is_as_it_should_be_passes_in_any_order(tables):
    shuffled = replace(tables, totals=tables.totals.sample(frac=1, random_state=7))
    assert broken(check.checks(tables, shuffled, {})) == []


def test_a_flight_that_was_lost_is_missed(tables):
    got = replace(tables, totals=tables.totals.drop(index=100))
    assert [said.partition(";")[0] for said in broken(check.checks(tables, got, {}))] == [
        f"of {len(tables.totals):,} rows 1 missing"
    ] * 2


def test_a_day_of_the_wrong_version_is_seen(tables):
    cut = tables.airlines["window_start"].max().to_pydatetime()
    wanted = check.expected(days=3, cut=cut)
    assert broken(check.checks(wanted, wanted, {}, cut)) == []
    (said,) = broken(check.checks(wanted, tables, {}, cut))
    assert "wrong" in said


def test_a_flight_that_was_counted_twice_is_seen(tables):
    got = replace(tables, totals=pd.concat([tables.totals, tables.totals.iloc[[5]]]))
    assert "1 repeated; the first: " in broken(check.checks(tables, got, {}))[0]


def test_a_total_that_is_one_too_high_is_seen(tables):
    totals = tables.totals.copy()
    totals.loc[42, "number"] += 1
    (said,) = broken(check.checks(tables, replace(tables, totals=totals), {}))
    assert "1 wrong" in said


def test_weather_that_belongs_to_another_hour_is_seen(tables):
    delays = tables.delays.copy()
    delays["wind"] = delays["wind"].shift(1)
    assert any(
        "wrong" in said for said in broken(check.checks(tables, replace(tables, delays=delays), {}))
    )


def test_weather_where_there_should_be_none_is_seen(tables):
    delays = tables.delays.copy()
    delays.loc[0, "wind"] = None
    assert broken(check.checks(replace(tables, delays=delays), tables, {}))


@pytest.fixture(scope="module")
def planes() -> check.Tables:
    return check.expected(days=DAYS)


def test_a_plane_that_was_not_found_is_missed(planes):
    got = replace(planes, grounded=planes.grounded.iloc[1:])
    assert [said.partition(";")[0] for said in broken(check.checks(planes, got, {}))] == [
        "of 2 rows 1 missing"
    ] * 2


def test_a_wrong_name_of_an_airline_is_seen(planes):
    got = replace(planes, grounded=planes.grounded.assign(airline="Delta Air Lines Inc."))
    (said,) = broken(check.checks(planes, got, {}))
    assert said.startswith("of 2 rows 2 wrong")


def test_dead_letters_break_a_promise(tables):
    assert broken(check.checks(tables, tables, {"late": 3})) == ["3 late"]
