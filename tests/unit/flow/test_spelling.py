"""Misspelt names in Python get the hints that YAML gives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import NotLoadable, UnknownArgument, UnknownName

COLUMNS = "shop string, amount double, at timestamp"


def orders() -> ms.Stream:
    return ms.Flow("shops").source("orders", ms.inbox(COLUMNS), time="at", key="shop")


MISTAKES: list[tuple[Callable[[], object], type[Exception], str, str]] = [
    (
        lambda: ms.parqet("out"),
        UnknownName,
        'millstream has no "parqet"',
        'did you mean "parquet"?',
    ),
    (lambda: ms.Flwo("x"), UnknownName, 'millstream has no "Flwo"', 'did you mean "Flow"?'),
    (lambda: ms.zebra, UnknownName, 'millstream has no "zebra"', "its names are"),
    (
        lambda: ms.Flow("x", swich_every="1 hour"),
        UnknownArgument,
        'Flow() has no argument "swich_every"',
        'did you mean "switch_every"?',
    ),
    (
        lambda: ms.Flow("x").source("o", ms.inbox(COLUMNS), latenes="5 s"),
        UnknownArgument,
        'source() has no argument "latenes"',
        'did you mean "lateness"?',
    ),
    (
        lambda: ms.replay("a.csv", COLUMNS, sped=2),
        UnknownArgument,
        'replay() has no argument "sped"',
        'did you mean "speed"?',
    ),
    (
        lambda: ms.Flow("x").source("orders"),
        UnknownArgument,
        "source(): missing a required argument: 'spec'",
        "its arguments are name, spec, time",
    ),
    (lambda: orders().windw("w"), UnknownName, 'Stream has no "windw"', 'did you mean "window"?'),
    (
        lambda: orders().sink("out", ms.console(), extra=1),
        UnknownArgument,
        'sink() has no argument "extra"',
        "its arguments are name, target",
    ),
    (
        lambda: ms.Pattern().begn("a"),
        UnknownName,
        'Pattern has no "begn"',
        'did you mean "begin"?',
    ),
    (
        lambda: ms.Pattern().begin("a", "amount > 1").within(lenght="1 s"),
        UnknownArgument,
        'within() has no argument "lenght"',
        "",
    ),
    (
        lambda: ms.connect("tcp://127.0.0.1:1", sendr="me"),
        UnknownArgument,
        'connect() has no argument "sendr"',
        'did you mean "sender"?',
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[2])
def test_a_misspelt_name_has_a_hint_and_the_line(
    mistake: tuple[Callable[[], object], type[Exception], str, str],
) -> None:
    call, kind, fact, hint = mistake
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert isinstance(error, UnknownName | UnknownArgument)
    assert error.message == fact
    assert (error.hint or "").startswith(hint)
    assert error.where is not None
    assert error.where.file == __file__


def test_files_takes_options_of_the_reader() -> None:
    assert ms.files("data", COLUMNS, format="csv", sep=";").options == (("sep", ";"),)
    with pytest.raises(UnknownArgument) as caught:
        ms.files("data", COLUMNS, format="csv", heade=False)
    assert caught.value.message == 'files() of csv has no argument "heade"'
    assert caught.value.hint == 'did you mean "header"?'
    with pytest.raises(UnknownArgument, match='files\\(\\) of jsonl has no argument "sep"'):
        ms.files("data", COLUMNS, format="jsonl", sep=";")


def test_the_hint_names_the_line_of_a_flow_file(tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text(
        "import millstream as ms\n\nflow = ms.Flow('x')\n"
        f"flow.source('o', ms.inbox('{COLUMNS}'), time='at', latenes='5 s')\n"
    )
    with pytest.raises(UnknownArgument) as caught:
        ms.load(file)
    assert caught.value.where is not None
    assert caught.value.where.line == 4
    file.write_text("import millstream as ms\n\nflow = ms.Flow('x')\nms.kafak('topic')\n")
    with pytest.raises(UnknownName) as unknown:
        ms.load(file)
    assert unknown.value.where is not None
    assert (unknown.value.where.line, unknown.value.where.code) == (4, "ms.kafak('topic')")
    file.write_text("import millstream as ms\n\nflow = ms.Flow('x')\nlen()\n")
    with pytest.raises(NotLoadable):
        ms.load(file)


def test_what_python_asks_objects_for_is_answered_as_before() -> None:
    stream, pattern = orders(), ms.Pattern().begin("a", "amount > 1")
    assert copy.deepcopy(pattern) == pattern
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    assert not hasattr(stream, "_ipython_display_")
    assert ms.files is ms.files
    with pytest.raises(UnknownName) as caught:
        stream.windw()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.message, error.hint) == ('Stream has no "windw"', 'did you mean "window"?')
