"""The inventory as the bucket tells it: newest checkpoint, then the manifests behind it.

Needs nothing but read access to the bucket. Used by the ledger that folds, by `restore`, and by the command line.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from headrace.blob.store import BlobStore, ObjectInfo, get_agreed, get_sound, put_once
from headrace.errors import Corrupted, Fault, Invalid, NewerFormat, ObjectNotFound
from headrace.tier.format import keys
from headrace.tier.format.checkpoint import decode_checkpoint
from headrace.tier.format.inventory import Inventory
from headrace.tier.format.manifest import Manifest, Segment, decode_manifest, missing_manifest

VERSION: Final = 1
_GETS_AT_ONCE: Final = 16
PATIENCE_S: Final = 5.0
"""Manifests are written several at a time: one that is late is there within moments of the next."""
_LOOK_S: Final = 0.5
_ATTEMPTS_MAX: Final = 5
"""A checkpoint can be pruned between listing and reading it; a newer one is there then."""


class ClusterMarker(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster.json`: whose bucket this is."""

    format: str = "headrace"
    version: int = VERSION
    cluster_id: str


async def claim_bucket(blobs: BlobStore, cluster_id: str) -> None:
    """Make the prefix this cluster's, for ever; `Fault` when another cluster owns it."""
    marker = msgspec.json.encode(ClusterMarker(cluster_id=cluster_id)) + b"\n"
    try:
        await put_once(blobs, keys.CLUSTER_MARKER, [marker])
    except Fault as error:
        owner = await cluster_of(blobs)
        raise Fault(
            f"the bucket belongs to cluster {owner}, says its {keys.CLUSTER_MARKER}; this is cluster {cluster_id}: give it a bucket or a prefix of its own; "
            "or, if this is that cluster and its metastore was lost, move away the new one that this start has made "
            "(metastore.sqlite in the data directory) and run `headrace tier restore`"
        ) from error


async def cluster_of(blobs: BlobStore) -> str:
    """The cluster that owns the bucket; `ObjectNotFound` when none does, `Corrupted` when the marker does not parse."""
    data = await get_agreed(blobs, keys.CLUSTER_MARKER)
    try:
        marker = msgspec.json.decode(data, type=ClusterMarker)
    except msgspec.MsgspecError as error:
        raise Corrupted(
            f"{keys.CLUSTER_MARKER} in the bucket does not parse ({error}): put back a good copy; or, if the log in this bucket is "
            "surely this cluster's, delete it, and the next start writes it anew"
        ) from error
    if marker.version > VERSION:
        raise NewerFormat(f"{keys.CLUSTER_MARKER} version {marker.version}; this headrace reads up to {VERSION}")
    return marker.cluster_id


async def load_inventory(blobs: BlobStore, *, patience_s: float | None = None) -> Inventory:
    """Everything committed.

    A manifest may be a moment later than the one behind it. One that is still missing after `patience_s`, or a few seconds, is
    lost: `Corrupted` names it, for what lies behind it cannot be told.
    """
    patience_s = PATIENCE_S if patience_s is None else patience_s
    waited_s = 0.0
    while True:
        inventory, following = await read_inventory(blobs)
        if following is None:
            return inventory
        if waited_s >= patience_s:
            raise Corrupted(missing_manifest(inventory.number + 1, following))
        await asyncio.sleep(_LOOK_S)
        waited_s += _LOOK_S


async def read_inventory(blobs: BlobStore) -> tuple[Inventory, int | None]:
    """Everything committed up to the first manifest that is not there, and the number of the next one that is, if any."""
    for attempt in range(_ATTEMPTS_MAX):
        try:
            parts = await _read_parts(blobs)
            break
        except ObjectNotFound:
            if attempt == _ATTEMPTS_MAX - 1:
                raise
    # In a thread: thousands of manifests take a while to fold, and nobody waits for it.
    return await asyncio.to_thread(_assemble, parts), parts.following


async def known_segments(blobs: BlobStore) -> list[Segment]:
    """Every segment that the newest checkpoint or a manifest behind it tells of, whatever is missing in between."""
    checkpoints = [info.key async for info in numbered(blobs, keys.CHECKPOINTS)]
    folded = Inventory("")
    with contextlib.suppress(Corrupted, ObjectNotFound):
        if checkpoints:
            folded = await get_sound(blobs, checkpoints[-1], decode_checkpoint)
    found = [segment for state in folded.partitions.values() for segment in state.segments]
    async for info in numbered(blobs, keys.MANIFESTS, after=keys.manifest_key(folded.number)):
        with contextlib.suppress(Corrupted, ObjectNotFound):
            found += (await get_sound(blobs, info.key, decode_manifest)).added
    return found


class _Parts(msgspec.Struct, frozen=True):
    """What an inventory is made of."""

    folded: Inventory
    manifests: list[Manifest]
    following: int | None
    """The number of a manifest that is there behind one that is not."""


async def _read_parts(blobs: BlobStore) -> _Parts:
    folded = Inventory(await cluster_of(blobs))
    checkpoints = [info.key async for info in numbered(blobs, keys.CHECKPOINTS)]
    if checkpoints:
        folded = await get_sound(blobs, checkpoints[-1], decode_checkpoint)
    return await _with_manifests(blobs, folded)


def _assemble(parts: _Parts) -> Inventory:
    for manifest in parts.manifests:
        parts.folded.apply(manifest)
    return parts.folded


async def numbered(blobs: BlobStore, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
    """The numbered objects below `prefix`, in order. What somebody else put there is passed over."""
    async for info in blobs.list(prefix, after=after):
        try:
            keys.number_of(info.key)
        except Invalid:
            continue
        yield info


async def _with_manifests(blobs: BlobStore, folded: Inventory) -> _Parts:
    """With the manifests behind the checkpoint, as far as they go without a gap."""
    wanted: list[str] = []
    following = None
    async for info in numbered(blobs, keys.MANIFESTS, after=keys.manifest_key(folded.number)):
        if keys.number_of(info.key) != folded.number + len(wanted) + 1:
            following = keys.number_of(info.key)
            break
        wanted.append(info.key)
    found: list[Manifest] = []
    for start in range(0, len(wanted), _GETS_AT_ONCE):
        page = wanted[start : start + _GETS_AT_ONCE]
        found += await asyncio.gather(*(get_sound(blobs, key, decode_manifest) for key in page))
    return _Parts(folded, found, following)
