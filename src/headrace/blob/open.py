"""From settings to a store that retries, counts and has been probed."""

import random
from pathlib import Path
from uuid import uuid4

from headrace.blob.local import LocalBlobStore
from headrace.blob.memory import MemoryBlobStore
from headrace.blob.metrics import BlobMetrics
from headrace.blob.probe import probe
from headrace.blob.remote import open_gcs, open_s3
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.errors import Invalid


async def open_store(settings: ObjectStoreSettings, *, clock: Clock, metrics: BlobMetrics) -> RetryingBlobStore:
    """Raises `Invalid` for settings that cannot work and `StorageFailed` for a store that cannot be trusted."""
    store = RetryingBlobStore(bare_store(settings, clock), settings, clock=clock, metrics=metrics, chance=random.random)
    await probe(store, f"probe/{uuid4().hex}")
    return store


def bare_store(settings: ObjectStoreSettings, clock: Clock) -> BlobStore:
    match settings.type:
        case "local":
            return LocalBlobStore(Path(settings.local_path))
        case "memory":
            return MemoryBlobStore(clock)
        case "s3":
            if not settings.s3_bucket:
                raise Invalid("object_store.s3.bucket: required when object_store.type is s3")
            return open_s3(settings)
        case "gcs":
            if not settings.gcs_bucket:
                raise Invalid("object_store.gcs.bucket: required when object_store.type is gcs")
            return open_gcs(settings)
