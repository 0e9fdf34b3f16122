"""The API does what its description says: schemathesis asks it whatever the description allows, and what it does not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

from millstream.engine.http.limits import RequestLimits
from millstream.engine.http.routes import DESCRIPTION, OPERATIONS
from millstream.engine.inboxes.intake import ARROW, NDJSON
from millstream.engine.jobs import lifecycle as life
from support.served import Served, serving


@schemathesis.serializer(NDJSON, ARROW)
def as_it_is(_context: schemathesis.SerializationContext, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


schema = schemathesis.openapi.from_dict(DESCRIPTION)
EVERYTHING = RequestLimits(per_second=1e9, burst=1 << 30, room_seconds=5.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("engine"), limits=EVERYTHING) as found:
        found.deploy()
        found.engine.tell("f", life.Finished())
        yield found


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=15,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
def test_the_engine_answers_as_it_is_described(case: schemathesis.Case, engine: Served) -> None:
    if case.meta.generation.mode.is_positive:
        make_sense(case)
    if case.path == "/live":
        case.query = {**(case.query or {}), "once": "true"}  # who asks for all waits forever
    engine.server.api.stopping = False
    # Few texts are Arrow streams, which the description cannot say.
    senseless = [positive_data_acceptance] if case.media_type == ARROW else []
    case.call_and_validate(
        base_url=engine.server.url,
        headers={"Authorization": f"Bearer {engine.server.token}"},
        excluded_checks=senseless,
    )


def make_sense(case: schemathesis.Case) -> None:
    """Ask about a job that is there, now and then; a sender has a name and a number."""
    if len(case.path_parameters.get("job", "")) % 2:
        case.path_parameters |= {"job": "f"} | (
            {"source": "s"} if "source" in case.path_parameters else {}
        )
    given = {"Millstream-Sender", "Millstream-First-Number"} & set(case.headers or {})
    if len(given) == 1:
        del case.headers[given.pop()]


def test_everything_that_is_served_is_described() -> None:
    described = {
        (method.upper(), path) for path, known in DESCRIPTION["paths"].items() for method in known
    }
    assert described == {(operation.method, operation.path) for operation in OPERATIONS}
    for path, known in DESCRIPTION["paths"].items():
        for method, operation in known.items():
            assert operation["summary"], (method, path)
            private = path in ("/contents/{sha256}/bytes", "/audit") or path.endswith(
                ("/rows", "/file", "/patterns")
            )
            private |= "/dead" in path
            assert ("security" in operation) == (private or method != "get"), (method, path)
