from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import typer

from millstream.cli.new import make, new
from millstream.flow.load import load
from millstream.flow.stages import Source
from millstream.ingest import parse_rows


def test_a_project_is_made_and_the_way_on_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new("shops", folder=tmp_path / "shops")
    found = sorted(
        path.relative_to(tmp_path / "shops").as_posix()
        for path in (tmp_path / "shops").rglob("*")
        if path.is_file()
    )
    assert found == [
        ".gitignore",
        "README.md",
        "data/orders.jsonl",
        "flow.py",
        "tests/test_flow.py",
    ]
    assert "millstream run flow.py --until-end" in capsys.readouterr().out


def test_its_flow_can_be_loaded_and_reads_its_data(tmp_path: Path) -> None:
    make("bakers-round", tmp_path)
    flow = load(tmp_path / "flow.py")
    assert flow.name == "bakers-round"
    orders = flow.stages["orders"]
    assert isinstance(orders, Source)
    rows = parse_rows(
        (tmp_path / "data/orders.jsonl").read_bytes().splitlines(), orders.schema.arrow()
    )
    assert len(rows) == 160
    assert [json.loads(one.record)["amount"] for one in rows.refused] == ["free"]


def test_its_tests_are_python(tmp_path: Path) -> None:
    make("shops", tmp_path)
    for path in (tmp_path / "tests").iterdir():
        ast.parse(path.read_text())
    assert "$" not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["", "two words", "1st", "a/b", "__init__"])
def test_a_name_is_one_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not one word"):
        new(name, folder=tmp_path)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(typer.BadParameter, match="is not an empty folder"):
        new("shops", folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
