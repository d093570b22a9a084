"""How data objects get into the bucket: created, never replaced."""

from collections.abc import Sequence

from headrace.blob.store import BlobStore, Buffer, holds
from headrace.errors import AlreadyExists, Concurrent


async def put_data(blobs: BlobStore, key: str, chunks: Sequence[Buffer]) -> None:
    """Create the object. One that is there with the same bytes is ours, of an attempt whose reply was lost.

    `Concurrent` when it is there with other bytes: half of an attempt that failed, or somebody else's. They stay as they
    are, and the records are written again under another name.
    """
    try:
        await blobs.put_if_absent(key, chunks)
    except AlreadyExists as error:
        if not await holds(blobs, key, chunks):
            raise Concurrent(f"{key} is there with other bytes") from error
