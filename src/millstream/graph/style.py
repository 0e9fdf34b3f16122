"""The style sheet of a picture, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif'
#: A selector, its look, and what changes on a dark page.
Rule = tuple[str, str, str]


def sheet(scope: str, rules: Iterable[Rule]) -> str:
    """Return the rules as CSS that applies to pictures of the class `scope` only."""
    rules = tuple(rules)
    light = "".join(f".{scope} {selector}{{{look}}}" for selector, look, _ in rules)
    dark = "".join(f".{scope} {selector}{{{look}}}" for selector, _, look in rules if look)
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"
