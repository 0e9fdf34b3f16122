from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millstream.errors import JournalUnreadable, SchemaConflict
from millstream.journal.kinds.files.description import create, describe
from millstream.journal.kinds.files.layout import description_file


def test_a_journal_is_described_as_it_was_made(tmp_path: Path, schema: pa.Schema) -> None:
    made = create(
        tmp_path / "deep" / "journal", schema, partitions=3, time="at", written_by="group"
    )
    found = describe(tmp_path / "deep" / "journal")
    assert found == made
    assert (found.partitions, found.time, found.written_by, found.version) == (3, "at", "group", 0)


def test_making_it_again_changes_nothing(journal: Path, schema: pa.Schema) -> None:
    before = description_file(journal).stat()
    assert create(journal, schema, time="at").schemas == (schema,)
    assert description_file(journal).stat().st_mtime_ns == before.st_mtime_ns


def test_nullable_columns_can_be_added(journal: Path, schema: pa.Schema) -> None:
    wider = schema.append(pa.field("extra", pa.int64()))
    assert create(journal, wider, time="at").schemas == (schema, wider)


def test_who_knows_the_columns_of_before_gets_the_wider_journal(
    journal: Path, schema: pa.Schema
) -> None:
    wider = schema.append(pa.field("extra", pa.int64()))
    made = create(journal, wider, time="at")
    assert create(journal, schema, time="at") == describe(journal) == made
    with pytest.raises(SchemaConflict, match='"name"'):
        create(journal, wider.remove(1), time="at")


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda s: s.append(pa.field("extra", pa.int64(), nullable=False)), "not nullable"),
        (lambda s: s.remove(1), '"name"'),
        (lambda s: s.set(1, pa.field("name", pa.int64())), '"name"'),
    ],
    ids=["added and not nullable", "removed", "another type"],
)
def test_other_changes_of_the_schema_are_refused(
    journal: Path, schema: pa.Schema, change: object, fact: str
) -> None:
    with pytest.raises(SchemaConflict, match=fact):
        create(journal, change(schema), time="at")  # type: ignore[operator]


def test_what_a_group_writes_has_the_partitions_that_it_was_made_with(
    tmp_path: Path, schema: pa.Schema
) -> None:
    create(tmp_path, schema, time="at", written_by="group")
    with pytest.raises(SchemaConflict, match="partitions 1, not 2"):
        create(tmp_path, schema, time="at", partitions=2, written_by="group")


@pytest.mark.parametrize("time", ["name", "nothing"])
def test_the_time_column_must_be_a_timestamp(tmp_path: Path, schema: pa.Schema, time: str) -> None:
    with pytest.raises(SchemaConflict, match=time):
        create(tmp_path, schema, time=time)


def test_dictionaries_are_refused_also_inside_lists(tmp_path: Path) -> None:
    inner = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    with pytest.raises(SchemaConflict, match="dictionary"):
        create(tmp_path, pa.schema([("names", inner)]))


def test_a_damaged_or_newer_description_is_said_to_be_so(journal: Path) -> None:
    file = description_file(journal)
    good = file.read_text()
    file.write_text(good.replace('"format": 1', '"format": 99'))
    with pytest.raises(JournalUnreadable, match="format 99"):
        describe(journal)
    file.write_text(good[:50])
    with pytest.raises(JournalUnreadable, match="damaged"):
        describe(journal)
