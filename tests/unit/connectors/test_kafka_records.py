from __future__ import annotations

import datetime
import io
import json
import struct
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

import millstream as ms
from millstream.connectors.kafka import Kafka
from millstream.connectors.kafka.checks import check_kafka
from millstream.connectors.kafka.records import Records, records_of
from millstream.errors import NotThere, UnknownFormat, UnsupportedColumn


@dataclass
class Message:
    """A record as confluent-kafka's `Message` is: the class itself cannot be made in Python."""

    content: bytes | None
    at: int = 0
    named: bytes | None = None
    extras: list[tuple[str, bytes | None]] | None = None
    moment: tuple[int, int] = field(default=(1, 1_700_000_000_000))

    def value(self) -> bytes | None:
        return self.content

    def key(self) -> bytes | None:
        return self.named

    def headers(self) -> Any:
        return self.extras

    def timestamp(self) -> tuple[int, int]:
        return self.moment

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at

    def topic(self) -> str:
        return "orders"


def records(ddl: str, root: Path = Path(), **options: Any) -> Records:
    spec = ms.kafka("orders", ddl, servers="b:1", **options)
    return records_of(spec, spec.schema.arrow(), root)


def messages(*values: bytes | None, first: int = 10) -> list[Message]:
    return [Message(value, at) for at, value in enumerate(values, first)]


def test_rows_are_numbered_by_offsets_and_bad_ones_are_refused_by_theirs() -> None:
    found = records("n long").rows(messages(b'{"n": 1}', b"{", None, b" ", b'{\n"n": 2\n}'))
    assert found.batch.to_pylist() == [{"n": 1}, {"n": 2}]
    assert found.numbers.tolist() == [10, 14]
    assert [(one.number, one.record) for one in found.refused] == [(11, "{"), (13, "")]


def test_offsets_may_have_gaps() -> None:
    given = [Message(b'{"n": 1}', 10), Message(b"{", 12), Message(b'{"n": 3}', 15)]
    found = records("n long").rows(given)
    assert found.numbers.tolist() == [10, 15]
    assert [one.number for one in found.refused] == [12]


def test_a_tombstone_is_passed_over_or_a_row_of_nulls() -> None:
    given = messages(b'{"n": 1}', None, b'{"n": 2}')
    assert records("n long").rows(given).numbers.tolist() == [10, 12]
    found = records("n long", tombstones=True).rows(given)
    assert found.batch.column(0).to_pylist() == [1, None, 2]
    assert found.numbers.tolist() == [10, 11, 12]


def test_what_kafka_knows_of_a_record_fills_columns() -> None:
    ddl = "t string, p int, o long, at timestamp, h map<string,string>, k string, n long"
    names = {"topic": "t", "partition": "p", "offset": "o", "timestamp": "at", "headers": "h"}
    made = records(ddl, metadata={**names, "key": "K"})
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    found = made.rows([Message(b'{"n": 1}', 7, b"key", headers), Message(b'{"n": 2}', 8)])
    first, second = found.batch.to_pylist()
    assert (first["t"], first["p"], first["o"], first["k"], first["n"]) == (
        "orders",
        3,
        7,
        "key",
        1,
    )
    assert (first["at"].timestamp(), dict(first["h"])) == (1_700_000_000, {"a": "2", "b": None})
    assert (second["k"], second["h"]) == (None, [])


def test_a_key_that_is_not_text_is_refused_unless_its_column_is_binary() -> None:
    given = [Message(b'{"n": 1}', 1, b"\xff"), Message(b'{"n": 2}', 2, b"b")]
    found = records("n long, k string", metadata={"key": "k"}).rows(given)
    assert (found.numbers.tolist(), [one.number for one in found.refused]) == ([2], [1])
    assert "key is not UTF-8" in found.refused[0].reason
    assert len(records("n long, k binary", metadata={"key": "k"}).rows(given)) == 2


def test_csv_and_raw_values() -> None:
    found = records("n long, s string", format="csv").rows(messages(b"1,a", b'2,"b,c"', b"x,y"))
    assert found.batch.to_pylist() == [{"n": 1, "s": "a"}, {"n": 2, "s": "b,c"}]
    assert [one.number for one in found.refused] == [12]
    text = records("body string", format="raw").rows(messages(b"a", b"\xff", b""))
    assert (text.batch.column(0).to_pylist(), text.numbers.tolist()) == (["a", ""], [10, 12])
    whole = records("body binary", format="raw").rows(messages(b"\xff\n"))
    assert whole.batch.column(0).to_pylist() == [b"\xff\n"]


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {"name": "unread", "type": "double"},
    ],
}
ORDER = {"id": 5, "note": None, "at": 1_000_000, "tags": ["a"], "more": {"x": 1}, "unread": 0.5}
AVRO_DDL = "id long, note string, at timestamp, tags array<string>, more map<string,int>, new int"


def avro(record: dict[str, Any], schema: Any = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def test_avro_with_a_schema_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    made = records(AVRO_DDL, tmp_path, format="avro", schema_file="order.avsc")
    good = avro(ORDER)
    found = made.rows(messages(good, good[:-3], good + b"x", b"\n"))
    (row,) = found.batch.to_pylist()
    assert (row["id"], row["note"], row["tags"], dict(row["more"])) == (5, None, ["a"], {"x": 1})
    assert (row["at"].timestamp(), row["new"]) == (1.0, None)
    assert [one.number for one in found.refused] == [11, 12, 13]
    assert found.refused[0].reason.startswith("malformed record: it does not follow")


def test_avro_types_that_spark_does_not_have_are_text(tmp_path: Path) -> None:
    uuid = {"type": "string", "logicalType": "uuid"}
    time = {"type": "int", "logicalType": "time-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    kinds = {"id": ["null", uuid], "opens": time, "price": price}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "Shop", "fields": fields}
    (tmp_path / "shop.avsc").write_text(json.dumps(schema))
    row = {"id": UUID(int=7), "opens": datetime.time(9, 30), "price": Decimal("1.25")}
    ddl = "id string, opens string, price decimal(9,2)"
    made = records(ddl, tmp_path, format="avro", schema_file="shop.avsc")
    (found,) = made.rows(messages(avro(row, schema))).batch.to_pylist()
    assert found == {**row, "id": str(row["id"]), "opens": "09:30:00"}


@pytest.mark.parametrize("holds", ["R", ["null", "R"], {"type": "array", "items": "R"}])
def test_an_avro_value_that_is_nested_too_deeply_is_refused(tmp_path: Path, holds: Any) -> None:
    fields = [{"name": "n", "type": "int"}, {"name": "more", "type": holds}]
    schema = {"type": "record", "name": "R", "namespace": "shop", "fields": fields}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    made = records("n int", tmp_path, format="avro", schema_file="r.avsc")
    (refused,) = made.rows(messages(b"\x02" * 200_000)).refused
    assert "nested too deeply" in refused.reason
    if holds != "R":  # which never ends
        row = {"n": 7, "more": None if isinstance(holds, list) else []}
        assert made.rows(messages(avro(row, schema))).batch.to_pylist() == [{"n": 7}]


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "5",
        "null",
        '"orders"',
        '{"fields": {}}',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "E", "fields": [5]}',
    ],
)
def test_what_is_no_avro_schema_is_an_error_with_its_file(tmp_path: Path, schema: str) -> None:
    (tmp_path / "no.avsc").write_text(schema)
    with pytest.raises(UnknownFormat, match=r'no.avsc" is not an Avro schema: .'):
        records("n int", tmp_path, format="avro", schema_file="no.avsc")


def test_an_avro_value_of_white_space_is_a_value(tmp_path: Path) -> None:
    one = {"type": "record", "name": "One", "fields": [{"name": "n", "type": "int"}]}
    (tmp_path / "one.avsc").write_text(json.dumps(one))
    made = records("n int", tmp_path, format="avro", schema_file="one.avsc")
    assert made.rows(messages(b" ")).batch.to_pylist() == [{"n": 16}]


def test_a_value_of_another_type_than_its_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    made = records("id string", tmp_path, format="avro", schema_file="order.avsc")
    (refused,) = made.rows(messages(avro(ORDER))).refused
    assert 'column "id": expected string, not 5' in refused.reason


PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Size { SMALL = 0; LARGE = 1; }
message Line { string sku = 1; int32 count = 2; }
message Order {
  int64 id = 1; optional string note = 2; Size size = 3; repeated Line lines = 4;
  map<string, double> prices = 5; google.protobuf.Timestamp at = 6; bytes raw = 7; bool paid = 8;
}
"""
PROTO_DDL = (
    "id long, note string, size string, lines array<struct<sku:string,count:int>>,"
    "prices map<string,double>, at timestamp, raw binary, paid boolean"
)


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    (tmp_path / "shop.proto").write_text(PROTO)
    return tmp_path


def test_protobuf_with_a_proto_file_and_a_descriptor_set(proto: Path) -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    from millstream.connectors.kafka.formats.protobuf import _compiled

    raw = _compiled(proto / "shop.proto")
    (proto / "shop.desc").write_bytes(raw)
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(one)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    value = order(id=7, size=1, prices={"a": 0.5}, raw=b"\0", at={"seconds": 9, "nanos": 5_000})
    value.lines.add(sku="s", count=2)
    for file in ("shop.proto", "shop.desc"):
        options = {"format": "protobuf", "schema_file": file, "message": "shop.Order"}
        found = records(PROTO_DDL, proto, **options).rows(
            messages(value.SerializeToString(), b"\x08", b"")
        )
        row, empty = found.batch.to_pylist()
        assert (row["id"], row["note"], row["size"], row["raw"]) == (7, None, "LARGE", b"\0")
        assert (row["lines"], row["prices"]) == ([{"sku": "s", "count": 2}], [("a", 0.5)])
        assert (row["at"].timestamp(), row["paid"]) == (9.000005, False)
        assert (empty["id"], empty["at"], empty["size"]) == (0, None, "SMALL")
        assert [one.number for one in found.refused] == [11]


def test_a_schema_that_cannot_be_used_is_found_before_anything_runs(proto: Path) -> None:
    def check(**options: Any) -> None:
        spec = ms.kafka("orders", "n long", servers="b:1", **options)
        assert isinstance(spec, Kafka)
        check_kafka(spec, proto)

    with pytest.raises(NotThere, match=r"no\.avsc"):
        check(format="avro", schema_file="no.avsc")
    with pytest.raises(UnknownFormat, match="is not an Avro schema"):
        check(format="avro", schema_file="shop.proto")
    with pytest.raises(UnknownFormat, match=r"no Protobuf message .*shop\.Bill"):
        check(format="protobuf", schema_file="shop.proto", message="shop.Bill")
    spec = ms.kafka("orders", "a array<int>", servers="b:1", format="csv")
    with pytest.raises(UnsupportedColumn):
        check_kafka(spec, proto)


def test_a_value_that_names_its_schema_needs_a_number() -> None:
    made = records("id long", format="avro", registry="http://127.0.0.1:1")
    (refused,) = made.rows(messages(b"\x01abcdef")).refused
    assert "does not begin with the number of a schema" in refused.reason
    assert struct.calcsize(">bI") == 5
