"""Credentials, buckets, regions and addresses that are wrong: one line that names what to set.

Refused credentials are something to wait out and renew, never a reason to lose or give up.
"""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.object_stores import CREDENTIALS, S3Server

from headrace.blob import credentials as blob_credentials
from headrace.blob.credentials import require_credentials
from headrace.blob.metrics import BlobMetrics
from headrace.blob.open import bare_store, open_store
from headrace.blob.probe import probe
from headrace.blob.remote import open_s3
from headrace.blob.settings import ObjectStoreSettings
from headrace.clock import SystemClock
from headrace.errors import HeadraceError, Invalid, StorageFailed, StoreUnavailable

NOWHERE = "http://127.0.0.1:1"
"""Nobody listens there."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


async def test_refused_credentials_are_an_outage_that_ends(
    seaweedfs_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = seaweedfs_server.settings("credentials")
    with monkeypatch.context() as wrong:
        wrong.setenv("AWS_SECRET_ACCESS_KEY", "expired")
        refused = open_s3(settings)
    with pytest.raises(StoreUnavailable):
        await refused.put("key", [b"x"])
    with pytest.raises(StorageFailed, match="cannot write to it"):
        await probe(refused, f"probe/{uuid4().hex}")
    await open_s3(settings).put("key", [b"x"])


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
async def test_a_wrong_key_or_secret_is_named(
    seaweedfs_server: S3Server, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "wrong")
    said = await _said_at_start(seaweedfs_server.settings(retry_count=0))
    assert variable in said


async def test_a_bucket_that_is_not_there_is_named(moto_server: S3Server) -> None:
    said = await _said_at_start(moto_server.settings(s3_bucket="elsewhere", retry_count=0))
    assert "there is no bucket 'elsewhere'" in said
    assert "object_store.s3.bucket" in said


async def test_objects_of_a_bucket_that_is_gone_are_not_said_to_be_missing(moto_server: S3Server) -> None:
    """Who hears that an object is not there may draw conclusions; who hears of an outage waits."""
    with pytest.raises(StoreUnavailable):
        await open_s3(moto_server.settings(s3_bucket="gone")).get("key")


async def test_a_store_that_cannot_be_reached_is_named() -> None:
    said = await _said_at_start(_settings(NOWHERE))
    assert NOWHERE in said
    assert "object_store.s3.endpoint" in said


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            400,
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; the region "
            "'us-east-1' is wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region></Error>",
        ),
        (301, "<Error><Code>PermanentRedirect</Code><Message>Use another endpoint.</Message></Error>"),
    ],
)
async def test_a_wrong_region_is_named(status: int, body: str) -> None:
    """AWS's answers, by its documentation: the servers we test with take every region."""
    with _answering(status, body) as endpoint:
        said = await _said_at_start(_settings(endpoint, s3_region="us-east-1"))
    assert "object_store.s3.region, 'us-east-1'" in said


async def test_credentials_that_may_not_use_the_bucket_are_named() -> None:
    body = "<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
    with _answering(403, body) as endpoint:
        said = await _said_at_start(_settings(endpoint))
    assert "may not use bucket 'logs' (Access Denied)" in said
    assert "AWS_ACCESS_KEY_ID" in said


async def test_half_a_key_pair_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Invalid, match="AWS_SECRET_ACCESS_KEY is not"):
        bare_store(_settings(NOWHERE), SystemClock())


async def test_an_endpoint_that_is_no_url_is_named() -> None:
    with pytest.raises(Invalid, match=r"object_store\.s3\.endpoint: '127\.0\.0\.1:9000' is no URL"):
        bare_store(_settings("127.0.0.1:9000"), SystemClock())


async def test_without_credentials_nobody_waits_for_a_metadata_service_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        said = await _said_at_start(_settings(NOWHERE, retry_count=5))
    assert time.monotonic() - started < 60
    assert "no credentials" in said
    assert "AWS_ACCESS_KEY_ID" in said
    assert "AWS_SECRET_ACCESS_KEY" in said


async def test_a_machine_whose_metadata_service_answers_may_have_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setattr(blob_credentials, "_METADATA_SECONDS", 60.0)
    with _answering(200, "token") as endpoint:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", endpoint)
        await require_credentials(_settings(NOWHERE))


@pytest.mark.parametrize("command", [["up", "--no-pipeline", "--ephemeral"], ["tier", "ls"], ["cluster", "restore"]])
def test_commands_say_in_one_line_that_there_are_no_credentials(tmp_path: Path, command: list[str]) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "headrace", *command, "--data-dir", str(tmp_path / "data")),
            *("--set", "object_store.type=s3", "--set", "object_store.s3.bucket=logs"),
        ],
        env={"AWS_METADATA_ENDPOINT": NOWHERE, "HEADRACE_LOGGING_LEVEL": "error"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "no credentials for the s3 store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in line


async def _said_at_start(settings: ObjectStoreSettings) -> str:
    with pytest.raises(HeadraceError) as raised:
        await open_store(settings, clock=SystemClock(), metrics=BlobMetrics())
    said = str(raised.value)
    assert "\n" not in said
    assert "<" not in said
    return said


def _settings(endpoint: str, *, s3_region: str = "us-east-1", retry_count: int = 0) -> ObjectStoreSettings:
    return ObjectStoreSettings(
        type="s3", s3_bucket="logs", s3_endpoint=endpoint, s3_region=s3_region, retry_count=retry_count
    )


@contextlib.contextmanager
def _answering(status: int, body: str) -> Iterator[str]:
    """A server with one answer to whatever it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_DELETE = do_POST = do_GET = do_PUT

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
