from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx

from millstream.engine.http import docs_page
from millstream.engine.http.routes import DESCRIPTION, OPERATIONS
from support.served import Served


class Page(HTMLParser):
    """The tags, attributes and texts of a page; every tag that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(served: Served, path: str) -> Page:
    # As a browser asks: without a token.
    answer = httpx.get(f"{served.server.url}{path}")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    found = Page(answer.text)
    assert found.open == []
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.tags}
    return found


def test_the_root_without_a_console_leads_on(served: Served) -> None:
    found = Page(docs_page.home().decode())
    links = [str(attributes["href"]) for tag, attributes in found.tags if tag == "a"]
    assert {"/docs", "/jobs", "/openapi.json"} <= set(links)
    for link in links:
        assert httpx.get(f"{served.server.url}{link}").status_code == 200, link


def test_the_docs_have_every_route_with_what_it_needs_and_takes(served: Served) -> None:
    text = re.sub(r"\s+", " ", page(served, "/docs").text)
    for operation in OPERATIONS:
        about = DESCRIPTION["paths"][operation.path][operation.method.lower()]
        assert f"{operation.method} {operation.path} {about['summary']}" in text
        for parameter in operation.parameters:
            assert parameter.about in text
    assert "Needs a token that may deploy." in text
    assert "application/x-ndjson" in text


def test_a_path_that_is_not_there_leads_to_the_docs(served: Served) -> None:
    assert "/docs" in httpx.get(f"{served.server.url}/nowhere").json()["hint"]
