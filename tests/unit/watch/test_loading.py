"""The patterns of a watcher, from the file that a flow would use."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import DuplicateName, InvalidOption, NotLoadable
from millstream.watch.loading import Watched, load, named, of_one_source, overridden

PATTERN = '.begin("a", "t > 90").followed_by("b", "t > a.t").within("1 hour")'


def written(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(textwrap.dedent(text))
    return file


def names(found: tuple[Watched, ...]) -> list[str]:
    return [one.name for one in found]


def test_a_python_file_gives_its_patterns_by_their_variables(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "edge_patterns.py",
        f"""
        import millstream as ms
        schema = "sensor string, t double, at timestamp"
        time, key = "at", "sensor"
        hot = ms.Pattern(){PATTERN}
        cold = ms.Pattern("icy").begin("a", "t < 0").key("room")
        wet = ms.Pattern("wet").begin("a", "t = 4")
        weather = ms.Phenomenon("weather", (wet, ms.Pattern().begin("a", "t = 5")))
        _part = ms.Pattern().begin("x", "t = 0")
        again = hot
        """,
    )
    found = load(file)
    assert names(found) == ["hot", "icy", "wet", "weather1"]
    hot, cold = found[0], found[1]
    assert (hot.key, hot.time, hot.schema and hot.schema.names) == (
        ("sensor",),
        "at",
        ("sensor", "t", "at"),
    )
    assert cold.key == ("room",)


FLOW = f"""
import millstream as ms
flow = ms.Flow("plant")
readings = flow.source(
    "readings", ms.inbox("sensor string, t double, at timestamp"), time="at", key="sensor"
)
hot = ms.Pattern(){PATTERN}
readings.match("overheating", hot, emit="sensor, b.t as peak").sink("out", ms.jsonl("out"))
"""


def test_a_flow_gives_its_matches_with_the_columns_time_and_key_of_their_source(
    tmp_path: Path,
) -> None:
    (one,) = load(written(tmp_path, "plant_flow.py", FLOW))
    assert (one.name, one.source, one.time, one.key) == (
        "overheating",
        "readings",
        "at",
        ("sensor",),
    )
    assert one.pattern.output == "sensor, b.t as peak"
    assert one.schema is not None
    assert one.schema.names == ("sensor", "t", "at")


def test_a_flow_in_yaml_gives_the_same(tmp_path: Path) -> None:
    text = """
        name: plant
        sources:
          readings: {inbox: "sensor string, t double, at timestamp", time: at, key: sensor}
        stages:
          overheating:
            from: readings
            match:
              - {begin: a, where: t > 90}
              - {followed_by: b, where: t > a.t}
            within: 1 hour
            emit: sensor, b.t as peak
        sinks:
          out: {from: overheating, jsonl: out}
        """
    (one,) = load(written(tmp_path, "plant.yaml", text))
    (other,) = load(written(tmp_path, "plant_flow_2.py", FLOW))
    assert (one.name, one.key, one.time, one.schema) == (
        other.name,
        other.key,
        other.time,
        other.schema,
    )
    assert one.pattern.blocks == other.pattern.blocks


def test_a_yaml_file_of_patterns_needs_no_flow(tmp_path: Path) -> None:
    text = """
        schema: sensor string, t double, at timestamp
        time: at
        key: sensor
        patterns:
          hot: {match: [{begin: a, where: t > 90}], within: 1 hour, emit: "sensor, a.t"}
          cold: {match: [{begin: a, where: t < 0}], key: room}
        """
    hot, cold = load(written(tmp_path, "patterns.yaml", text))
    assert (hot.name, hot.key, hot.time, hot.pattern.output) == (
        "hot",
        ("sensor",),
        "at",
        "sensor, a.t",
    )
    assert (cold.name, cold.key) == ("cold", ("room",))


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("empty.py", "x = 1", "has no patterns"),
        ("broken.py", "1 / 0", "ZeroDivisionError"),
        ("patterns.txt", "", "neither Python nor YAML"),
        (
            "typo.yaml",
            "patterns: {hot: {match: [{begin: a}], witin: 1 hour}}",
            "means nothing here",
        ),
    ],
)
def test_a_file_without_patterns_is_refused(
    tmp_path: Path, name: str, text: str, part: str
) -> None:
    with pytest.raises(NotLoadable, match=part):
        load(written(tmp_path, name, text))


def test_a_match_behind_other_stages_is_refused(tmp_path: Path) -> None:
    text = FLOW.replace(
        "readings.match(", 'readings.distinct("once", by="sensor", within="1 hour").match('
    )
    with pytest.raises(InvalidOption, match="not a source") as caught:
        load(written(tmp_path, "behind.py", text))
    assert caught.value.hint


def test_patterns_have_names_that_differ() -> None:
    plain = ms.Pattern().begin("a", "t > 90")
    assert names(named([plain, plain.within("1 hour")])) == ["pattern", "pattern2"]
    hot = ms.Pattern("hot").begin("a", "t > 90")
    with pytest.raises(DuplicateName, match="hot"):
        named([hot, hot])


def test_options_of_the_user_go_before_those_of_the_file() -> None:
    found = named(ms.Pattern("hot").begin("a", "t > 90"), key="sensor", time="at")
    (one,) = overridden(found, key="room", schema="room string, t double, at timestamp")
    assert (one.key, one.time) == (("room",), "at")
    assert one.schema is not None


def test_events_are_of_one_source() -> None:
    hot = ms.Pattern("hot").begin("a", "t > 90")
    found = [Watched("one", hot, source="left"), Watched("two", hot, source="right")]
    with pytest.raises(InvalidOption, match='"left" and "right"'):
        of_one_source(found)
    assert names(of_one_source(found, "right")) == ["two"]
    with pytest.raises(InvalidOption, match="middle"):
        of_one_source(found, "middle")


@pytest.mark.parametrize("file", ["flow.py", "flow.yaml"])
def test_reading_patterns_loads_neither_arrow_nor_spark(tmp_path: Path, file: str) -> None:
    path = written(tmp_path, "edge_flow.py", FLOW)
    if file == "flow.yaml":
        path = written(tmp_path, "p.yaml", "patterns: {hot: {match: [{begin: a, where: t > 90}]}}")
    code = f"""
import sys
from millstream.watch.loading import load
load({str(path)!r})
heavy = {{"pyarrow", "numpy", "pandas", "pyspark", "numba"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
