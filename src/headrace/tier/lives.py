"""One life at a time writes to a bucket: a copy of its disk, or an older state of it, is refused or stopped.

A *life* is what one process does between its start and its end. Each has a random id and begins with a file in the bucket,
create-only and numbered without gaps. The metastore remembers the ids of the lives that it has had. So:

- Who starts and finds as the newest life file one that its metastore does not know, runs on a copy, or on what was left behind
  when another one went on. It is refused and writes nothing.
- Of two that start at once, one creates the next file; the other meets it and is refused.
- Who finds a file behind its own that its metastore does not know has been overtaken, and stops. It looks before it commits an
  upload, once a second, and before it deletes. One that the metastore knows is another broker's of the same cluster.

The id is also in the name of every data object: even lives that know nothing of each other cannot write to one name.
"""

import asyncio
import contextlib
import socket
from datetime import UTC, datetime
from typing import Final

import msgspec

from headrace.blob.store import BlobStore, get_sound, put_once
from headrace.clock import Clock
from headrace.control.metastore import KeyValue, Metastore, Put, unchanged
from headrace.errors import Concurrent, Fault, ObjectNotFound, OutcomeUnknown, StoreUnavailable
from headrace.telemetry.logging import get_logger
from headrace.tier.format import keys
from headrace.tier.format.life import Life, decode_life, encode_life
from headrace.tier.inventory import numbered
from headrace.tier.plans import LIVES, Author

_KEPT: Final = 64
"""Files in the bucket, and ids in the metastore."""
_ATTEMPTS_MAX: Final = 4
_LOOK_MS: Final = 1000
_IDLE_S: Final = 10.0

log = get_logger(__name__)


class Lives:
    """This process's life, and its place among the others."""

    def __init__(
        self, blobs: BlobStore, store: Metastore, *, clock: Clock, author: Author, cluster_id: str, life: str
    ) -> None:
        """`life` is a new random id."""
        self._blobs = blobs
        self._store = store
        self._clock = clock
        self._own = Life(
            life=life,
            cluster_id=cluster_id,
            broker_id=author.broker_id,
            broker_epoch=author.epoch,
            host=socket.gethostname(),
            started_ms=clock.now_ms(),
        )
        self._number = 0
        """Of the newest file that is known to be our cluster's; 0 while ours is not in the bucket."""
        self._looked_ms = 0
        self.own: frozenset[str] = frozenset()
        """Ids of all lives of this metastore, this one included."""
        self._former: frozenset[str] = frozenset()

    @property
    def life(self) -> str:
        return self._own.life

    async def begin(self) -> None:
        """Put our file behind those of our earlier lives; `Fault` when somebody else's is the newest."""
        # Remembered first: a file whose reply was lost, or that a crash left behind, is known to be ours.
        await self._be_remembered()
        for _ in range(_ATTEMPTS_MAX):
            found = [info.key async for info in numbered(self._blobs, keys.LIVES)]
            if found:
                await self._require_known(await get_sound(self._blobs, found[-1], decode_life))
            number = keys.number_of(found[-1]) + 1 if found else 1
            try:
                await put_once(self._blobs, keys.life_key(number), [encode_life(self._own)])
            except Fault:
                continue  # Another life was faster; whose it is, the next look says.
            self._number = number
            if old := found[:-_KEPT]:
                await self._blobs.delete(old)
            return
        raise Fault(
            "the bucket has a new owner each time one looks: several nodes are being started on copies of one disk"
        )

    async def _be_remembered(self) -> None:
        for _ in range(_ATTEMPTS_MAX):
            item = await self._store.get(LIVES)
            before = _remembered_in(item)
            known = Remembered(own=[*before.own, self.life][-_KEPT:], former=before.former)
            is_unchanged = unchanged(LIVES, item.mod_revision if item is not None else 0)
            with contextlib.suppress(OutcomeUnknown):  # To be there twice is harmless.
                if (await self._store.txn((is_unchanged,), (Put(*lives_entry(known)),))).is_success:
                    self.own, self._former = frozenset(known.own), frozenset(known.former)
                    return
        raise Concurrent("brokers that begin their lives all at once keep each other from it")

    async def _learn_own(self) -> None:
        """Another broker may have begun a life meanwhile. It was remembered before its file was there."""
        self.own = frozenset((await remembered(self._store)).own)

    def may_judge(self, life: str) -> bool:
        """Whether this metastore knows all that the life has committed. Names of the first version tell no life."""
        return life in self.own or (not life and not self._former)

    async def _require_known(self, newest: Life) -> None:
        if newest.life not in self.own:
            await self._learn_own()
        if newest.life in self.own or newest.life in self._former:
            return
        raise Fault(
            f"the bucket has been written by another life of this cluster, {_described(newest)}, that this disk knows nothing "
            "of: it is a copy, or was left behind when the other went on. Nothing was written. Run the other one; or, if "
            "that is gone for good, move metastore.sqlite away here and run `headrace tier restore`, which goes on from "
            "what is in the bucket"
        )

    async def run(self) -> None:
        """Looks now and then while nothing is uploaded, too."""
        while True:
            await asyncio.sleep(_IDLE_S)
            try:
                await self.look()
            except StoreUnavailable:
                continue

    async def look(self) -> None:
        """`Fault` when a stranger's life has begun. Looks at the bucket once a second at most."""
        if self._clock.monotonic_ms() - self._looked_ms >= _LOOK_MS:
            await self.look_now()

    async def look_now(self) -> None:
        if not self._number:
            raise StoreUnavailable("this node has not met its bucket yet")
        self._looked_ms = self._clock.monotonic_ms()
        while True:
            key = keys.life_key(self._number + 1)
            try:
                await self._blobs.head(key)
            except ObjectNotFound:
                return
            newest = await get_sound(self._blobs, key, decode_life)
            await self._require_of_this_cluster(newest)
            self._number += 1

    async def _require_of_this_cluster(self, newest: Life) -> None:
        if newest.life not in self.own:
            await self._learn_own()
        if newest.life in self.own and newest.broker_id != self._own.broker_id:
            return
        raise Fault(
            f"another life of this cluster has begun to write to the bucket, {_described(newest)}: this one stops. What it has "
            "not uploaded is still on its disk"
        )


class Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lives that the metastore knows, by id, oldest first."""

    own: list[str] = []
    former: list[str] = []
    """Those that it took over from when it was restored. What they wrote and no manifest names is for a person to judge."""


async def remembered(store: Metastore) -> Remembered:
    return _remembered_in(await store.get(LIVES))


def _remembered_in(item: KeyValue | None) -> Remembered:
    return msgspec.json.decode(item.value, type=Remembered) if item is not None else Remembered()


def lives_entry(known: Remembered) -> tuple[str, bytes]:
    """The metastore entry that remembers these."""
    return LIVES, msgspec.json.encode(known)


async def lives_in(blobs: BlobStore) -> list[str]:
    """The ids of all lives that have a file in the bucket, oldest first: for a metastore that is made anew from it and takes over."""
    found = [info.key async for info in numbered(blobs, keys.LIVES)]
    return [each.life for each in await asyncio.gather(*(get_sound(blobs, key, decode_life) for key in found))]


def _described(life: Life) -> str:
    started = datetime.fromtimestamp(life.started_ms / 1000, UTC).isoformat(" ", "seconds")
    return f"{life.life} (broker {life.broker_id}, epoch {life.broker_epoch}, started {started} on {life.host})"
