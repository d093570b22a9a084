"""Credentials that a real server refuses: something to wait out and renew, never a reason to lose or give up."""

from uuid import uuid4

import pytest
from tests.support.object_stores import S3Server

from headrace.blob.probe import probe
from headrace.blob.remote import open_s3
from headrace.errors import StorageFailed, StoreUnavailable


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
