"""What travels is read back as it was, and whatever else arrives is refused with BadFrame and nothing else."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import errors
from millstream.errors import BadFrame, LinkBroken, NotThere
from millstream.links import envelope
from support.links import batch

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("yes", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("of", pa.map_(pa.string(), pa.int32())),
        ("in", pa.struct([("x", pa.float64()), ("y", pa.large_string())])),
    ]
)


def nested(count: int) -> pa.RecordBatch:
    rows = [
        {
            "text": None if n % 5 == 0 else f"täxt {n}",
            "raw": bytes([n % 256]) * (n % 4),
            "n": n,
            "at": n * 1_000_000,
            "yes": n % 2 == 0,
            "price": None,
            "tags": None if n % 3 == 0 else [str(n)] * (n % 3),
            "of": [("a", n)],
            "in": {"x": n / 2, "y": "ö" * (n % 3)},
        }
        for n in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


REQUESTS: list[envelope.Request] = [
    envelope.Ask(1, "f.s"),
    envelope.Rows(2, "f.s", 3, "till", -1, 10, 20, 0),
    envelope.Instruct(3, "f.s", 0, "till", 7, 8, "WATERMARK", -5),
    envelope.Instruct(4, "f.s", 0, "till", 7, 8, "END_OF_STREAM"),
    envelope.PutDeadLetter(5, "f.s", 0, "till", [(3, "no JSON", "{")]),
]
ANSWERS: list[envelope.Answer] = [
    envelope.SourceInfo(
        1, "f.s", b"schema", 0, "at", None, [envelope.Place("127.0.0.1", 7000, 0, None)]
    ),
    envelope.TakenAnswer(2, 5, 9, 100, 1, 2),
    envelope.Done(3, [], 4),
    envelope.Refusal(4, "NotThere", "it is gone", "look again"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_is_read_back(request_: envelope.Request) -> None:
    assert envelope.decode_request(envelope.encode(request_)) == request_


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda one: type(one).__name__)
def test_an_answer_is_read_back(answer: envelope.Answer) -> None:
    assert envelope.decode_answer(envelope.encode(answer)) == answer


def test_the_first_bytes_never_change() -> None:
    assert envelope.encode(envelope.Ask(1, "f.s")) == b"MS\x01" + msgspec.msgpack.encode(
        ["ask", 1, "f.s", None, 0, 0]
    )


def test_headers_of_the_version_before_are_read() -> None:
    old = {
        ("ask", 1, "f.s"): envelope.Ask(1, "f.s"),
        ("rows", 1, "f.s", 0, "a", -1, 0, 5, 0): envelope.Rows(1, "f.s", 0, "a", -1, 0, 5, 0),
        ("instruct", 1, "f.s", 0, "a", -1, 5, "IDLE", None): envelope.Instruct(
            1, "f.s", 0, "a", -1, 5, "IDLE"
        ),
        ("bury", 1, "f.s", 0, "a", ()): envelope.PutDeadLetter(1, "f.s", 0, "a", []),
    }
    for header, request in old.items():
        found = envelope.decode_request(b"MS\x01" + msgspec.msgpack.encode(header))
        assert found == request
        assert getattr(found, "incarnation") == 0  # noqa: B009
    card = ["card", 1, "f.s", b"", 0, None, None, [], False, []]
    answer = envelope.decode_answer(b"MS\x01" + msgspec.msgpack.encode(card))
    assert isinstance(answer, envelope.SourceInfo)
    assert answer.incarnation is None


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "does not begin as ours"),
        (b"GET / HTTP/1.1", "does not begin as ours"),
        (b"MS", "version none"),
        (b"MS\x02" + envelope.encode(REQUESTS[0])[3:], "has version 2, this program speaks 1"),
        (b"MS\x01", "a header cannot be read"),
        (envelope.encode(REQUESTS[1])[:-1], "a header cannot be read"),
        (envelope.encode(REQUESTS[1]) + b"x", "a header cannot be read"),
        (b"MS\x01" + msgspec.msgpack.encode(["ask", -1, "f.s"]), "a header cannot be read"),
        (b"MS\x01" + msgspec.msgpack.encode(["ask", 1, "s" * 600]), "a header cannot be read"),
        (b"MS\x01" + msgspec.msgpack.encode(["none", 1, "f.s"]), "a header cannot be read"),
        (b"MS\x01" + msgspec.msgpack.encode({"request": 1}), "a header cannot be read"),
        (b"MS\x01" + b"\x93\xa3ask\x01\xa3\xff\xfe\xfd", "a header cannot be read"),
        (b"MS\x01" + b"\x91" * 5000, "a header cannot be read"),
        (b"MS\x01" + b"\xdd\xff\xff\xff\xff", "a header cannot be read"),
    ],
)
def test_what_is_no_header_is_refused(frame: bytes, said: str) -> None:
    with pytest.raises(BadFrame, match=said):
        envelope.decode_request(frame)


def test_an_answer_is_no_request() -> None:
    with pytest.raises(BadFrame):
        envelope.decode_request(envelope.encode(ANSWERS[1]))
    with pytest.raises(BadFrame):
        envelope.decode_answer(envelope.encode(REQUESTS[1]))


# batches


@pytest.mark.parametrize("given_", [batch(0, 10), nested(10)], ids=["flat", "nested"])
def test_a_batch_goes_into_the_journal_as_it_came(given_: pa.RecordBatch) -> None:
    body = given_.serialize()
    found, message = envelope.decode_batch(memoryview(body), given_.schema, 10)
    assert found.equals(given_)
    assert message is not None
    assert message.to_pybytes() == body.to_pybytes()


def test_a_part_of_a_batch_is_sent_without_the_rest() -> None:
    part = nested(1000)[500:510]
    body = part.serialize()
    assert body.size < 6000
    assert envelope.decode_batch(body, SCHEMA, 10)[0].equals(part)


def compressed(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    one = pa.record_batch([pa.array(["x" * 1000] * 1000)], names=["text"])
    with pa.ipc.new_stream(
        sink, one.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(one)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    body: bytes = messages.read_next_message().serialize().to_pybytes()
    return body


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_batch_is_refused_before_it_swells(codec: str) -> None:
    body = compressed(codec)
    assert len(body) < 20_000
    with pytest.raises(BadFrame, match="a batch is compressed"):
        envelope.decode_batch(body, pa.schema([("text", pa.string())]), 1000)


def test_another_message_than_a_batch_is_refused() -> None:
    with pytest.raises(BadFrame, match="this is a schema"):
        envelope.decode_batch(SCHEMA.serialize(), SCHEMA, 1)


@pytest.mark.parametrize(("rows", "announced"), [(5, 4), (5, 6), (0, 0), (5, 0), (70_000, 70_000)])
def test_counts_must_agree_and_have_a_limit(rows: int, announced: int) -> None:
    with pytest.raises(BadFrame, match=f"a batch has {rows} rows, {announced} were announced"):
        envelope.decode_batch(batch(0, rows).serialize(), batch(0, 0).schema, announced)


def test_a_batch_of_other_columns_is_refused() -> None:
    with pytest.raises(BadFrame):
        envelope.decode_batch(batch(0, 5).serialize(), SCHEMA, 5)


def test_text_that_is_no_text_is_refused() -> None:
    body = pa.record_batch([pa.array([b"\xff\xfe"])], names=["text"]).serialize()
    with pytest.raises(BadFrame, match="a batch cannot be read"):
        envelope.decode_batch(body, pa.schema([("text", pa.string())]), 1)


@pytest.mark.parametrize("offset", [-1, 1 << 30, 3])
def test_offsets_that_lie_are_refused(offset: int) -> None:
    one = pa.record_batch([pa.array(["ab", "cd", "ef"])], names=["text"])
    body = bytearray(one.serialize().to_pybytes())
    at = body.index(struct.pack("<4i", 0, 2, 4, 6))
    body[at + 4 : at + 8] = struct.pack("<i", offset)
    if offset == 3:
        body[at + 8 : at + 12] = struct.pack("<i", 2)  # they go backwards
    with pytest.raises(BadFrame):
        envelope.decode_batch(bytes(body), one.schema, 3)


# numbers


def header(first: int, rows: int) -> envelope.Rows:
    return envelope.Rows(1, "f.s", 0, "a", -1, first, rows, 0)


def test_numbers_without_gaps_need_no_frame() -> None:
    assert envelope.encode_numbers(range(3, 9)) is None
    assert envelope.encode_numbers([3, 4, 5]) is None
    assert envelope.decode_numbers(None, header(3, 6)) == range(3, 9)


def test_numbers_do_not_go_beyond_what_there_is() -> None:
    with pytest.raises(BadFrame, match="beyond"):
        envelope.decode_numbers(None, header(1 << 62, 6))


def test_numbers_with_gaps_have_a_frame() -> None:
    frame = envelope.encode_numbers([3, 5, 1 << 40])
    assert frame == struct.pack("<3q", 3, 5, 1 << 40)
    assert list(envelope.decode_numbers(memoryview(frame), header(3, 3))) == [3, 5, 1 << 40]


@pytest.mark.parametrize(
    "numbers",
    [
        [3, 5, 5],
        [3, 5, 4],
        [4, 5, 6],
        [-3, 5, 6],
        [3, 5, (1 << 62) + 1],
        [3, (1 << 63) - 1, -(1 << 63)],  # whose difference overflows to 1
        [3, 5],
        [3, 5, 6, 7],
    ],
)
def test_numbers_that_do_not_rise_are_refused(numbers: list[int]) -> None:
    with pytest.raises(BadFrame):
        envelope.decode_numbers(np.array(numbers, "<i8").tobytes(), header(3, 3))


# errors


def test_an_error_travels_as_what_it_is() -> None:
    found = envelope.error_of(envelope.Refusal(1, "NotThere", "it is gone", "look again"))
    assert isinstance(found, NotThere)
    assert (found.message, found.hint) == ("it is gone", "look again")


@pytest.mark.parametrize("name", ["CorruptBatch", "dataclass", "Path", "_rebuild", "", "no such"])
def test_a_name_that_is_none_of_ours_is_a_broken_link(name: str) -> None:
    assert isinstance(envelope.error_of(envelope.Refusal(1, name, "?", None)), LinkBroken)


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.endswith("Closed")])
def test_all_closed_errors_travel(name: str) -> None:
    assert type(envelope.error_of(envelope.Refusal(1, name, "?", None))).__name__ == name


# anything at all


def decode(frame: bytes) -> None:
    for call in (envelope.decode_request, envelope.decode_answer):
        try:
            call(frame)
        except BadFrame:
            continue


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_are_no_header(raw: bytes) -> None:
    decode(raw)
    decode(b"MS\x01" + raw)


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Damage bytes as the hostile do: cut, overwrite, insert, large lengths."""
    found = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) or 1)
        match chance.randrange(5):
            case 0:
                del found[at:]
            case 1 if found:
                found[at] = chance.randrange(256)
            case 2:
                found[at : at + 4] = struct.pack(
                    "<i", chance.choice([-1, 0, 1, 1 << 20, (1 << 31) - 1, -(1 << 31)])
                )
            case 3:
                found[at : at + 8] = struct.pack(
                    "<q", chance.choice([-1, 1 << 40, (1 << 63) - 1, -(1 << 63)])
                )
            case _:
                found[at:at] = chance.randbytes(chance.randint(1, 9))
    return bytes(found)


@given(st.integers(min_value=0), st.sampled_from(REQUESTS + ANSWERS))
@settings(max_examples=300)
def test_damaged_headers_are_refused_or_read(seed: int, one: Any) -> None:
    decode(mutated(envelope.encode(one), random.Random(seed)))


BODIES = [
    (nested(40).serialize().to_pybytes(), SCHEMA),
    (batch(0, 40).serialize().to_pybytes(), batch(0, 0).schema),
]


@given(st.integers(min_value=0), st.sampled_from([0, 1]))
@settings(max_examples=1500)
def test_damaged_batches_are_refused_or_sound(seed: int, which: int) -> None:
    body, schema = BODIES[which]
    chance = random.Random(seed)
    try:
        found, message = envelope.decode_batch(mutated(body, chance), schema, 40)
    except BadFrame:
        return
    # What was not refused can be used in every way: it is cut, sorted by a column, written and read
    # again.
    assert found.num_rows == 40
    found.take(pc.sort_indices(found.column("n"))).validate(full=True)
    kept = found[3:20].serialize() if message is None else message
    again = pa.ipc.read_record_batch(kept, schema)
    again.validate(full=True)
    assert again.num_rows == (17 if message is None else 40)


@given(st.binary(max_size=300), st.integers(min_value=0, max_value=10))
@settings(max_examples=300)
def test_random_bytes_are_no_batch(raw: bytes, rows: int) -> None:
    with pytest.raises(BadFrame):
        envelope.decode_batch(raw, SCHEMA, rows)
