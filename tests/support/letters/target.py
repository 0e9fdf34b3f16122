"""Writes letters: the file of an epoch is there as a whole, or not at all, so it decides and publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millstream.spark.failpoints import passing
from millstream.spark.io.staging import run_through
from millstream.spark.io.targets import Epoch, SinkContext, Target
from millstream.spark.io.unwritable import in_python
from millstream.storage import Folder
from support.letters import Letters


class LettersTarget(Target):
    def __init__(self, path: Path, greeting: str, context: SinkContext) -> None:
        self._folder = Folder(path)
        self._greeting = greeting
        self._context = context

    def write(self, frame: Any, epoch: Epoch) -> int:
        name = f"{self._context.owner}-{epoch.checkpoint}-{epoch.batch:09d}.txt"
        if self._folder.read(name) is not None:
            run_through(frame)
            return 0
        found = in_python(frame.toArrow())
        rows = [json.dumps(row, default=str) for row in found.dictionaries()]
        passing("staged")
        self._context.refuse(found.refused, epoch)
        if rows:
            text = "\n".join([f"{self._greeting},", *rows]) + "\n"
            self._folder.put_if_absent(name, text.encode())
        passing("published")
        return len(rows)


def open_letters(spec: Letters, context: SinkContext) -> LettersTarget:
    return LettersTarget(context.root / spec.path, spec.greeting, context)


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all letters."""
    texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.txt"))]
    return [json.loads(line) for text in texts for line in text.split("\n")[1:] if line]
