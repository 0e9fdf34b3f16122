"""An S3 server that takes every put, whatever its conditions: some real ones do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Careless(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"ETag": '"same"'})

    def do_POST(self) -> None:  # removes several at once
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({}, b"<DeleteResult></DeleteResult>")

    def _answer(self, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def careless_s3() -> Iterator[str]:
    """Run one for the length of a block; yields its endpoint."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Careless)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
