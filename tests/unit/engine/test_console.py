"""The console as an engine serves it; `tests/integration/test_console.py` opens it in a browser."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import httpx
import pytest

from millstream.engine.http.page_files import FOLDER, PageFiles
from millstream.engine.http.routes import OPERATIONS
from millstream.engine.http.server import Server, Serving
from support.engine import PeerEngine
from support.served import Served

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

pytestmark = pytest.mark.skipif(
    not (FOLDER / "index.html").exists(), reason="the console is not built: make setup"
)


def opened(served: Served, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{served.server.url}{path}", headers={**BROWSER, **headers})


def test_a_browser_gets_the_page_at_the_address_of_what_it_shows(served: Served) -> None:
    served.deploy()
    page = opened(served, "/").text
    assert '<div id="page">' in page
    for path in ("/jobs", "/jobs/f", "/jobs/f/journals", "/jobs/f/logs", "/audit"):
        answer = opened(served, path)
        assert (answer.status_code, answer.text) == (200, page), path
        assert "Accept" in answer.headers["Vary"]
    for asks in ("*/*", "application/json"):
        answer = httpx.get(f"{served.server.url}/jobs/f", headers={"Accept": asks})
        assert answer.json()["name"] == "f"
        assert answer.headers["Vary"] == "Accept"


def test_what_is_no_page_is_the_same_for_a_browser(served: Served) -> None:
    served.deploy()
    for path in ("/engine", "/openapi.json", "/jobs/f/groups", "/jobs/f/history"):
        assert opened(served, path).headers["Content-Type"] == "application/json", path


def test_nothing_runs_or_is_loaded_but_what_the_engine_serves(served: Served) -> None:
    answer = opened(served, "/")
    policy = answer.headers["Content-Security-Policy"]
    rules = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[one] for one in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(r"<script(?![^>]* src=)|<style|\bon\w+=|style=", answer.text)
    assert not re.search(r'(src|href)="(?!/)', answer.text)
    for file in FOLDER.iterdir():
        text = file.read_text()
        hosts = set(re.findall(r"https?://[\w.-]+", text)) - {"http://www.w3.org"}
        assert not hosts, file.name


def test_parts_are_kept_forever_by_their_hash_and_the_page_is_not(served: Served) -> None:
    page = opened(served, "/")
    assert page.headers["Cache-Control"] == "no-store"
    parts = re.findall(r'(?:src|href)="(/page/[^"]+)"', page.text)
    media = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    assert {Path(part).suffix for part in parts} == set(media)
    for part in parts:
        assert re.search(r"-[A-Z0-9]{8}\.", part)
        answer = opened(served, part, **{"Accept-Encoding": "gzip"})
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["Content-Type"].startswith(media[Path(part).suffix])
        assert answer.headers["Content-Encoding"] == "gzip"
        plain = opened(served, part, **{"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers
        assert plain.content == answer.content


def test_the_page_weighs_less_than_250_kilobytes() -> None:
    sizes = {file.name: len(gzip.compress(file.read_bytes(), 9)) for file in FOLDER.iterdir()}
    assert sum(sizes.values()) < 250_000, sizes


@pytest.mark.parametrize("name", ["nothing.js", "..%2F..%2Fserver.py", "%2Fetc%2Fpasswd", "."])
def test_only_parts_of_the_page_are_served(served: Served, name: str) -> None:
    assert httpx.get(f"{served.server.url}/page/{name}").status_code == 404


def test_the_page_comes_without_a_token_and_what_it_shows_does_not(tmp_path: Path) -> None:
    engine = PeerEngine(tmp_path)
    server = Server(engine, tmp_path, Serving(host="0.0.0.0", port=0, open_without_tls=True))
    server.start()
    try:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        engine.deploy(b"good")
        assert '<div id="page">' in httpx.get(f"{url}/jobs/f", headers=BROWSER).text
        assert httpx.get(f"{url}/jobs/f").status_code == 401
        assert httpx.get(f"{url}/live?once=true").status_code == 401
        for operation in OPERATIONS:
            if operation.page and operation.method != "GET":
                pytest.fail(f"a browser would change something: {operation.path}")
        assert httpx.post(f"{url}/jobs/f/drain", headers=BROWSER).status_code == 401
    finally:
        server.close()
        engine.close()


def test_without_a_build_the_root_says_so(tmp_path: Path) -> None:
    text = PageFiles(tmp_path / "none").index().body.decode()
    assert "make setup" in text
    assert 'href="/docs"' in text
