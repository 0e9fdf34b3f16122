"""The pytest fixture `flow_test`, for every project that has Millstream installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.testing.under_test import FlowTest


@pytest.fixture
def flow_test() -> Callable[..., FlowTest]:
    """Return `millstream.testing.flow_test`; the first test that uses it starts Spark."""
    from millstream.testing import flow_test

    return flow_test
