"""Brings commits from the metastore to the bucket: pending manifests, folded now and then into checkpoints.

The metastore decides what a number holds and keeps the bytes until they are in the bucket. Writing is create-only
and idempotent, so any broker may write any pending manifest, its own or one that a dead broker left behind. A fold
is due when the manifests since the last one outweigh it: its cost stays proportional to the cost of committing.

One of several brokers knows only what it wrote itself. The one that keeps house therefore looks at the bucket now and then: it may
lead nothing, and whoever kept house before may have folded.

What is in the bucket leaves the metastore a few at a time: a transaction costs as much as the PUT. After a crash some are
written, and found to be there, once more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from headrace.blob.store import BlobStore, put_once
from headrace.clock import Clock
from headrace.control import values
from headrace.control import values_pb2 as pb
from headrace.control.keys import NEXT_COMMIT_NUMBER
from headrace.control.metastore import Delete, KeyValue, Metastore, RangeResult, Read, only
from headrace.errors import Corrupted, Unavailable
from headrace.telemetry.logging import get_logger
from headrace.telemetry.problems import Problems
from headrace.tier import plans
from headrace.tier.format import keys
from headrace.tier.format.checkpoint import encode_checkpoint
from headrace.tier.format.inventory import Inventory
from headrace.tier.inventory import numbered, read_inventory
from headrace.tier.keeping import Keeping
from headrace.tier.metrics import TierMetrics
from headrace.tier.waking import woken

_FOLD_AFTER: Final = 256
"""Manifests that a reader can replay without noticing."""
_FOLD_AFTER_MAX: Final = 4096
_FOLD_AGAIN_MS: Final = 600_000
"""After one that met damage: it reads every manifest there is."""
_CHECKPOINTS_KEPT: Final = 3
"""A reader may still be at work on one; the rest are for people who look."""
_RETRY_S: Final = 1.0
_LOOK_AGAIN_S: Final = 10.0
"""How often to look for manifests that others left behind, or wrote."""
_PAGE: Final = 128
_PUTS_AT_ONCE: Final = 8
"""One after the other a far store would take a dozen a second; commits can come faster."""
_FORGET_AT: Final = 16
"""Manifests in the bucket that are worth a transaction to take them out of the metastore."""

_PROBLEM: Final = "manifests"

log = get_logger(__name__)


class Ledger:
    def __init__(
        self,
        blobs: BlobStore,
        store: Metastore,
        *,
        clock: Clock,
        metrics: TierMetrics,
        problems: Problems,
        rebuild: Callable[[], Awaitable[Inventory]],
        keeping: Keeping,
    ) -> None:
        """`rebuild` gives the inventory after the newest commit, made from the metastore."""
        self._problems = problems
        self._rebuild = rebuild
        self._keeping = keeping
        self._blobs = blobs
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._wanted = asyncio.Event()
        self._unwritten: set[int] = set()
        """Numbers of manifests that are not known to be in the bucket."""
        self._written: list[str] = []
        """Where the metastore still holds those that are."""
        self._bytes_since_fold = 0
        self._folded_size = 0
        self._folded_number = 0
        self._written_number = 0
        self._next_fold_ms = 0
        self._next_look_ms = 0
        self._is_look_wanted = False
        self.damage: str | None = None
        """Why the manifests could not be folded the last time."""

    async def load(self) -> None:
        """How far the bucket is folded. Writes nothing."""
        await self._survey()
        await self._require_newest()

    async def _survey(self) -> None:
        """Count what the bucket has, whoever wrote it."""
        async for info in numbered(self._blobs, keys.CHECKPOINTS):
            self._folded_number, self._folded_size = keys.number_of(info.key), info.size
        self._bytes_since_fold = 0
        async for info in numbered(self._blobs, keys.MANIFESTS, after=keys.manifest_key(self._folded_number)):
            self._note_written(keys.number_of(info.key), info.size)

    async def _require_newest(self) -> None:
        """A number is taken in the metastore before its manifest is in the bucket: a bucket that is ahead shows a metastore
        that was rolled back, and would give the same numbers to other commits."""
        counter = await self._store.get(NEXT_COMMIT_NUMBER)
        following = values.decode(pb.Counter, counter.value).next if counter is not None else 1
        newest = max(self._written_number, self._folded_number)
        if newest >= following:
            raise Corrupted(
                f"the bucket has manifest {newest}, and the metastore has given numbers up to {following - 1} only: it is an "
                "older copy, or lost its -wal file; put back the newest copy of both, or move metastore.sqlite away and run "
                "`headrace tier restore`"
            )

    def wake(self, number: int) -> None:
        """A commit left a manifest."""
        self._await(number)
        self._wanted.set()

    def look_soon(self) -> None:
        """Somebody is gone, and may have left manifests."""
        self._is_look_wanted = True
        self._wanted.set()

    @property
    def is_behind(self) -> bool:
        """Whether the bucket still misses manifests that this broker knows of."""
        return bool(self._unwritten)

    async def run(self) -> None:
        while True:
            is_wanted = await woken(self._wanted, within_s=_LOOK_AGAIN_S)
            try:
                if not is_wanted or self._is_look_wanted:
                    self._is_look_wanted = False
                    await self.write_pending()
                await self._write_awaited()
                await self.look_after_others()
                if self._is_fold_due():
                    await self.fold_if_sound()
            except Unavailable as error:
                log.warning("manifests wait for the object store", reason=str(error))
                self._wanted.set()
                await asyncio.sleep(_RETRY_S)

    async def look_after_others(self) -> None:
        """Who keeps house for several brokers looks, however busy it is itself, at what they have left and written."""
        if self._keeping.is_alone or not self._keeping.is_keeper() or self._clock.monotonic_ms() < self._next_look_ms:
            return
        self._next_look_ms = self._clock.monotonic_ms() + int(_LOOK_AGAIN_S * 1000)
        await self.write_pending()
        await self._survey()

    async def write_pending(self) -> None:
        """Write every manifest that the metastore still holds. Readers stop at the first that is not there yet."""
        while True:
            await self._forget_written()
            found = await self._store.range(plans.PENDING_MANIFESTS, limit=_PAGE)
            if not found.items:
                return
            for item in found.items:
                self._await(plans.pending_number(item.key))
            await self._write_all(found.items)

    async def _write_awaited(self) -> None:
        """The same for those that we know of. A range would have the metastore put all its keys in order, for each commit."""
        pending: list[KeyValue] = []
        for number in sorted(self._unwritten):
            item = await self._store.get(plans.pending_manifest(number))
            if item is None:
                self._settle(number)  # Somebody else has written it.
            else:
                pending.append(item)
        await self._write_all(pending)
        if len(self._written) >= _FORGET_AT:
            await self._forget_written()

    async def _write_all(self, items: Sequence[KeyValue]) -> None:
        for start in range(0, len(items), _PUTS_AT_ONCE):
            await asyncio.gather(*map(self._write, items[start : start + _PUTS_AT_ONCE]))

    async def _write(self, item: KeyValue) -> None:
        number = plans.pending_number(item.key)
        await put_once(self._blobs, keys.manifest_key(number), [item.value])
        self._metrics.tier_manifests_total += 1
        self._settle(number)
        self._written.append(item.key)
        self._note_written(number, len(item.value))

    async def _forget_written(self) -> None:
        written, self._written = self._written, []
        if written:
            await self._store.txn((), tuple(Delete(only(key)) for key in written))

    def _await(self, number: int) -> None:
        self._unwritten.add(number)
        self._metrics.tier_manifests_pending = len(self._unwritten)

    def _settle(self, number: int) -> None:
        self._unwritten.discard(number)
        self._metrics.tier_manifests_pending = len(self._unwritten)

    def _note_written(self, number: int, size: int) -> None:
        self._bytes_since_fold += size
        self._written_number = max(self._written_number, number)

    def _is_fold_due(self) -> bool:
        waiting = self._written_number - self._folded_number
        if not self._keeping.is_keeper() or self._clock.monotonic_ms() < self._next_fold_ms:
            return False
        return waiting >= _FOLD_AFTER_MAX or (waiting >= _FOLD_AFTER and self._bytes_since_fold >= self._folded_size)

    async def fold_if_sound(self) -> None:
        """As `fold`. What is damaged is covered by a checkpoint made from the metastore, which has all that it said.

        Where that fails as well, it stops only this: the node goes by its metastore, and what it serves is not touched.
        """
        try:
            try:
                await self.fold()
            except Corrupted as error:
                self._note_damage(error)
                await self.mend()
                await self.fold()
            self.damage = None
        except Corrupted as error:
            self._note_damage(error)

    def _note_damage(self, error: Corrupted) -> None:
        log.error("the bucket's manifests cannot be folded", reason=str(error))
        self.damage = str(error)
        self._next_fold_ms = self._clock.monotonic_ms() + _FOLD_AGAIN_MS

    async def fold(self) -> int:
        """Write a checkpoint of everything committed so far; gives its number."""
        inventory, _ = await read_inventory(self._blobs)
        return await self._write_checkpoint(inventory)

    async def _write_checkpoint(self, inventory: Inventory) -> int:
        data = await asyncio.to_thread(encode_checkpoint, inventory)
        if inventory.number > self._folded_number:
            await put_once(self._blobs, keys.checkpoint_key(inventory.number), [data])
            log.info("manifests folded", number=inventory.number, bytes=len(data))
        self._folded_number, self._folded_size = inventory.number, len(data)
        self._bytes_since_fold = 0
        return inventory.number

    async def ensure_whole(self) -> bool:
        """Whether the bucket has every manifest that readers need; mends it where one is missing.

        Nothing may be deleted while it is not whole: readers, and whoever restores, do not know then what is needed.
        """
        await self.write_pending()
        missing = await self._missing()
        if missing:
            log.error("manifests are missing from the bucket; a checkpoint takes their place", numbers=missing[:10])
            self._problems.raise_problem(
                _PROBLEM, f"manifest {missing[0]} is missing from the bucket; nothing is deleted"
            )
            await self.mend()
            missing = await self._missing()
        if not missing:
            self._problems.clear(_PROBLEM)
        return not missing

    async def mend(self) -> None:
        """Write a checkpoint made from the metastore: it covers whatever is missing or damaged before it."""
        inventory = await self._rebuild()
        number = await self._write_checkpoint(inventory)
        log.warning("the inventory was made anew from the metastore", number=number)

    async def _missing(self) -> list[int]:
        """Numbers given out since the newest checkpoint that are neither in the bucket nor on their way."""
        # Before the bucket is listed: what leaves the metastore after this is in the bucket by then.
        found = await self._store.txn((), (Read(only(NEXT_COMMIT_NUMBER)), Read(plans.PENDING_MANIFESTS)))
        counter, pending = (each.items for each in found.results if isinstance(each, RangeResult))
        following = values.decode(pb.Counter, counter[0].value).next if counter else 1
        there = {plans.pending_number(item.key) for item in pending}
        folded = 0
        async for info in numbered(self._blobs, keys.CHECKPOINTS):
            folded = keys.number_of(info.key)
        async for info in numbered(self._blobs, keys.MANIFESTS, after=keys.manifest_key(folded)):
            there.add(keys.number_of(info.key))
        self._folded_number = folded
        return [number for number in range(folded + 1, following) if number not in there]

    async def prune(self, *, grace_ms: int) -> int:
        """Delete old checkpoints, and manifests that the oldest kept one covers; gives how many."""
        if not await self.ensure_whole():
            return 0
        checkpoints = [info.key async for info in numbered(self._blobs, keys.CHECKPOINTS)]
        kept = checkpoints[-_CHECKPOINTS_KEPT:]
        doomed = checkpoints[:-_CHECKPOINTS_KEPT]
        if kept:
            doomed += await self._covered(keys.number_of(kept[0]), self._clock.now_ms() - grace_ms)
        if doomed:
            await self._blobs.delete(doomed)
        return len(doomed)

    async def _covered(self, number: int, before_ms: int) -> Sequence[str]:
        covered: list[str] = []
        async for info in numbered(self._blobs, keys.MANIFESTS):
            if keys.number_of(info.key) > number:
                break
            if info.modified_ms < before_ms:
                covered.append(info.key)
        return covered
