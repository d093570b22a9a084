"""As much of Google Cloud Storage's XML API as obstore uses, over HTTP, in this process.

Written from the public description of the XML API: objects with generations, `x-goog-if-generation-match: 0` as the create-only
condition, range reads, listings with `list-type=2`. It is a stand-in of our own and proves only that both ends were written
by the same description. No emulator that a registry has takes obstore's create-only PUT: fake-gcs-server 1.56 (Go) answers
the XML API's PUT with "invalid uploadType", gcp-storage-emulator 2026.7 (PyPI) and gcsemu (Go) know the JSON API alone.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


class FakeGcs(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def fake_gcs() -> Iterator[FakeGcs]:
    server = FakeGcs()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeGcs

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    @property
    def _key(self) -> str:
        """Path without the bucket; empty for the bucket itself."""
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            if self.headers.get("x-goog-if-generation-match") == "0" and self._key in self.server.objects:
                self._answer(412)
                return
            self.server.objects[self._key] = data
        self._answer(200, headers={"ETag": '"1"', "x-goog-generation": "1"})

    def do_GET(self) -> None:
        if not self._key:
            self._list()
            return
        data = self.server.objects.get(self._key)
        if data is None:
            self._answer(404)
            return
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, data, headers=_meta())
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
        headers = _meta() | {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
        self._answer(206, data[start : end + 1], headers=headers)

    def do_HEAD(self) -> None:
        data = self.server.objects.get(self._key)
        if data is None:
            self._answer(404)
        else:
            self._answer(200, headers=_meta() | {"Content-Length": str(len(data))})

    def do_DELETE(self) -> None:
        with self.server.lock:
            is_there = self.server.objects.pop(self._key, None) is not None
        self._answer(204 if is_there else 404)

    def _list(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        after = query.get("continuation-token") or query.get("start-after") or ""
        keys = sorted(k for k in self.server.objects if k.startswith(query.get("prefix", "")) and k > after)
        page = keys[:PAGE]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server.objects[key])}</Size>"
            f'<LastModified>{time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())}</LastModified><ETag>"1"</ETag></Contents>'
            for key in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(keys) > PAGE else ""
        self._answer(200, f"<ListBucketResult>{rows}{more}</ListBucketResult>".encode())

    def _answer(self, status: int, body: bytes = b"", *, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _meta() -> dict[str, str]:
    return {"ETag": '"1"', "Last-Modified": formatdate(usegmt=True), "x-goog-generation": "1"}
