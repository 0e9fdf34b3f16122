from __future__ import annotations

import pytest

from millstream.actions.matching import Input, Matching
from millstream.actions.queue import Answer
from millstream.errors import FrameTooLarge, TooManyAnswers


def inputs(*serials: int) -> list[Input]:
    return [Input("up", serial, b"%d" % serial) for serial in serials]


def test_answers_belong_to_inputs_in_order():
    matching = Matching("one")
    matching.add(inputs(1, 2, 3))
    assert [one.serial for one in matching.give()] == [1, 2, 3]
    assert matching.answered([b"a", b""]) == [Answer([b"a"], "up", 1), Answer([], "up", 2)]
    assert (matching.outstanding, matching.bytes, matching.empty) == (1, 1, False)


def test_an_empty_frame_closes_a_stream_of_answers():
    matching = Matching("stream")
    matching.add(inputs(1, 2))
    matching.give()
    assert matching.answered([b"a"]) == []
    assert matching.answered([b"b", b"", b""]) == [
        Answer([b"a", b"b"], "up", 1),
        Answer([], "up", 2),
    ]
    assert matching.empty


def test_nothing_may_be_answered_unasked():
    matching = Matching("one")
    matching.add(inputs(1))
    with pytest.raises(TooManyAnswers):
        matching.answered([b"a"])
    matching.give()
    with pytest.raises(TooManyAnswers):
        matching.answered([b"a", b"b"])


def test_of_answers_that_are_too_many_none_counts_and_nothing_is_lost():
    matching = Matching("one", attempts=2)
    matching.add(inputs(1, 2, 3))
    matching.give()
    assert len(matching.answered([b"a"])) == 1
    with pytest.raises(TooManyAnswers):
        matching.answered([b"x"] * 10)
    assert (matching.outstanding, matching.bytes) == (2, 2)
    assert matching.failed() is None
    assert [one.serial for one in matching.give()] == [2]
    for failed in (None, inputs(2)[0]):
        with pytest.raises(TooManyAnswers):
            matching.answered([b"x"] * 10)
        assert matching.failed() == failed
        assert [one.serial for one in matching.give()] == ([2] if failed is None else [3])


def test_the_last_of_several_is_not_blamed():
    matching = Matching("one", attempts=1)
    matching.add(inputs(1, 2))
    matching.give()
    matching.answered([b"a"])
    assert matching.failed() is None
    assert [one.serial for one in matching.give()] == [2]
    assert matching.failed() == inputs(2)[0]


def test_the_answers_to_one_input_are_bounded():
    matching = Matching("stream", answer_bytes=10)
    matching.add(inputs(1))
    matching.give()
    with pytest.raises(FrameTooLarge):
        matching.answered([b"123456", b"123456"])


def test_after_a_failure_inputs_go_one_by_one_until_the_culprit_is_given_up():
    matching = Matching("one", attempts=2)
    matching.add(inputs(1, 2, 3, 4))
    matching.give()
    matching.answered([b"a"])
    assert matching.failed() is None
    assert [one.serial for one in matching.give()] == [2]
    assert matching.give() == []
    matching.add(inputs(5))
    matching.answered([b"b"])
    assert [one.serial for one in matching.give()] == [3]
    assert matching.failed() is None
    assert [one.serial for one in matching.give()] == [3]
    assert matching.failed() == inputs(3)[0]
    assert [one.serial for one in matching.give()] == [4, 5]
    assert matching.bytes == 2


def test_half_an_answer_is_forgotten_with_its_program():
    matching = Matching("stream")
    matching.add(inputs(1, 2))
    matching.give()
    matching.answered([b"half"])
    matching.failed()
    matching.give()
    assert matching.answered([b"whole", b""]) == [Answer([b"whole"], "up", 1)]


def test_a_program_that_fails_with_nothing_to_do_blames_nobody():
    matching = Matching("one", attempts=1)
    assert matching.failed() is None
    matching.add(inputs(1))
    assert matching.failed() is None
    assert [one.serial for one in matching.give()] == [1]
