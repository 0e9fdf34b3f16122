"""The public names of the package."""

import ast
import doctest
import inspect
import subprocess
import sys
import textwrap
import types
from importlib import metadata

import pytest

import millstream as ms
from millstream import errors
from millstream.connectors import inbox
from millstream.flow import schema
from millstream.plan.groups import plan as plan_of


def test_all_is_exactly_what_can_be_imported():
    homes = {name for names in ms._HOMES.values() for name in names}
    assert sorted(ms.__all__) == sorted(homes | {"__version__"})
    assert [name for name in ms.__all__ if getattr(ms, name, None) is None] == []
    own = {name for name, value in vars(ms).items() if not isinstance(value, types.ModuleType)}
    helpers = {"annotations", "import_module", "FunctionType", "TYPE_CHECKING", "Any", "Final"}
    assert {name for name in own if not name.startswith("_")} <= helpers | set(ms.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match='millstream has no "Nothing"'):
        ms.Nothing  # noqa: B018
    assert not hasattr(ms, "Nothing")
    assert not hasattr(ms, "__wrapped__")


def test_the_public_names_are_these():
    names = {"Flow", "Stream", "MillstreamError", "compiled", "load", "secret", "__version__"}
    clients = {"connect", "connect_async", "Client", "AsyncClient"}
    sources = {"inbox", "files", "kafka", "rate", "replay", "watchers"}
    files = {"parquet", "jsonl", "csv", "table"}
    targets = {"console", "kafka_topic", "memory", "outbox", "postgres"}
    patterns = {"Pattern", "Phenomenon", "Watcher", "match", "plot", "show", "sql"}
    assert set(ms.__all__) == names | clients | sources | files | targets | patterns


def test_the_version_is_the_project_s():
    assert metadata.version("millstream") == ms.__version__


def test_describing_a_flow_loads_neither_spark_nor_arrow():
    code = "import sys, millstream; print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_call_says_what_it_is_for():
    for name in ms.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(ms, name)), name


def test_the_tree_of_errors_is_drawn_as_it_is():
    tree = ast.get_docstring(ast.parse(inspect.getsource(errors)))
    members = [
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.FlowError)
    ]
    assert [name for name in members if name not in tree] == []


def test_the_examples_in_the_docstrings_are_true():
    for room in (schema, inbox):
        found = doctest.testmod(room)
        assert found.attempted
        assert not found.failed


def test_the_example_of_the_package_can_be_planned():
    names: dict[str, object] = {}
    exec(
        textwrap.dedent(ms.__doc__[ms.__doc__.index("    import") : ms.__doc__.index("These")]),
        names,
    )
    assert [group.name for group in plan_of(names["flow"]).groups] == ["hourly"]
