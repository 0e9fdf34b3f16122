import pyarrow as pa
import pytest

from millstream.errors import DuplicateColumn, InvalidSchema, UnknownType
from millstream.flow.schema import Field, Schema


def test_a_column_list_is_read_with_spark_s_own_spelling_of_types():
    schema = Schema.parse("flight string, n long, at timestamp, tags array<string>")
    assert [(field.name, field.type) for field in schema] == [
        ("flight", "string"),
        ("n", "bigint"),
        ("at", "timestamp"),
        ("tags", "array<string>"),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INTEGER", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("dec", "decimal(10,0)"),
        ("numeric(12)", "decimal(12,0)"),
        ("decimal( 5 , 2 )", "decimal(5,2)"),
        ("varchar(20)", "string"),
        ("map<string, array<struct<a: int, b long>>>", "map<string,array<struct<a:int,b:bigint>>>"),
        ("struct<`a b`: int>", "struct<`a b`:int>"),
        ("timestamp_ntz", "timestamp_ntz"),
    ],
)
def test_a_type_has_one_spelling(text, found):
    assert Schema.parse(f"x {text}").fields == (Field("x", found),)


def test_colons_quotes_and_comments_are_read_as_spark_reads_them():
    assert Schema.parse("`odd ``name` int comment 'it''s', b: double").names == ("odd `name", "b")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "the end"),
        ("a", "a type"),
        ("a int,", "a column name"),
        ("a int b int", '"b"'),
        ("a array<int", '">"'),
        ("a decimal(x)", "a number"),
        ("a int; b int", '";"'),
        ("a int not null", "not null"),
        ("<a int", "a column name"),
    ],
)
def test_what_is_not_a_column_list_is_refused_at_the_place(text, part):
    with pytest.raises(InvalidSchema) as caught:
        Schema.parse(text)
    assert part in caught.value.message


@pytest.mark.parametrize(
    "text", ["a strin", "a tuple<int>", "a decimal(40,2)", "a decimal(2,3)", "a interval"]
)
def test_a_type_that_spark_or_a_journal_does_not_know_is_refused(text):
    with pytest.raises(UnknownType):
        Schema.parse(text)


def test_a_misspelled_type_is_met_with_the_one_that_was_meant():
    with pytest.raises(UnknownType) as caught:
        Schema.parse("at timestmp")
    assert caught.value.hint == 'did you mean "timestamp"?'


def test_two_columns_of_one_name_are_refused_whatever_their_case():
    with pytest.raises(DuplicateColumn):
        Schema.parse("a int, A string")


def test_columns_are_found_in_any_case():
    schema = Schema.parse("Delay double")
    assert schema.find("DELAY") == Field("Delay", "double")
    assert "delay" in schema
    assert 3 not in schema


def test_the_arrow_schema_has_microseconds_in_utc_and_reads_back():
    text = "a string, b boolean, c tinyint, d smallint, e int, f bigint, g float, h double, i binary, j date, "
    text += "at timestamp, n timestamp_ntz, p decimal(5,2), q array<int>, r map<string,double>, s struct<x:int,y:string>"
    schema = Schema.parse(text)
    assert schema.arrow().field("at").type == pa.timestamp("us", "UTC")
    assert Schema.from_arrow(schema.arrow()) == schema


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.uint16(), "int"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.large_list(pa.int8()), "array<tinyint>"),
        (pa.decimal256(40, 1), "decimal(40,1)"),
    ],
)
def test_types_of_other_files_are_read_as_spark_would(found, text):
    assert Schema.from_arrow(pa.schema([("x", found)])).fields[0].type == text


def test_an_arrow_type_that_spark_has_not_is_refused():
    with pytest.raises(UnknownType):
        Schema.from_arrow(pa.schema([("x", pa.duration("s"))]))


def test_a_schema_whose_types_only_spark_knows_has_no_arrow_form():
    schema = Schema.of(("a", None))
    assert not schema.complete
    with pytest.raises(InvalidSchema, match="known only to Spark"):
        schema.arrow()
    with pytest.raises(InvalidSchema):
        _ = schema.ddl


def test_the_ddl_of_a_schema_reads_back():
    schema = Schema.parse("a int, `b c` struct<d:array<string>>")
    assert Schema.parse(schema.ddl) == schema
