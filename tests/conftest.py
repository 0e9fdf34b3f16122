"""What holds for all tests.

In CI nothing that should run is skipped; examples of Hypothesis have no deadline. Two processes
share the work, a file at a time. A test of real processes that fails is run a second time, once:
whatever passes only then is listed as FLAKY at the end, and is fixed before the next feature. Soak
tests look for what is rare: they are run once.
"""

from __future__ import annotations

import compileall
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:  # most tests need no Spark
    from pyspark.sql import SparkSession

    from support.s3 import Server as S3Server

CANNOT = "cannot here:"
"""How the reason of a skip begins when this machine lacks what the test needs."""

# Spark's Java lives for seconds here, often four of them on two cores: code that is compiled once,
# and quickly, takes a quarter of their work away. By default there is room for 48 MB of it only,
# which some twenty queries fill; after that Java compiles nothing more. Heaps are small: one thread
# collects their garbage with the least work. Room for classes from the start: Java would otherwise
# look through its whole heap each time that it needs more, a tenth of the work of a start.
os.environ.setdefault(
    "MILLSTREAM_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    " -XX:MetaspaceSize=256m",
)

# Two slow cores and a garbage collection make any deadline flaky.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("quick", settings.get_profile("default"), max_examples=10)
settings.register_profile(
    "fuzz", settings.get_profile("default"), max_examples=1000 * int(os.environ.get("N") or 1)
)
settings.load_profile(os.environ.get("PROFILE") or ("ci" if os.environ.get("CI") else "default"))

#: Tests in these folders, and with these markers, start real processes.
PROCESS_FOLDERS = frozenset({"integration"})
PROCESS_MARKERS = ("spark", "postgres", "kafka", "cluster", "process")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for all tests of a process that need it."""
    from support.services import spark_session

    with spark_session(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server of our own."""
    from support.services import postgres_server

    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """The address of a Kafka broker, one for the run; tests that disturb it start their own."""
    from support.kafka import shared_broker, stop_shared_broker

    folder = tmp_path_factory.getbasetemp()
    alone = worker_id == "master"
    yield shared_broker(folder if alone else folder.parent)
    if alone:
        stop_shared_broker(folder)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server; this process, and what it starts, finds it in its environment."""
    from support.s3 import s3_server

    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


def pytest_configure(config: pytest.Config) -> None:
    """Name tests that take long, and end those that hang: in the processes that run them."""
    from support import once
    from support.overdue import Backstop, Overdue

    once.share()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Overdue(config), "overdue")
        compile_modules()
    config.pluginmanager.register(Backstop(config), "backstop")


def compile_modules() -> None:
    """Compile our modules once, also where Python is to write no bytecode.

    There, each of the thousand processes that tests start would compile all of them again, as it
    does with flows, which tests write and change within a second.
    """
    root = Path(__file__).parents[1]
    for folder in (root / "src", root / "tests" / "support"):
        compileall.compile_dir(folder, quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let pytest keep what it makes of our modules: it would take 20 s of every process, every time."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the broker that workers have shared: the last of them may not be its parent."""
    config = session.config
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        return
    from support.kafka import stop_shared_broker

    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    stop_shared_broker(factory.getbasetemp())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if PROCESS_FOLDERS & set(item.path.parts) or any(
            item.get_closest_marker(name) for name in PROCESS_MARKERS
        ):
            item.add_marker("process")
            if item.get_closest_marker("soak") is None:
                item.add_marker(pytest.mark.flaky(reruns=1))
        if item.get_closest_marker("timeout") and item.get_closest_marker("soak") is None:
            raise pytest.UsageError(f"{item.nodeid}: only soak tests have a timeout of their own")
        if os.environ.get("PROFILE") == "quick":
            _few_examples(item)


def _few_examples(item: pytest.Item) -> None:
    """Try as few examples as the profile says, also where a test asks for more: `make test` does."""
    function = getattr(item, "obj", None)
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None:
        function = getattr(function, "__func__", function)
        few = min(own.max_examples, settings.get_profile("quick").max_examples)
        function._hypothesis_internal_use_settings = settings(own, max_examples=few)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = {report.nodeid for report in terminalreporter.getreports("passed")}
    again = {report.nodeid for report in terminalreporter.getreports("rerun")}
    if again & passed:
        terminalreporter.section("FLAKY: passed at the second try only")
        for name in sorted(again & passed):
            terminalreporter.line(f"FLAKY {name}")


def _reason(longrepr: object) -> str:
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(text).removeprefix("Skipped: ")


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure in CI, unless its reason says that the machine cannot run the test."""
    if not os.environ.get("CI") or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = _reason(report.longrepr)
    if not reason.startswith(CANNOT):
        report.outcome = "failed"
        report.longrepr = (
            f'skipped in CI: {reason} (a reason that is allowed begins with "{CANNOT}")'
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report
