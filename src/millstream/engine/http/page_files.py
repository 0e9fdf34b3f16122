"""The console: the page of an engine, as `page/` in the checkout was built into `page/` beside this.

A browser gets it at the address of what it shows: `/jobs/shop` is a page for whoever asks for HTML,
and JSON for all others. Its parts are named by their hashes, and so may be kept forever. It has no
script but its own, which asks this engine and nobody else.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Final

from millstream.engine.http import docs_page
from millstream.engine.http.api import HTML, Text
from millstream.engine.http.openapi import Operation
from millstream.errors import NotThere

FOLDER: Final = Path(__file__).parent / "page"
#: Only what this engine serves itself runs, is shown or asked; texts never become markup.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_MEDIA: Final = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".html": HTML,
}
_FOREVER: Final = "public, max-age=31536000, immutable"


def shows(operation: Operation | None, method: str, accept: str) -> bool:
    """Tell whether a request is that of a browser which opens a page."""
    return (
        operation is not None
        and operation.page
        and method in ("GET", "HEAD")
        and HTML in accept.lower()
    )


class PageFiles:
    """The files of the console, in memory; without them, a plain page that says so."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        self._files = {one.name: _text(one) for one in found if one.suffix in _MEDIA}

    @property
    def built(self) -> bool:
        return "index.html" in self._files

    def index(self) -> Text:
        """Return the page."""
        return self._files["index.html"] if self.built else Text(docs_page.home(), HTML)

    def file(self, name: str) -> Text:
        """Return a part of the page.

        Raises:
            NotThere: It has none of that name.
        """
        if name not in self._files:
            raise NotThere(f'the console has no part "{name}"', hint="open / again")
        return self._files[name]


@cache
def page_files() -> PageFiles:
    """Return the files that were installed with this package."""
    return PageFiles()


def _text(file: Path) -> Text:
    page = file.suffix == ".html"
    headers = {
        "Cache-Control": "no-store" if page else _FOREVER,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Vary": "Accept, Accept-Encoding" if page else "Accept-Encoding",
    }
    if page:
        headers["Content-Security-Policy"] = POLICY
    body = file.read_bytes()
    return Text(body, _MEDIA[file.suffix], headers, gzip.compress(body, 9, mtime=0))
