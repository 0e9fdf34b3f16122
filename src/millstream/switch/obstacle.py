"""What makes a switch impossible."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What makes a switch impossible: a fact, and what to do about it."""

    fact: str
    hint: str
