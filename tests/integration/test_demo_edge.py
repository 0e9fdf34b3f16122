"""The demo of watchers, short; and that its check would find a fault."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from examples.edge import demo
from examples.edge.picture import Story, svg

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("hosts", ["namespaces", pytest.param("processes", marks=pytest.mark.soak)])
def test_each_match_is_counted_once_although_devices_are_killed_and_cut_off(
    tmp_path: Path, hosts: str
) -> None:
    ended = subprocess.run(
        [
            *(sys.executable, "examples/edge/demo.py", "--machines", "12", "--rounds", "2"),
            *("--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")),
            *(["--processes"] if hosts == "processes" else []),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    said = ended.stdout.splitlines()
    assert said[-1:] == ["demo: ok"], f"{ended.stdout}\n{ended.stderr}"
    assert any("A is cut off" in line for line in said)
    assert any("B is killed" in line for line in said)
    ElementTree.parse(tmp_path / "out" / "edge.svg")


def test_the_check_finds_what_is_missing_and_what_is_counted_twice() -> None:
    wanted = Counter({"m1": 2})
    rows = [{"run": "a", "machine": "m1"}, {"run": "b", "machine": "m1"}]
    demo.check(wanted, rows)
    with pytest.raises(demo.DemoFailed, match="missing"):
        demo.check(wanted, rows[:1])
    with pytest.raises(demo.DemoFailed, match="twice"):
        demo.check(wanted, [*rows, rows[0]])
    with pytest.raises(demo.DemoFailed, match="too many"):
        demo.check(wanted, [*rows, {"run": "c", "machine": "m2"}])


def test_the_picture_shows_who_was_away_and_what_was_found() -> None:
    away = [("A", "killed", 1.0, 3.0), ("B", "cut off", 4.0, 5.0)]
    story = Story(("A", "B"), 10.0, away, [("A", 0.5), ("B", 2.0)], [0.6, 2.1], 2, 2)
    picture = ElementTree.fromstring(svg(story))
    titles = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["killed", "cut off"]
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}line"))) == 4
