"""Letters as lines of JSON, for an editor, and back: {"id": ..., "reason": ..., "row": {...}}.

What is not JSON is under "record" as it came, and has the row null: whoever edits it writes one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.dead.choice import Choice, choose
from millstream.errors import LetterRefused
from millstream.journal.letters import Letter


def as_lines(letters: Iterable[Letter]) -> str:
    """Return letters for editing, one a line."""
    return "".join(f"{json.dumps(_line(one), ensure_ascii=False)}\n" for one in letters)


def _line(letter: Letter) -> dict[str, Any]:
    row = letter.row
    line: dict[str, Any] = {"id": letter.id, "reason": letter.letter.reason, "row": row}
    return line if row is not None else {**line, "record": letter.letter.record}


def read_lines(text: str) -> dict[str, str]:
    """Return the rows of edited letters as JSON, by id.

    Raises:
        LetterRefused: A line is not a letter with a row, or two have one id.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        id_, row = _read(number, line)
        if id_ in found:
            raise LetterRefused(f"line {number} has letter {id_}, and so has a line before it")
        found[id_] = json.dumps(row, ensure_ascii=False)
    return found


def _read(number: int, line: str) -> tuple[str, dict[str, Any]]:
    hint = 'a line is {"id": ..., "row": {...}}; remove the lines that should not be replayed'
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LetterRefused(f"line {number} is not JSON: {error}", hint=hint) from error
    if not isinstance(body, dict) or not isinstance(body.get("id"), str):
        raise LetterRefused(f"line {number} has no id of a letter", hint=hint)
    if not isinstance(body.get("row"), dict):
        raise LetterRefused(f"line {number} has no row", hint=hint)
    return body["id"], body["row"]


def resolved(
    letters: Sequence[Letter], rows: Mapping[str, str]
) -> tuple[list[Letter], dict[str, str]]:
    """Return the letters that were edited, and their rows by whole ids.

    Raises:
        LetterMissing: There is none with such an id, or more than one.
    """
    if not rows:
        return [], {}
    found = choose(letters, Choice(ids=tuple(rows)))
    return found, {one.id: row for one, row in zip(found, rows.values(), strict=True)}
