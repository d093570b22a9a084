"""Ceilings in the bucket, where they outlive disk and metastore: one small object for all partitions of a broker.

Whoever raises ceilings waits until the bucket has them, while it answers. A store that does not must not stop producers: they
go on, the bucket is behind, and an operator is told what that means until it has caught up (ADR 0015).
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from headrace.blob.store import BlobStore, put_once
from headrace.clock import Clock
from headrace.errors import Corrupted, ObjectNotFound, StoreUnavailable
from headrace.ids import BrokerEpoch, BrokerId, TopicId, show_topic_id
from headrace.log.partition import PartitionLog
from headrace.telemetry.logging import get_logger
from headrace.telemetry.problems import Problems
from headrace.tier.format import keys
from headrace.tier.format.ceilings import CeilingPicture, decode_ceilings, encode_ceilings
from headrace.tier.inventory import numbered
from headrace.tier.plans import Author

_WAIT_S: Final = 2.0
"""Producers whose room is used up wait as long for a store that is slow; one that is slower counts as down."""
_RETRY_S: Final = 1.0
_KEPT: Final = 2
"""The newest, and the one before in case its bytes turn out to be damaged."""
_PROBLEM: Final = "ceilings"

log = get_logger(__name__)


class BucketCeilings:
    def __init__(self, blobs: BlobStore, clock: Clock, author: Author, problems: Problems) -> None:
        self._blobs = blobs
        self._clock = clock
        self._author = author
        self._problems = problems
        self._picture: dict[PartitionLog, int] = {}
        self._wanted = 0
        """How often the picture has changed, and the change that the bucket has."""
        self._written = 0
        self._changed = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._attempts = 0
        self._is_behind = False
        self._keys: list[str] | None = None
        """Those in the bucket, oldest first; None until they have been looked for."""

    def note(self, ceilings: Mapping[PartitionLog, int]) -> None:
        """Bring these to the bucket, soon."""
        for partition, ceiling in ceilings.items():
            self._picture[partition] = max(ceiling, self._picture.get(partition, 0))
        self._wanted += 1
        self._changed.set()

    async def record(self, ceilings: Mapping[PartitionLog, int]) -> None:
        """Bring these to the bucket; they are there when this returns, unless the store is down or slow."""
        self.note(ceilings)
        number = self._wanted
        try:
            async with asyncio.timeout(_WAIT_S):
                while self._written < number and not self._is_behind:
                    self._caught_up.clear()
                    await self._caught_up.wait()
        except TimeoutError:
            self.fall_behind("it does not answer")

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            number = self._wanted
            try:
                await self._write()
            except StoreUnavailable as error:
                self.fall_behind(str(error))
                self._changed.set()
                await asyncio.sleep(_RETRY_S)
                continue
            self._written = number
            if self._is_behind and self._written == self._wanted:
                self._is_behind = False
                self._problems.clear(_PROBLEM)
                log.info("the bucket knows the ceilings again")
            self._caught_up.set()

    def fall_behind(self, reason: str) -> None:
        """The store is out of reach: nobody waits for it, and an operator should know."""
        if not self._is_behind:
            log.warning("offsets go on without the bucket knowing their ceilings", reason=reason)
        self._is_behind = True
        self._problems.raise_problem(
            _PROBLEM,
            "the object store does not know how far offsets have been given out. Should disk and metastore be lost before it "
            "does, restore with `headrace tier restore --store-was-down`",
        )
        self._caught_up.set()

    async def _write(self) -> None:
        for removed in [each for each in self._picture if each.removed]:
            del self._picture[removed]
        # In a thread: ten thousand partitions take milliseconds.
        data = await asyncio.to_thread(self._encode, dict(self._picture))
        # A name of its own for each attempt: a PUT that failed may have come about all the same.
        self._attempts += 1
        key = keys.ceilings_key(BrokerId(self._author.number), BrokerEpoch(self._author.epoch), self._attempts)
        if self._keys is None:
            prefix = f"{keys.CEILINGS}{self._author.number}/"
            self._keys = [info.key async for info in numbered(self._blobs, prefix)]
        await put_once(self._blobs, key, [data])
        self._keys.append(key)
        if len(self._keys) > _KEPT:
            await self._blobs.delete(self._keys[:-_KEPT])
            del self._keys[:-_KEPT]

    def _encode(self, picture: Mapping[PartitionLog, int]) -> bytes:
        topics: dict[str, list[int | None]] = {}
        names: dict[bytes, str] = {}
        for partition, ceiling in picture.items():
            name = names.get(partition.topic_id)
            if name is None:
                name = names[partition.topic_id] = show_topic_id(TopicId(partition.topic_id))
            row = topics.setdefault(name, [])
            row.extend([None] * (partition.index + 1 - len(row)))
            row[partition.index] = ceiling
        return encode_ceilings(
            CeilingPicture(
                broker_id=self._author.number,
                broker_epoch=self._author.epoch,
                created_ms=self._clock.now_ms(),
                topics=topics,
            )
        )


async def newest_pictures(blobs: BlobStore) -> list[CeilingPicture]:
    """The newest of each broker. One that cannot be read is left out, and so are the older ones behind it: they are no bound."""
    newest: dict[str, str] = {}
    async for info in numbered(blobs, keys.CEILINGS):
        newest[info.key.rsplit("/", 1)[0]] = info.key
    found = []
    for key in newest.values():
        try:
            found.append(decode_ceilings(await blobs.get(key)))
        except (Corrupted, ObjectNotFound) as error:
            log.error(
                "a record of ceilings cannot be read; offsets go on far above what the bucket holds",
                key=key,
                reason=str(error),
            )
    return found
