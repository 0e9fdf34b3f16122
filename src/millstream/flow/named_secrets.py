"""The secrets that a flow names, looked for where it is to run."""

from __future__ import annotations

import dataclasses
from typing import Any

from millstream.brokers.address import parse
from millstream.brokers.connection import Connection
from millstream.errors import SecretMissing
from millstream.flow.flow import Flow
from millstream.flow.stages import Sink, Source, Written
from millstream.secrets import Secret, value_of


def check_secrets(flow: Flow) -> None:
    """Look for the value of every secret that a flow names; nothing is kept of it.

    Raises:
        SecretMissing: One has no value here.
    """
    written = (stage for stage in flow.stages.values() if isinstance(stage, Written))
    named_in: list[Written | Sink] = [*written, *flow.sinks.values()]
    for stage in named_in:
        for named in _named(stage):
            try:
                value_of(named)
            except SecretMissing as error:
                kind = "sink" if isinstance(stage, Sink) else stage.noun
                fact = f'{kind} "{stage.name}": {error.message}'
                raise SecretMissing(fact, hint=error.hint, where=stage.where) from None


def _named(stage: Written | Sink) -> list[Secret]:
    if isinstance(stage, Sink):
        return _within(stage.target)
    kept = [] if stage.address is None else _within(parse(stage.address)[0])
    return [*kept, *(_within(stage.origin) if isinstance(stage, Source) else ())]


def _within(spec: Any) -> list[Secret]:
    values = [getattr(spec, field.name) for field in dataclasses.fields(spec)]
    inner = [named for one in values if isinstance(one, Connection) for named in _within(one)]
    return [*(value for value in values if isinstance(value, Secret)), *inner]
