"""A connector that claims the name of another."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.flow.connector import Connector
from support.letters import Letters


@dataclass(frozen=True, slots=True)
class OtherLetters(Letters):
    """Letters of another post."""


connector = Connector(targets=(OtherLetters,))
