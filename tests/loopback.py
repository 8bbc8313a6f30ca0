"""A web server on loopback, for downloads."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Server(http.server.ThreadingHTTPServer):
    """Serves bytes.

    Attributes:
        files: Contents by path; may be changed.
        seen: Path, and the range where one was asked for, of each request.
        missing_bytes: How many bytes more than there are it promises.
        most: Bytes after which it hangs up; None: never.
        knows_ranges: Whether it gives parts.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(files)
        self.seen: list[str | tuple[str, str]] = []
        self.missing_bytes, self.knows_ranges = 0, True
        self.most: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range") if self.server.knows_ranges else None
        self.server.seen.append((self.path, self.headers["Range"]) if "Range" in self.headers else self.path)
        body = self.server.files.get(self.path)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if body is None or (start and start >= len(body)):
            self.send_response(404 if body is None else 416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start + self.server.missing_bytes))
        self.end_headers()
        self.wfile.write(body[start:][: self.server.most])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[Server]:
    found = Server(files)
    thread = threading.Thread(target=found.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        thread.join()
        found.server_close()
