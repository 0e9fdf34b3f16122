"""Programs as stages, while a flow is built."""

from __future__ import annotations

from datetime import timedelta

import pytest

import millstream as ms
from millstream.errors import FlowError, InvalidOption, TimesDiffer, UnknownColumn
from millstream.flow.describe import describe_stage
from millstream.flow.dump import dump
from millstream.flow.load import load
from millstream.flow.stages import Action
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan


def numbers() -> ms.Stream:
    return ms.Flow("words").source(
        "numbers", ms.inbox("n bigint, word string, at timestamp"), time="at", key="word"
    )


def test_an_answer_adds_its_columns_and_replaces_those_of_the_same_name() -> None:
    scored = numbers().action(
        "scored", ["./score", "-v"], input="n, word", output="score double, N int"
    )
    assert scored.columns == ("word", "at", "score", "N")
    assert (scored.time, scored.key) == ("at", "word")
    stage = scored.flow.stages["scored"]
    assert isinstance(stage, Action)
    assert (stage.argv, stage.columns, stage.contract, stage.format) == (
        ("./score", "-v"),
        ("n", "word"),
        "one",
        "json",
    )
    assert stage.label == "action score"


@pytest.mark.parametrize(
    ("options", "error", "fact"),
    [
        ({"argv": "./score -v"}, InvalidOption, "runs './score -v'"),
        ({"argv": []}, InvalidOption, "runs"),
        ({"contract": "two"}, InvalidOption, 'has the contract "two"'),
        ({"format": "xml"}, InvalidOption, 'has the format "xml"'),
        ({"format": "arrow", "contract": "stream"}, InvalidOption, "arrow and the contract stream"),
        ({"format": "raw"}, InvalidOption, "has the format raw"),
        ({"format": "raw", "input": "n"}, InvalidOption, "has the format raw"),
        ({"attempts": 0}, InvalidOption, "tries a row 0 times"),
        ({"input": "wrd"}, UnknownColumn, "wrd"),
        ({"output": "at timestamp"}, TimesDiffer, 'answers with the column "at"'),
        ({"output": "score dubble"}, FlowError, "dubble"),
        ({"time_limit": "0 s"}, FlowError, "time_limit"),
        ({"argv": ["score@new"]}, InvalidOption, 'runs "score@new"'),
        ({"conn_whitelist": ["db:5432"]}, InvalidOption, 'may connect to "db:5432"'),
        ({"conn_whitelist": "10.0.0.5:80"}, InvalidOption, "may connect to '10.0.0.5:80'"),
    ],
)
def test_mistakes_are_said_while_the_flow_is_built(options, error, fact) -> None:
    given = {"argv": ["./score"], "output": "score string"} | options
    with pytest.raises(error) as caught:
        numbers().action("scored", **given)
    assert fact in caught.value.message
    assert caught.value.hint


def test_yaml_says_the_same(tmp_path) -> None:
    stream = numbers().action(
        "scored",
        ["./score", "--on", "no"],
        input=["n"],
        output="score double",
        contract="stream",
        format="msgpack",
        env={"A": "on"},
        files=["m.bin"],
        time_limit="5 s",
        attempts=2,
        memory_bytes=1 << 30,
        conn_whitelist=["10.0.0.5:5432"],
        cpu_seconds=60,
        user="nobody",
        processes=10,
        file_bytes=1 << 20,
        sandbox="strict",
    )
    stream.sink("out", ms.memory())
    file = tmp_path / "flow.yaml"
    file.write_text(dump(stream.flow))
    again = load(file)
    assert again.stages["scored"] == stream.flow.stages["scored"]
    assert dump(again) == dump(stream.flow)


def test_what_a_program_is_given_is_part_of_what_the_group_means() -> None:
    def of(**options):
        stream = numbers().action("scored", ["./score"], output="score double", **options)
        stream.sink("out", ms.memory())
        planned = plan(stream.flow)
        return fingerprint(planned, "out")

    assert of() == of()
    assert of() == of(sandbox="usual")  # as before there was such an option
    assert of() != of(sandbox="strict")
    assert of() != of(env={"A": "1"})
    assert of() != of(input="n")


def test_an_action_has_no_state_and_no_horizon() -> None:
    stream = numbers().action("scored", ["./score"], output="score double")
    stream.sink("out", ms.memory())
    (group,) = plan(stream.flow).groups
    assert not group.stateful
    assert group.overlap == timedelta(0)
    assert describe_stage(stream.flow.stages["scored"])["argv"] == ["./score"]
