"""Is this store good enough to be the log? Asked once, at start, with a few bytes.

A store that loses a write it confirmed, cuts ranges wrongly or ignores `If-None-Match: *` would lose records
later and silently. Better to refuse it now and say why.
"""

from headrace.blob.store import BlobStore
from headrace.errors import AlreadyExists, HeadraceError, ObjectNotFound, StorageFailed

_CONTENT = b"headrace asks whether this store keeps what it is given"
_OTHER = b"and refuses to replace it"


async def probe(store: BlobStore, key: str) -> None:
    """`StorageFailed` with the reason unless the store behaves. `key` must be new; it is deleted afterwards."""
    try:
        await store.put_if_absent(key, [_CONTENT])
    except HeadraceError as error:
        raise StorageFailed(f"object store refused: cannot write to it ({error})") from error
    try:
        await _check_reads(store, key)
        await _check_create_only(store, key)
    finally:
        await store.delete([key])


async def _check_reads(store: BlobStore, key: str) -> None:
    try:
        whole = bytes(await store.get(key))
        piece = bytes(await store.get_range(key, 9, 4))
    except ObjectNotFound as error:
        raise StorageFailed("object store refused: an object it confirmed cannot be read back") from error
    except HeadraceError as error:
        raise StorageFailed(f"object store refused: cannot read from it ({error})") from error
    if whole != _CONTENT:
        raise StorageFailed("object store refused: it gives back other bytes than were written")
    if piece != _CONTENT[9:13]:
        raise StorageFailed("object store refused: it does not honour range reads")


async def _check_create_only(store: BlobStore, key: str) -> None:
    try:
        await store.put_if_absent(key, [_OTHER])
    except AlreadyExists:
        return
    except HeadraceError as error:
        raise StorageFailed(f"object store refused: conditional writes fail ({error})") from error
    raise StorageFailed(
        "object store refused: it ignores If-None-Match, so two brokers could overwrite each other's commits"
    )
