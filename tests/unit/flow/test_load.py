import sys

import pytest

import millstream as ms
from millstream import errors

FLOW = """\
import millstream as ms

made = ms.Flow("made")
rows = made.source("rows", ms.rate(1), time="at")
rows.sink("out", ms.console())
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Leave modules and path as they were."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(tmp_path, text, name="some_flow.py"):
    file = tmp_path / name
    file.write_text(text)
    return file


def test_the_one_flow_of_a_module_is_found(tmp_path):
    assert ms.load(written(tmp_path, FLOW)).name == "made"


def test_a_flow_that_is_called_flow_wins_over_others(tmp_path):
    text = FLOW + '\nflow = ms.Flow("chosen")\n'
    assert ms.load(written(tmp_path, text)).name == "chosen"


def test_two_names_of_one_flow_are_one_flow(tmp_path):
    assert ms.load(written(tmp_path, FLOW + "\nalso = made\n")).name == "made"


def test_a_module_without_a_flow_is_refused(tmp_path):
    with pytest.raises(errors.NotLoadable, match="holds no flow") as caught:
        ms.load(written(tmp_path, "x = 1\n"))
    assert "ms.Flow(" in caught.value.hint


def test_two_flows_of_other_names_are_refused(tmp_path):
    with pytest.raises(errors.NotLoadable, match="holds 2 flows: made, other") as caught:
        ms.load(written(tmp_path, FLOW + '\nother = ms.Flow("other")\n'))
    assert "`flow`" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "part"), [("nowhere.py", "there is no file"), ("flow.txt", "neither Python nor YAML")]
)
def test_a_file_that_is_not_a_flow_is_refused(tmp_path, name, part):
    written(tmp_path, "x", "flow.txt")
    with pytest.raises(errors.NotLoadable, match=part):
        ms.load(tmp_path / name)


def test_a_mistake_keeps_its_own_place(tmp_path):
    text = FLOW + 'rows.window("w", every="1 h", x="avg(valu)")\n'
    with pytest.raises(errors.UnknownColumn) as caught:
        ms.load(written(tmp_path, text))
    assert caught.value.where.line == 6
    assert caught.value.where.code == 'rows.window("w", every="1 h", x="avg(valu)")'


def test_a_mistake_in_a_spec_gets_the_place_of_its_line(tmp_path):
    text = 'import millstream as ms\n\nspec = ms.inbox("a strin")\n'
    with pytest.raises(errors.UnknownType) as caught:
        ms.load(written(tmp_path, text))
    assert (caught.value.where.line, caught.value.where.code) == (3, 'spec = ms.inbox("a strin")')
    assert caught.value.hint == 'did you mean "string"?'


def test_a_failure_of_the_module_is_told_with_its_line(tmp_path):
    text = "def broken():\n    return 1 / 0\n\nbroken()\n"
    with pytest.raises(errors.NotLoadable, match="ZeroDivisionError: division by zero") as caught:
        ms.load(written(tmp_path, text))
    assert (caught.value.where.line, caught.value.where.code) == (2, "return 1 / 0")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_syntax_error_is_told_with_line_and_column(tmp_path):
    with pytest.raises(errors.NotLoadable, match="SyntaxError") as caught:
        ms.load(written(tmp_path, "x = (\n"))
    assert caught.value.where.line == 1
    assert caught.value.where.column


def test_a_failed_module_is_not_left_behind(tmp_path):
    with pytest.raises(errors.NotLoadable):
        ms.load(written(tmp_path, "raise ValueError\n", "failing_flow.py"))
    assert "failing_flow" not in sys.modules


def test_a_flow_may_import_its_neighbours(tmp_path):
    written(tmp_path, "LIMIT = 3\n", "neighbour_of_flow.py")
    text = "import neighbour_of_flow\n" + FLOW
    assert ms.load(written(tmp_path, text)).name == "made"


def test_a_flow_does_not_hide_a_module_of_its_name(tmp_path):
    import json

    ms.load(written(tmp_path, FLOW, "json.py"))
    assert sys.modules["json"] is json


def test_a_file_can_be_loaded_again_after_a_change(tmp_path):
    file = written(tmp_path, FLOW)
    ms.load(file)
    file.write_text(FLOW.replace("made", "changed"))
    assert ms.load(file).name == "changed"


def test_yaml_is_read_by_its_suffix(tmp_path):
    assert ms.load(written(tmp_path, "name: f\n", "flow.yml")).name == "f"
