"""Every backend of the blob port, each under a prefix of its own. One that cannot start is skipped, with the reason."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.support.fake_gcs import FakeGcs, fake_gcs
from tests.support.object_stores import S3Server, moto, seaweedfs

from headrace.blob.local import LocalBlobStore
from headrace.blob.memory import MemoryBlobStore
from headrace.blob.remote import open_gcs, open_s3
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import BlobStore
from headrace.clock import SystemClock

_prefixes = count()


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    with moto() as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs_server() -> Iterator[S3Server]:
    with seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[FakeGcs]:
    with fake_gcs() as server:
        yield server


@pytest.fixture(params=["local", "memory", "moto", "seaweedfs", "gcs"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BlobStore]:
    opened: BlobStore
    match request.param:
        case "local":
            opened = LocalBlobStore(tmp_path / "objects")
        case "memory":
            opened = MemoryBlobStore(SystemClock())
        case "gcs":
            gcs: FakeGcs = request.getfixturevalue("gcs_server")
            settings = ObjectStoreSettings(
                type="gcs", gcs_bucket="b", gcs_endpoint=gcs.endpoint, gcs_prefix=f"p{next(_prefixes)}"
            )
            opened = open_gcs(settings)
        case name:
            server: S3Server = request.getfixturevalue(f"{name}_server")
            opened = open_s3(server.settings(f"p{next(_prefixes)}"))
    yield opened
    await opened.close()
