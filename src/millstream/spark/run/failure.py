"""What an error of Spark's means: the few words of it that tell what happened."""

from __future__ import annotations

import re
from typing import Any, Final

from millstream import errors

_RAISED: Final = re.compile(
    r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Warning)|\w+): (.+)$", flags=re.MULTILINE
)
_UNDERLINED: Final = re.compile(
    r"^== SQL .*==\n(?P<line>.*)\n(?P<before> *)(?P<marks>\^+)", flags=re.MULTILINE
)
#: In standard SQL a bad cast or a division by zero is an error, not a null.
_ARITHMETIC: Final = ("CAST_INVALID_INPUT", "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW")


def failed_on_a_row(text: str) -> bool:
    """Tell whether an expression of Spark's has failed on the data that it was given."""
    return re.search(r"SQLSTATE: (?:22|P0)\w{3}", text) is not None


def cause(error: Any) -> tuple[str, str | None]:
    """Return what happened, and a hint: that of an error of ours, or about arithmetic."""
    text = str(error)
    raised = [one for one in _RAISED.finditer(text) if _is_error(one[1])]
    if raised and "Traceback" in text:
        name, message = raised[-1][1], raised[-1][2].strip()
        noted = re.match(r"\s*hint: (.+)", text[raised[-1].end() :])
        ours = isinstance(getattr(errors, name, None), type)
        return (message if ours else f"{name}: {message}"), noted[1].strip() if noted else None
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    spark = re.search(r"\[([A-Z_]+)[A-Z_.]*\] (.+?)(?: SQLSTATE.*)?$", first)
    hint = "use try_cast, try_divide and the like where a value may not fit"
    fact, place = (spark[2] if spark else first)[:400], _place(text)
    return (
        f"{fact.rstrip('.')}, in {place}" if place else fact,
        hint if spark is not None and spark[1] in _ARITHMETIC else None,
    )


def _place(text: str) -> str:
    """Return which expression it was, if Spark says so: it underlines it."""
    found = _UNDERLINED.search(text)
    if found is None:
        return ""
    begin = len(found["before"])
    return f'"{found["line"][begin : begin + len(found["marks"])]}"'


def _is_error(name: str) -> bool:
    return name.endswith(("Error", "Exception", "Warning")) or isinstance(
        getattr(errors, name, None), type
    )
