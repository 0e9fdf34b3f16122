"""Rows as Avro values of a topic: what is written is read back, and what does not fit is refused."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest

import millstream as ms
from millstream.connectors.kafka.avro_values import NUMBERED, AvroValues
from millstream.connectors.kafka.staged import (
    KEY,
    RECORD,
    SIZE,
    SPOILT,
    VALUE,
    StageRecords,
    records_of,
)
from millstream.connectors.kafka.value_schema import avro_values, check_fields
from millstream.errors import (
    BrokerAway,
    LoginRefused,
    NotThere,
    RunError,
    UnknownColumn,
    UnknownFormat,
)
from millstream.spark.io.unwritable import Unwritable, from_json

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "place", "type": "string", "default": "here"},
    ],
}
ROWS = pa.struct(
    [
        ("n", pa.int64()),
        ("note", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
NOON = datetime(2024, 5, 4, 12, tzinfo=UTC)


def stage(
    folder: Path, rows: list[Any], values: AvroValues, *, spoilt: int = -1, limit: int = 1000
) -> tuple[list[bytes], list[Unwritable]]:
    """Stage rows, of which one may have text that is none; return values and what is refused."""
    count = range(len(rows))
    columns = {
        KEY: pa.array([b"k"] * len(rows), pa.binary()),
        VALUE: pa.array(rows, ROWS),
        SPOILT: pa.array(["note" if n == spoilt else None for n in count], pa.string()),
        SIZE: pa.array([100] * len(rows), pa.int64()),
        RECORD: pa.array([f"row {n}" for n in count], pa.string()),
    }
    batch = pa.RecordBatch.from_arrays([*columns.values()], [*columns])
    work = StageRecords(str(folder), "e", limit, values)
    answers = [row for one in work.write(iter([batch])) for row in one.to_pylist()]
    found = [value for row in answers if row["file"] for value in values_of(folder / row["file"])]
    return found, from_json(row["refused"] for row in answers)


def values_of(path: Path) -> list[bytes]:
    return [value or b"" for _, value, _ in records_of(path)]


def decoded(value: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(SCHEMA), None)


def row(n: int, **rest: Any) -> dict[str, Any]:
    return {"n": n, "note": None, "at": NOON, "counts": [("a", 1)], **rest}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    values = AvroValues(json.dumps(SCHEMA))
    found, refused = stage(tmp_path, [row(1, note="ä"), row(2, at=None, counts=[])], values)
    assert not refused
    assert [decoded(one) for one in found] == [
        {"n": 1, "note": "ä", "at": NOON, "counts": {"a": 1}, "place": "here"},
        {"n": 2, "note": None, "at": None, "counts": {}, "place": "here"},
    ]


def test_rows_that_do_not_fit_are_refused_and_the_others_written(tmp_path: Path) -> None:
    after_9999 = 253_402_300_800_000_000
    rows = [
        row(0),
        row(1 << 31),
        row(2, at=pa.scalar(after_9999, pa.timestamp("us", "UTC"))),
        row(3, counts=None),
        row(4, note="x" * 900),
        row(5),
        row(6),
    ]
    found, refused = stage(tmp_path, rows, AvroValues(json.dumps(SCHEMA)), spoilt=5)
    assert [decoded(one)["n"] for one in found] == [0, 6]
    reasons = {one.record: one.fact for one in refused}
    assert set(reasons) == {f"row {n}" for n in (1, 2, 3, 4, 5)}
    assert "shop.Order.n is 2147483648, not 'int'" in reasons["row 1"]
    assert 'column "at"' in reasons["row 2"]
    assert "shop.Order.counts is None, not {" in reasons["row 3"]
    assert "max.message.bytes is 1000" in reasons["row 4"]
    assert reasons["row 5"] == 'column "note": its text is not UTF-8'


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (("n", "note", "at"), UnknownColumn, 'no column "counts", which the schema'),
        (("n", "note", "at", "counts", "more"), RunError, 'has no field "more"'),
    ],
)
def test_results_have_the_fields_of_the_schema(
    names: tuple[str, ...], error: type[Exception], message: str
) -> None:
    values = AvroValues(json.dumps(SCHEMA))
    check_fields(values, ("n", "at", "counts"), "t")
    with pytest.raises(error, match=message):
        check_fields(values, names, "t")


def topic(**given: Any) -> Any:
    return ms.kafka_topic("orders", servers="h:9092", format="avro", **given)


def test_a_schema_file_is_that_of_a_record(tmp_path: Path) -> None:
    spec, file = topic(schema_file="order.avsc"), tmp_path / "order.avsc"
    with pytest.raises(NotThere, match="does not exist"):
        avro_values(spec, tmp_path)
    for wrong in ("{", '"string"', '{"type": "record"}', '{"type": "nothing"}'):
        file.write_text(wrong)
        with pytest.raises(UnknownFormat, match="is not an Avro schema for a topic"):
            avro_values(spec, tmp_path)
    file.write_text(json.dumps(SCHEMA))
    assert avro_values(spec, tmp_path) == AvroValues(json.dumps(SCHEMA))


class Registry(BaseHTTPRequestHandler):
    """A registry with the schemas of some subjects, by number."""

    known: ClassVar[list[tuple[str, str]]] = []
    status = 200

    def do_GET(self) -> None:
        subject = self.path.split("/")[2]
        found = [n for n, (name, _) in enumerate(self.known, 1) if name == subject]
        if found:
            self.answer({"id": found[-1], "schema": self.known[found[-1] - 1][1]})
        else:
            self.answer({}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        entry = (self.path.split("/")[2], body["schema"])
        if entry not in self.known:
            self.known.append(entry)
        self.answer({"id": self.known.index(entry) + 1})

    def answer(self, tree: Any, status: int = 200) -> None:
        body = json.dumps(tree).encode()
        self.send_response(self.status if self.status != 200 else status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[tuple[str, type[Registry]]]:
    class Own(Registry):
        known: ClassVar[list[tuple[str, str]]] = [("others-value", '"string"')]

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", Own
        server.shutdown()
        thread.join()


def test_a_registry_has_the_schema_or_gets_it(
    registry: tuple[str, type[Registry]], tmp_path: Path
) -> None:
    address, served = registry
    with pytest.raises(NotThere, match='no schema of "orders-value"'):
        avro_values(topic(registry=address), tmp_path)
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    both = topic(registry=address, schema_file="order.avsc")
    values = avro_values(both, tmp_path)
    assert values.number == 2
    # Once more, it is the same; and whoever has no file finds it there.
    assert avro_values(both, tmp_path) == avro_values(topic(registry=address), tmp_path) == values
    (found,), _ = stage(tmp_path, [row(1)], values)
    assert NUMBERED.unpack_from(found) == (0, 2)
    assert decoded(found[NUMBERED.size :])["n"] == 1
    for status, error in ((401, LoginRefused), (409, UnknownFormat), (500, BrokerAway)):
        served.status = status
        with pytest.raises(error, match=r"the schema registry at 127\.0\.0\.1"):
            avro_values(both, tmp_path)
