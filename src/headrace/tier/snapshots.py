"""Copies of the metastore in the bucket: what manifests do not tell (configs, brokers, counters, empty topics).

#headrace metastore 1 <crc32c of the rest, 8 hex digits>\\n
JSON lines, one {"key": ..., "value": base64} per entry, in key order
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.blob.store import BlobStore, get_sound, put_once
from headrace.control.metastore import KeyValue, Metastore, prefix, read_all
from headrace.errors import Corrupted
from headrace.tier.format import keys
from headrace.tier.format.headed import body_of, with_head
from headrace.tier.inventory import numbered

VERSION: Final = 1
_KEPT: Final = 3


class Entry(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes


def encode_snapshot(items: Sequence[KeyValue]) -> bytes:
    encode = msgspec.json.Encoder().encode
    body = b"".join(encode(Entry(item.key, item.value)) + b"\n" for item in items)
    return with_head("metastore", VERSION, body, end=b"")


def decode_snapshot(data: bytes) -> list[Entry]:
    body = body_of(data, "metastore", name="metastore snapshot", version_max=VERSION, end=b"")
    return msgspec.json.Decoder(Entry).decode_lines(body)


class Snapshots:
    def __init__(self, blobs: BlobStore, store: Metastore) -> None:
        self._blobs = blobs
        self._store = store
        self._saved_revision = -1

    async def save(self) -> bool:
        """Copy the metastore as it is now; False when nothing has changed since the last time."""
        found = await read_all(self._store, prefix(""))
        newest = max((item.mod_revision for item in found.items), default=0)
        if newest == self._saved_revision:
            return False
        # In a thread: a large metastore takes a while, and encoding one entry at a time lets the loop in between.
        data = await asyncio.to_thread(encode_snapshot, found.items)
        kept = [info.key async for info in numbered(self._blobs, keys.METASTORE_SNAPSHOTS)]
        # A restored metastore counts its revisions from the beginning: its snapshots still come behind the older ones.
        number = max(found.revision, keys.number_of(kept[-1]) + 1) if kept else found.revision
        await put_once(self._blobs, keys.metastore_snapshot_key(number), [data])
        self._saved_revision = newest
        if old := kept[: 1 - _KEPT]:
            await self._blobs.delete(old)
        return True


async def newest_snapshot(blobs: BlobStore) -> list[Entry]:
    """The entries of the newest snapshot that can be read; none when there is none."""
    found = [info.key async for info in numbered(blobs, keys.METASTORE_SNAPSHOTS)]
    for key in reversed(found):
        try:
            return await get_sound(blobs, key, lambda data: decode_snapshot(bytes(data)))
        except Corrupted:
            continue
    return []
