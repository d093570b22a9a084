"""From settings to a store that retries, counts and has been probed."""

from pathlib import Path
from urllib.parse import urlsplit

from headrace.blob.credentials import check_pair, require_credentials
from headrace.blob.local import LocalBlobStore
from headrace.blob.memory import MemoryBlobStore
from headrace.blob.metrics import BlobMetrics
from headrace.blob.probe import probe
from headrace.blob.remote import open_gcs, open_s3
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import BlobStore
from headrace.chance import SYSTEM_CHANCE, Chance, new_uuid
from headrace.clock import Clock
from headrace.errors import HeadraceError, Invalid, StorageFailed, StoreUnavailable
from headrace.telemetry.logging import get_logger

log = get_logger(__name__)


async def open_store(
    settings: ObjectStoreSettings,
    *,
    clock: Clock,
    metrics: BlobMetrics,
    is_trusted: bool = False,
    chance: Chance = SYSTEM_CHANCE,
    bare: BlobStore | None = None,
) -> RetryingBlobStore:
    """Raises `Invalid` for settings that cannot work and `StorageFailed` for a store that cannot be trusted.

    One that `is_trusted`, because it has been probed before, may also be out of reach: it comes back with its circuit open.
    `bare` is the store itself where somebody has one already.
    """
    store = RetryingBlobStore(
        bare or bare_store(settings, clock), settings, clock=clock, metrics=metrics, chance=chance.random
    )
    try:
        await require_credentials(settings)
        await probe(store, f"probe/{new_uuid(chance).hex}")
    except (StorageFailed, StoreUnavailable) as error:
        if not is_trusted or not _is_out_of_reach(error):
            raise
        store.note_down()
        log.warning("the object store is down; records stay in the WAL until it is back", reason=str(error))
    return store


def _is_out_of_reach(error: HeadraceError) -> bool:
    """Whether it gave no answer, rather than a wrong one."""
    return isinstance(error, StoreUnavailable) or isinstance(error.__cause__, StoreUnavailable)


def bare_store(settings: ObjectStoreSettings, clock: Clock) -> BlobStore:
    match settings.type:
        case "local":
            return LocalBlobStore(Path(settings.local_path))
        case "memory":
            return MemoryBlobStore(clock)
        case "s3":
            if not settings.s3_bucket:
                raise Invalid("object_store.s3.bucket: required when object_store.type is s3")
            _check_url("object_store.s3.endpoint", settings.s3_endpoint)
            check_pair()
            return open_s3(settings)
        case "gcs":
            if not settings.gcs_bucket:
                raise Invalid("object_store.gcs.bucket: required when object_store.type is gcs")
            _check_url("object_store.gcs.endpoint", settings.gcs_endpoint)
            return open_gcs(settings)


def _check_url(key: str, text: str | None) -> None:
    """obstore takes any text, and falls over it at the first request."""
    if text and (urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).netloc):
        raise Invalid(f"{key}: {text!r} is no URL; one begins with http:// or https://")
