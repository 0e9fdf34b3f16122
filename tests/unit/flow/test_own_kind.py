"""A kind of stage of one's own is two files: nothing else has to know it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import DuplicateName, InvalidOption, NotLoadable
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.flow.stages import OURS, OneInput, kinds, register, registry
from millstream.flow.yaml import load
from millstream.plan import draw
from millstream.plan.fingerprint import difference, fingerprint
from millstream.plan.groups import plan
from millstream.switch.changes import Change, Move, Version, changes
from support.sample_stage import Sample

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    before = dict(registry._kinds)
    register(Sample)
    yield
    registry._load_installed.cache_clear()
    registry._kinds.clear()
    registry._kinds.update(before)


def sampled(every: int = 10) -> ms.Flow:
    flow = ms.Flow("sampled")
    rows = flow.source("rows", ms.inbox("k string, v double, at timestamp"), time="at", key="k")
    rows.stage("some", Sample, every=every, by="k").sink("out", ms.memory())
    return flow


#: What asks stages, and must know none of them.
ASKING = (
    *(
        SOURCE / "millstream/flow" / f"{name}.py"
        for name in ("stream", "yaml", "describe", "rewire")
    ),
    *(SOURCE / "millstream/plan").rglob("*.py"),
    *(SOURCE / "millstream/switch").rglob("*.py"),
    *(SOURCE / "millstream/spark/run").rglob("*.py"),
    *(SOURCE / "millstream/spark/switching").rglob("*.py"),
    *(SOURCE / "millstream/spark/stages" / f"{name}.py" for name in ("build", "analyse", "kind")),
)
#: A source's origin is for connectors to know.
ENTRIES = {"Source", "Reads", "Journal"}


@pytest.mark.parametrize("path", ASKING, ids=lambda path: path.stem)
def test_what_asks_stages_knows_no_kind_by_name(path: Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text()))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = {name.name for node in froms if "stages" in (node.module or "") for name in node.names}
    ours = {kind.__name__ for kind in OURS} - ENTRIES
    assert names & ours == set()


def test_it_has_a_stream_with_columns_time_key_and_lateness() -> None:
    some = sampled().stream("some")
    assert (some.columns, some.time, some.key) == (("k", "v", "at"), "at", "k")


def test_its_mistakes_have_the_line_of_the_user() -> None:
    with pytest.raises(
        InvalidOption, match='stage "some" of flow "sampled" takes one row of 0'
    ) as e:
        sampled(0)
    assert e.value.where is not None
    assert e.value.where.file == __file__


def test_it_is_read_from_yaml_and_written(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(dump(sampled()))
    assert "sample: 10" in file.read_text()
    assert load(file) == sampled()


def test_it_is_described_planned_and_drawn() -> None:
    flow = sampled()
    found = next(one for one in describe(flow)["stages"] if one["name"] == "some")
    assert {key: found[key] for key in ("kind", "every", "by", "inputs")} == {
        "kind": "sample",
        "every": 10,
        "by": "k",
        "inputs": ["rows"],
    }
    planned = plan(flow)
    assert planned.group("out").stages == ("rows", "some")
    assert not planned.group("out").stateful
    assert "rows ── some" in draw.tree(planned)
    assert "one of 10" in draw.svg(planned)


def test_its_fingerprint_is_compared() -> None:
    meanings = [fingerprint(plan(sampled(every)), "out") for every in (10, 10, 20)]
    assert difference(meanings[0], meanings[1]) == []
    assert difference(meanings[0], meanings[2]) == ['stage "some": "every" was 10, now 20']


def test_a_switch_replaces_it() -> None:
    (group,) = changes(Version.of(plan(sampled(10))), Version.of(plan(sampled(20))))
    (some,) = [stage for stage in group.stages if stage.name == "some"]
    assert (group.change, some.change, some.move) == (Change.REPLACED, Change.REPLACED, Move.NONE)


def test_a_word_has_one_kind() -> None:
    class Other(OneInput):
        kind = "other"
        yaml_words = ("window",)

    with pytest.raises(DuplicateName, match='has the word "window"'):
        register(Other)
    assert "other" not in kinds()


def test_kinds_of_installed_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    del registry._kinds["sample"]
    found = EntryPoint("sample", "support.sample_stage:Sample", registry.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [found])
    registry._load_installed.cache_clear()
    assert kinds()["sample"] is Sample


def test_an_installed_kind_that_is_broken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("sample", "support.sample_stage:Gone", registry.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [broken])
    registry._load_installed.cache_clear()
    with pytest.raises(NotLoadable, match='"sample" cannot be loaded from "support'):
        kinds()


def test_without_its_file_a_flow_in_yaml_says_what_it_knows(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(dump(sampled()))
    del registry._kinds["sample"]
    with pytest.raises(NotLoadable, match='stage "some" does not say what it is'):
        load(file)


def test_a_description_needs_no_spark() -> None:
    code = "import sys; from support.sample_stage import Sample; sys.exit('pyspark' in sys.modules)"
    path = {"PYTHONPATH": f"{SOURCE}:{SOURCE.parent / 'tests'}"}
    subprocess.run([sys.executable, "-c", code], check=True, env=path)
