"""The catalogue as the bucket tells it: newest checkpoint, then the manifests behind it.

Needs nothing but read access to the bucket. Used by the ledger that folds, by `restore`, and by the command line.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from headrace.blob.store import BlobStore, ObjectInfo, put_once
from headrace.errors import Fault, Invalid, ObjectNotFound
from headrace.tier.format import keys
from headrace.tier.format.catalog import Catalog
from headrace.tier.format.checkpoint import decode_checkpoint
from headrace.tier.format.manifest import Manifest, decode_manifest

_GETS_AT_ONCE: Final = 16
_ATTEMPTS_MAX: Final = 5
"""A checkpoint can be pruned between listing and reading it; a newer one is there then."""


class ClusterMarker(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster.json`: whose bucket this is."""

    format: str = "headrace"
    version: int = 1
    cluster_id: str


async def claim_bucket(blobs: BlobStore, cluster_id: str) -> None:
    """Make the prefix this cluster's, for ever; `Fault` when another cluster owns it."""
    marker = msgspec.json.encode(ClusterMarker(cluster_id=cluster_id)) + b"\n"
    try:
        await put_once(blobs, keys.CLUSTER_MARKER, [marker])
    except Fault as error:
        owner = await cluster_of(blobs)
        raise Fault(f"the bucket belongs to cluster {owner}, this is cluster {cluster_id}") from error


async def cluster_of(blobs: BlobStore) -> str:
    """The cluster that owns the bucket; `ObjectNotFound` when none does."""
    return msgspec.json.decode(await blobs.get(keys.CLUSTER_MARKER), type=ClusterMarker).cluster_id


async def load_catalog(blobs: BlobStore) -> Catalog:
    """Everything committed, up to the first manifest that is still on its way."""
    for attempt in range(_ATTEMPTS_MAX):
        try:
            catalog = await _newest_checkpoint(blobs)
            break
        except ObjectNotFound:
            if attempt == _ATTEMPTS_MAX - 1:
                raise
    async for manifest in manifests_after(blobs, catalog.number):
        catalog.apply(manifest)
    return catalog


async def _newest_checkpoint(blobs: BlobStore) -> Catalog:
    infos = [info async for info in numbered(blobs, keys.CHECKPOINTS)]
    if not infos:
        return Catalog(await cluster_of(blobs))
    return decode_checkpoint(await blobs.get(infos[-1].key))


async def numbered(blobs: BlobStore, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
    """The numbered objects below `prefix`, in order. What somebody else put there is passed over."""
    async for info in blobs.list(prefix, after=after):
        try:
            keys.number_of(info.key)
        except Invalid:
            continue
        yield info


async def manifests_after(blobs: BlobStore, number: int) -> AsyncIterator[Manifest]:
    """Manifests `number + 1`, `number + 2`, ... as far as they go without a gap."""
    page: list[int] = []
    expected = number + 1
    async for info in numbered(blobs, keys.MANIFESTS, after=keys.manifest_key(number)):
        if keys.number_of(info.key) != expected:
            break
        expected += 1
        page.append(expected - 1)
        if len(page) == _GETS_AT_ONCE:
            for manifest in await _get_all(blobs, page):
                yield manifest
            page = []
    for manifest in await _get_all(blobs, page):
        yield manifest


async def _get_all(blobs: BlobStore, numbers: list[int]) -> list[Manifest]:
    async def one(number: int) -> Manifest:
        return decode_manifest(await blobs.get(keys.manifest_key(number)))

    return list(await asyncio.gather(*map(one, numbers)))
