"""An S3 server that answers every request with one status, and remembers what it was asked."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    path: str
    authorization: str


class ScriptedS3(ThreadingHTTPServer):
    status = 200
    body = b""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.seen: list[Asked] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedS3

    def answer(self) -> None:
        self.server.seen.append(Asked(self.path, self.headers.get("authorization") or ""))
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(self.server.status)
        has_body = self.server.status not in (204, 304)
        if has_body:
            self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        if has_body and self.command != "HEAD":
            self.wfile.write(self.server.body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def scripted_s3() -> Iterator[ScriptedS3]:
    server = ScriptedS3(("127.0.0.1", 0))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
