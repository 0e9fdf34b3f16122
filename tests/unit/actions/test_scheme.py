from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.actions.dataflow import DataflowWrong, parse
from millstream.actions.hosted import settings_of
from millstream.actions.scheme import Node, Scheme, described_in, load
from millstream.actions.supervision import Start
from millstream.errors import FlowError

SIMPLEPIPE = """\
name: simplepipe
nodes:
  - name: numgen
    action: ./numgen
    addresses: [127.0.0.1:5001, 127.0.0.1:6001]
  - name: filter2
    action: ./filter
    args: [--mod, 2]
    addresses: [127.0.0.1:5002]
    env: {LEVEL: on}
  - name: printer2
    action: ./printer
    addresses: 127.0.0.1:5003
    conn_whitelist: []
  - name: filter3
    action: ./filter
    args: [--mod, 3]
    addresses: [127.0.0.1:5004]
    contract: stream
  - name: printer6
    action: ./printer
    addresses: [127.0.0.1:5005]
dataflow: numgen; filter2; (printer2 || filter3; printer6)
"""


def scheme(tmp_path: Path, text: str, name: str = "scheme.yaml") -> Scheme:
    file = tmp_path / name
    file.write_text(text)
    return load(file)


def test_a_node_has_a_sandbox(tmp_path):
    strict = SIMPLEPIPE.replace("contract: stream", "sandbox: strict")
    found = scheme(tmp_path, strict)
    assert (found.node("filter3").sandbox, found.node("filter2").sandbox) == ("strict", "usual")
    with pytest.raises(FlowError, match=r'"sandbox" of node "filter3" is "tight"'):
        scheme(tmp_path, strict.replace("strict", "tight"))


def test_the_simplepipe(tmp_path):
    found = scheme(tmp_path, SIMPLEPIPE)
    assert found.edges == (
        ("numgen", "filter2"),
        ("printer2", "printer6"),
        ("filter3", "printer6"),
        ("filter2", "printer2"),
        ("filter2", "filter3"),
    )
    assert [found.role(node.name) for node in found.nodes] == [
        "source",
        "processor",
        "processor",
        "processor",
        "sink",
    ]
    assert found.node("filter2") == Node(
        "filter2", "./filter", ("127.0.0.1:5002",), ("--mod", "2"), (("LEVEL", "on"),)
    )
    assert found.node("printer2").conn_whitelist == ()
    assert found.node("filter3").contract == "stream"


def test_json_says_the_same(tmp_path):
    import yaml

    tree = yaml.safe_load(SIMPLEPIPE)
    tree["nodes"][1]["args"] = ["--mod", "2"]
    tree["nodes"][3]["args"] = ["--mod", "3"]
    tree["nodes"][1]["env"] = {"LEVEL": "on"}
    assert scheme(tmp_path, json.dumps(tree, indent=2), "scheme.json") == scheme(
        tmp_path, SIMPLEPIPE
    )


def test_the_settings_of_a_runtime(tmp_path):
    found = scheme(tmp_path, SIMPLEPIPE)

    def settings(node, address, outs=(), generation=1):
        order = Start(node, address, generation, outs)
        return settings_of(
            found, order, folder=Path("/q"), root=Path("/r"), service=Path("/q/s"), program=None
        )

    outs = ("127.0.0.1:5003", "127.0.0.1:7004")
    got = settings("filter2", "127.0.0.1:5002", outs, generation=2)
    assert (got.name, got.generation) == ("simplepipe_filter2", 2)
    assert (got.listens, got.outs, got.service) == ("127.0.0.1:5002", outs, "/q/s")
    assert got.folder == Path("/q/simplepipe_filter2/127.0.0.1-5002")
    assert got.program.argv == ("/r/filter", "--mod", "2")
    assert (got.program.contract, got.program.env) == ("one", (("LEVEL", "on"),))
    assert got.program.whitelist is None
    assert settings("numgen", "here").source
    assert settings("printer2", "127.0.0.1:5004").program.whitelist == ()


@pytest.mark.parametrize(
    ("change", "to", "line", "column", "fact", "hint"),
    [
        (
            "numgen; filter2;",
            "numgen; ; filter2;",
            23,
            19,
            '";" stands where a node should be',
            "the name of a node",
        ),
        ("printer6)", "printer6", 23, 58, "the end comes before a bracket is closed", '")"'),
        (
            "numgen; filter2;",
            "numgen filter2;",
            23,
            18,
            '"filter2" does not belong here',
            '";", a "||" or the end',
        ),
        ("|| filter3", "| filter3", 23, 38, '"|" means nothing here', '"||"'),
        (
            "(printer2",
            "(printr2",
            23,
            29,
            'names "printr2", which is no node',
            'did you mean "printer2"?',
        ),
        ("printer6)", "printer6; filter2)", 23, 19, "goes in a circle", "a way that ends"),
        (
            "numgen; filter2; (printer2 || filter3; printer6)",
            "numgen; filter2",
            11,
            5,
            '"printer2" is not in the dataflow',
            "name it",
        ),
        (
            "name: filter3",
            "name: filter2",
            15,
            5,
            'two nodes are called "filter2"',
            "each name once",
        ),
        ("127.0.0.1:5004", "127.0.0.1", 18, 16, 'address "127.0.0.1"', "host:port"),
        ("127.0.0.1:5004", "127.0.0.1:5002", 18, 16, 'which "filter2" has', "its own"),
        (
            "whitelist: []",
            "whitelist: [db:5432]",
            14,
            21,
            '"printer2" may connect to "db:5432"',
            "10.0.0.5:5432",
        ),
        (
            "action: ./numgen",
            "action: numgen@new",
            4,
            13,
            'runs "numgen@new"',
            "numgen@2 or numgen@latest",
        ),
        (
            "contract: stream",
            "contract: two",
            19,
            15,
            '"contract" of node "filter3" is "two"',
            "one or stream",
        ),
        (
            "contract: stream",
            "contrakt: stream",
            19,
            5,
            '"contrakt", which means nothing',
            '"contract"',
        ),
        (
            "name: simplepipe",
            "name: simple pipe",
            1,
            7,
            '"simple pipe" cannot be a name',
            "letters",
        ),
        ("    action: ./numgen\n", "", 3, 5, 'node "numgen" has no "action"', "action: a program"),
        ("args: [--mod, 3]", "args: [--mod, 3", 18, 14, "is not YAML", None),
    ],
)
def test_a_mistake_is_said_with_its_place_and_what_was_expected(
    tmp_path, change, to, line, column, fact, hint
):
    assert change in SIMPLEPIPE
    text = SIMPLEPIPE.replace(change, to, 1)
    with pytest.raises(FlowError) as caught:
        scheme(tmp_path, text)
    error = caught.value
    assert fact in error.message
    assert (error.where.line, error.where.column) == (line, column)
    assert hint is None or hint in error.hint


def test_a_mistake_in_a_dataflow_of_several_lines(tmp_path):
    text = SIMPLEPIPE.replace(
        "dataflow: numgen; filter2; (", "dataflow: |\n    numgen; filter2;\n      (; "
    )
    with pytest.raises(FlowError) as caught:
        scheme(tmp_path, text)
    assert (caught.value.where.line, caught.value.where.column) == (25, 8)


def test_a_scheme_without_nodes(tmp_path):
    for text in (
        "name: x\ndataflow: a\n",
        "name: x\nnodes: []\ndataflow: a\n",
        "name: x\nnodes: a\ndataflow: a\n",
    ):
        with pytest.raises(FlowError, match="nodes"):
            scheme(tmp_path, text)


def test_signs_bind_alike_from_left_to_right():
    assert parse("a || b; c").edges == (("a", "c"), ("b", "c"))
    assert parse("a; b || c").edges == (("a", "b"),)
    assert parse("a; (b || c); d").edges == (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
    assert parse("((a))").edges == ()
    assert list(parse(" a;b ;  a-1.x ").nodes) == ["a", "b", "a-1.x"]


@given(st.text(alphabet="ab;|() ", max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused_at_a_place_in_it(text):
    offset = -1
    try:
        flow = parse(text)
    except DataflowWrong as wrong:
        offset = wrong.offset
    else:
        offset = 0
        assert set(flow.nodes) >= {name for edge in flow.edges for name in edge}
    assert 0 <= offset <= len(text)


@pytest.mark.parametrize(
    ("name", "text", "is_one"),
    [
        ("s.yaml", SIMPLEPIPE, True),
        ("s.json", json.dumps({"name": "s", "nodes": []}), True),
        ("s.yaml", "nodes: [", False),
        ("s.json", "{", True),
        ("flow.yaml", "name: f\nsources: {}\n", False),
        ("flow.py", "nodes = dataflow = 1\n", False),
    ],
)
def test_a_scheme_is_told_from_a_flow(tmp_path, name, text, is_one):
    (tmp_path / name).write_text(text)
    assert described_in(tmp_path / name) is is_one
