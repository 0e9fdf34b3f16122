"""The order of numbers, as Spark has it: NaN is equal to itself, and above all others."""

from __future__ import annotations

from typing import Any

from millstream.patterns.kernel.compiled import compiled


@compiled
def compare(left: Any, right: Any) -> int:
    """Return -1 if the left number is less, 0 if they are equal, and 1 if it is more."""
    # Only NaN is not equal to itself.
    if left != left or right != right:  # noqa: PLR0124
        return int(left != left) - int(right != right)  # noqa: PLR0124
    return int(left > right) - int(left < right)


@compiled
def least(left: Any, right: Any) -> Any:
    """Return the lower of two numbers."""
    return left if compare(left, right) <= 0 else right


@compiled
def greatest(left: Any, right: Any) -> Any:
    """Return the higher of two numbers."""
    return left if compare(left, right) >= 0 else right
