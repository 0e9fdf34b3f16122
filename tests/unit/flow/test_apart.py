from __future__ import annotations

import sys
from pathlib import Path

import pytest

from millstream.errors import NotLoadable
from millstream.flow.apart import load_apart, visiting
from millstream.flow.load import load
from millstream.plan.fingerprint import difference, fingerprint
from millstream.plan.groups import plan

FLOW = """
import millstream as ms
import prices_apart


class Scale:
    def __call__(self, frame):
        return frame.withColumn("n", frame.n * prices_apart.FACTOR)


flow = ms.Flow("f")
rows = flow.source("rows", ms.inbox("n long"))
rows.apply("scaled", Scale()).sink("scaled", ms.memory())
"""


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("prices_apart", "flow_apart", "flow_apart_2"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def version(folder: Path, factor: int, flow: str = FLOW) -> Path:
    folder.mkdir()
    (folder / "prices_apart.py").write_text(f"FACTOR = {factor}\n")
    (folder / "flow_apart.py").write_text(flow)
    return folder / "flow_apart.py"


def meaning(file: Path, other: Path | None = None) -> dict[str, object]:
    flow = load(file) if other is None else load_apart(file, other)
    return fingerprint(plan(flow), "scaled")


def test_versions_have_modules_of_their_own(tmp_path: Path) -> None:
    first, second = version(tmp_path / "one", 1), version(tmp_path / "two", 2)
    one = load(first)
    two = load_apart(second, first)
    factors = [
        flow.stages["scaled"].function.__call__.__globals__["prices_apart"].FACTOR
        for flow in (one, two)
    ]
    assert factors == [1, 2]
    again = load_apart(first, second)
    assert again.stages["scaled"].function.__call__.__globals__["prices_apart"].FACTOR == 1


def test_what_a_version_means_is_told_while_another_has_the_name_of_its_modules(
    tmp_path: Path,
) -> None:
    first = version(tmp_path / "one", 1)
    second = version(tmp_path / "two", 1, FLOW.replace("frame.n *", "frame.n + 1 -"))
    one = load(first)
    before = fingerprint(plan(one), "scaled")
    after = meaning(second, first)
    assert fingerprint(plan(one), "scaled") == before, "also when the other one was loaded last"
    assert any("frame.n + 1 -" in line for line in difference(before, after))


def test_files_of_one_folder_share_their_modules_and_a_missing_one_is_told(tmp_path: Path) -> None:
    first = version(tmp_path / "one", 1)
    second = first.with_name("flow_apart_2.py")
    second.write_text(FLOW)
    assert difference(meaning(first), meaning(second, first)) == []
    with pytest.raises(NotLoadable):
        load_apart(tmp_path / "none.py", first)


def test_a_look_at_another_version_leaves_the_modules_as_they_were(tmp_path: Path) -> None:
    first, second = version(tmp_path / "one", 1), version(tmp_path / "two", 2)
    (second.parent / "more_apart.py").write_text("")
    second.write_text(f"import more_apart\n{FLOW}")
    load(first)
    before, paths = sys.modules["prices_apart"], sys.path[:]
    with visiting(second):
        load_apart(second, first)
        assert sys.modules["prices_apart"].FACTOR == 2
    assert sys.modules["prices_apart"] is before
    assert "more_apart" not in sys.modules
    assert sys.path == paths
