"""A picture: one self-contained SVG, for notebooks and as a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: notebooks show it, `save` writes it."""

    svg: str
    title: str

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'

    @property
    def html(self) -> str:
        """The picture on its own page."""
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>'
            '<meta name="color-scheme" content="light dark">'
            "<style>body{margin:16px;background:#fff}"
            "@media (prefers-color-scheme:dark){body{background:#0d1117}}</style></head>\n"
            f"<body>{self.svg}</body></html>\n"
        )

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file, as SVG if its suffix is .svg, else as HTML; atomically."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        temporary.write_text(self.svg if file.suffix == ".svg" else self.html, encoding="utf-8")
        temporary.replace(file)
        return file
