from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.actions.answers import Answers, pieces_of
from millstream.actions.frames import encode_all
from millstream.actions.program import Limits
from millstream.errors import FrameTooLarge, TooManyAnswers

payloads = st.lists(st.one_of(st.binary(max_size=20), st.just(b"same"), st.just(b"")), max_size=60)


def feed(answers: Answers, data: bytes, step: int) -> bool:
    done = False
    for begin in range(0, len(data), step):
        piece = data[begin : begin + step]
        answers.view()[: len(piece)] = piece
        done = answers.take(len(piece))
    return done


def joined(pieces: Iterator[memoryview]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


@given(payloads)
@settings(max_examples=100, deadline=None)
def test_a_column_becomes_the_frames_of_its_values(values):
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array([b"x", *values, b"y"], kind).slice(1, len(values))
        assert joined(pieces_of(column)) == encode_all(values)


@pytest.mark.parametrize(
    "lengths", [[100], [1], [100, 0], [99, 100, 101], [1 << 19, 3], [(1 << 18) - 4], [1 << 18]]
)
def test_a_long_column_comes_in_pieces_of_whole_frames(lengths):
    values = [
        bytes([number % 251]) * lengths[number % len(lengths)]
        for number in range(9_000 if max(lengths) < 999 else 9)
    ]
    pieces = [bytes(piece) for piece in pieces_of(pa.array(values, pa.binary()))]
    assert b"".join(pieces) == encode_all(values)
    assert len(pieces) > 1 or max(lengths) == 1
    at = 0
    for piece in pieces:
        taken = Answers(len(values), "one", Limits())
        feed(taken, piece, 1 << 16)
        assert encode_all(values[at : at + taken.complete]) == piece
        at += taken.complete


def test_null_is_a_frame_of_length_zero():
    assert joined(pieces_of(pa.array([None, b"a"]))) == encode_all([b"", b"a"])


@given(payloads.filter(bool), st.integers(1, 50))
@settings(max_examples=150, deadline=None)
def test_one_answer_each(values, step):
    answers = Answers(len(values), "one", Limits())
    assert feed(answers, encode_all(values), step)
    inputs, outputs = answers.outputs()
    expected = [(i, value) for i, value in enumerate(values) if value]
    assert list(zip(inputs.tolist(), outputs.to_pylist(), strict=True)) == expected


@given(
    st.lists(
        st.lists(st.one_of(st.binary(min_size=1, max_size=9), st.just(b"a")), max_size=30),
        min_size=1,
        max_size=9,
    ),
    st.integers(1, 50),
)
@settings(max_examples=150, deadline=None)
def test_answers_closed_by_an_empty_one(groups, step):
    answers = Answers(len(groups), "stream", Limits())
    assert feed(answers, b"".join(encode_all([*group, b""]) for group in groups), step)
    inputs, outputs = answers.outputs()
    expected = [(i, value) for i, group in enumerate(groups) for value in group]
    assert list(zip(inputs.tolist(), outputs.to_pylist(), strict=True)) == expected


def test_a_long_run_of_one_length_amid_others():
    values = [b"a", *[b"bb"] * 100, b"ccc", *[b"bb"] * 100, b""]
    answers = Answers(len(values), "one", Limits())
    assert feed(answers, encode_all(values), 1 << 20)
    assert answers.outputs()[1].to_pylist() == values[:-1]


def test_the_prefix_that_is_answered():
    answers = Answers(4, "one", Limits())
    assert not feed(answers, encode_all([b"a", b"", b"c"]) + b"\0\0", 100)
    assert answers.complete == 3
    assert answers.outputs(2)[1].to_pylist() == [b"a"]
    stream = Answers(3, "stream", Limits())
    assert not feed(stream, encode_all([b"a", b"b", b"", b"c"]), 100)
    assert stream.complete == 1
    inputs, outputs = stream.outputs()
    assert (inputs.tolist(), outputs.to_pylist()) == ([0, 0], [b"a", b"b"])


@pytest.mark.parametrize("more", [encode_all([b"x"]), encode_all([b""]), b"\0"])
def test_an_answer_too_much_is_refused(more):
    with pytest.raises(TooManyAnswers):
        feed(Answers(2, "one", Limits()), encode_all([b"a", b"b"]) + more, 100)


def test_lengths_beyond_the_limit_are_refused():
    with pytest.raises(FrameTooLarge, match="limit of 10"):
        feed(Answers(2, "one", Limits(frame_bytes=10)), encode_all([bytes(11)]), 100)
    with pytest.raises(FrameTooLarge, match="more than 100 bytes an input"):
        feed(Answers(1, "stream", Limits(answer_bytes=100)), encode_all([b"x"] * 50), 100)


def test_nothing_is_kept_of_the_buffer_but_the_outputs():
    answers = Answers(1000, "one", Limits())
    feed(answers, encode_all([b"x" * 50] * 1000), 4096)
    inputs, outputs = answers.outputs()
    assert isinstance(inputs, np.ndarray)
    assert outputs.nbytes < 70_000


@pytest.mark.parametrize("values", [[b"a"], [b"a", b"b"], [b"a", b"bb"], [b"a", b""]])
def test_outputs_stay_when_the_buffer_is_used_again(values):
    first = Answers(len(values), "one", Limits())
    feed(first, encode_all(values), 100)
    outputs = first.outputs()[1]
    second = Answers(1, "one", Limits(), buffer=first.buffer)
    assert second.buffer is first.buffer
    feed(second, encode_all([b"#" * 20]), 100)
    assert outputs.to_pylist() == [value for value in values if value]
    assert second.outputs()[1].to_pylist() == [b"#" * 20]
