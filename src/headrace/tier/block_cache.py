"""Blocks of objects in memory: the read cache, with one download for however many readers want a block.

A block is a few consecutive runs of one segment, at least four megabytes where the segment has them: that is what
one GET brings at least. Neighbours that are fetched ahead come together, and a small object comes whole. Least recently
used blocks go first when the budget is full. Arenas are elsewhere and never touched. Every run's CRC is checked on
arrival. What does not match is fetched once more, for it may have been the way here that changed it; a run that is damaged
still gives the batches in front of the damage, never hides its neighbours, and is looked at again after some seconds.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from headrace.blob.store import BlobStore
from headrace.errors import Corrupted, ObjectNotFound, StoreUnavailable
from headrace.file_range import OpenFile
from headrace.telemetry.logging import get_logger
from headrace.tier.block import BLOCK_BYTES, Block, BlockRef, Damage, blocks_of
from headrace.tier.disk_cache import DiskCache
from headrace.tier.format.object import Footer, Run, check_run, decode_footer, footer_size, salvage
from headrace.tier.metrics import TierMetrics
from headrace.tier.object_files import ObjectFiles
from headrace.tier.pace import PacedDownloads

SPAN_BLOCKS: Final = 2
"""Neighbours that one GET brings to a reader that goes on: a request costs the same whatever it carries."""
_WHOLE_BYTES: Final = SPAN_BLOCKS * BLOCK_BYTES + 64 * 1024
"""An object up to this size comes whole, index and all, when most of it is wanted."""
_SMALL_BYTES: Final = 1024 * 1024
"""An object up to this size comes whole whatever is wanted of it."""
_FOOTER_GUESS: Final = 64 * 1024
"""Fetched from the end of an object at first: holds the index of 900 runs, so nearly always all of it."""
_FOOTERS_MAX: Final = 4096
_DAMAGE_BELIEVED_S: Final = 10.0
"""A damaged block is fetched again after this: somebody may have put a good copy of the object back."""
_CHECK_SLICE: Final = 2 * 1024 * 1024
"""Bytes whose CRCs are checked before others get the loop: less than half a millisecond."""

log = get_logger(__name__)


class BlockCache:
    def __init__(
        self,
        blobs: BlobStore,
        *,
        size_max: int,
        downloads: PacedDownloads,
        metrics: TierMetrics,
        open_file: Callable[[str], OpenFile] | None = None,
        disk: DiskCache | None = None,
    ) -> None:
        """`open_file` where objects are files of this machine: then those are verified in place, and not kept here. Otherwise
        what is fetched is kept on `disk`, too, and read from there once it has left memory."""
        self._blobs = blobs
        self._disk = disk
        opener = disk.open_file if disk is not None else open_file
        self._files = ObjectFiles(opener) if opener is not None else None
        self._size_max = size_max
        self._metrics = metrics
        self._paced = downloads
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._loading: dict[tuple[str, int], asyncio.Task[Block]] = {}
        self._downloads: set[asyncio.Task[memoryview]] = set()
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._footers_loading: dict[str, asyncio.Task[Footer]] = {}
        self.size = 0

    async def get(self, ref: BlockRef) -> Block:
        """The block, from memory or with one GET. Raises `ObjectNotFound`, `StoreUnavailable`; damage is in the block."""
        name = _name(ref)
        held = self._blocks.get(name)
        if held is not None and _is_worth_another_look(held):
            self._drop(name)
            held = None
        if held is not None:
            self._blocks.move_to_end(name)
            self._metrics.tier_cache_hits_total += 1
        else:
            if name not in self._loading:
                self._load([ref])
            # Shielded: one reader that leaves must not take the download from the others.
            held = await asyncio.shield(self._loading[name])
        held.is_unread = False
        return held

    async def verify_again(self, ref: BlockRef) -> Block:
        """A block of a file that the system has dropped from its memory: what it reads anew is checked anew."""
        name = _name(ref)
        if name in self._blocks:
            self._drop(name)
        return await self.get(ref)

    def has(self, ref: BlockRef) -> bool:
        """Whether it is here or on its way."""
        name = _name(ref)
        return name in self._blocks or name in self._loading

    def prefetch(self, refs: Iterable[BlockRef]) -> None:
        """Begin to load those that are not here: neighbours with one GET, up to `SPAN_BLOCKS` of them."""
        span: list[BlockRef] = []
        for ref in refs:
            if self.has(ref):
                continue
            if span and (len(span) == SPAN_BLOCKS or not _is_next(span[-1], ref)):
                self._load(span)
                span = []
            span.append(ref)
        if span:
            self._load(span)

    def prefetch_together(self, span: Sequence[BlockRef]) -> None:
        """Begin to load neighbours, none of which is here, with one GET."""
        self._load(span)

    async def footer(self, key: str, object_size: int, *, wanted_bytes: int = 0) -> Footer:
        """The object's index. `wanted_bytes` of the object are going to be read: nearly all, and it comes whole."""
        held = self.find_footer(key)
        if held is not None:
            return held
        return await asyncio.shield(self._load_footer(key, object_size, wanted_bytes))

    async def size_of(self, key: str) -> int | None:
        """What the store says; None when it says nothing."""
        try:
            return (await self._blobs.head(key)).size
        except (ObjectNotFound, StoreUnavailable):
            return None

    def find_footer(self, key: str) -> Footer | None:
        held = self._footers.get(key)
        if held is not None:
            self._footers.move_to_end(key)
        return held

    def prefetch_footer(self, key: str, object_size: int, *, wanted_bytes: int = 0) -> None:
        """Begin to load it unless it is here or on its way."""
        if key not in self._footers:
            self._load_footer(key, object_size, wanted_bytes)

    def note_footer(self, key: str, footer: Footer) -> None:
        """Known without reading it: this broker just wrote the object."""
        self._footers[key] = footer
        if len(self._footers) > _FOOTERS_MAX:
            self._footers.popitem(last=False)

    def forget(self, key: str) -> None:
        """The object is gone, or was found missing."""
        self._footers.pop(key, None)
        self._forget_file(key)
        for name in [name for name in self._blocks if name[0] == key]:
            self._drop(name)

    async def close(self) -> None:
        tasks = [*self._loading.values(), *self._footers_loading.values(), *self._downloads]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._paced.close()
        if self._files is not None:
            self._files.close()
        if self._disk is not None:
            self._disk.close()

    def _forget_file(self, key: str) -> None:
        if self._files is not None:
            self._files.forget(key)
        if self._disk is not None:
            self._disk.forget(key)

    def _is_in_file(self, ref: BlockRef) -> bool:
        return self._files is not None and (self._disk is None or self._disk.has(ref.key, ref.position))

    def _load(self, span: Sequence[BlockRef]) -> None:
        if self._files is not None and all(map(self._is_in_file, span)):
            for ref in span:
                self._begin(ref, self._verify(self._files, ref))
            return
        first, last = span[0], span[-1]
        download = asyncio.ensure_future(
            self._download(first.key, first.position, last.position + last.length - first.position)
        )
        self._downloads.add(download)
        download.add_done_callback(self._downloads.discard)
        for ref in span:
            self._begin(ref, self._take(ref, download, ref.position - first.position))

    def _begin(self, ref: BlockRef, work: Coroutine[Any, Any, Block]) -> None:
        self._metrics.tier_cache_misses_total += 1
        task = self._loading[_name(ref)] = asyncio.ensure_future(work)
        task.add_done_callback(partial(self._loaded, _name(ref)))

    async def _verify(self, files: ObjectFiles, ref: BlockRef) -> Block:
        async with self._paced.slot(ref.length):
            try:
                file = await files.open(ref.key)
                block = Block(ref, None, file=file)
                await files.verify(file, ref.runs, block.note_rows)
                self._note_read_from_file(ref)
                return block
            except (Corrupted, ObjectNotFound, StoreUnavailable):
                self._forget_file(ref.key)
        # Something is wrong with it: the way through memory knows what to do about that.
        return await self._checked(ref, await self._download(ref.key, ref.position, ref.length))

    def _note_read_from_file(self, ref: BlockRef) -> None:
        if self._disk is None:
            self._metrics.tier_fetched_bytes_total += ref.length
        else:
            self._metrics.tier_disk_cache_hits_total += 1
            self._disk.note_read(ref.key)

    async def _download(self, key: str, position: int, length: int) -> memoryview:
        async with self._paced.slot(length):
            return memoryview(await self._blobs.get_range(key, position, length))

    async def _take(self, ref: BlockRef, download: "asyncio.Task[memoryview]", start: int) -> Block:
        """One block of a span. Its neighbours stand or fall by themselves."""
        data = await asyncio.shield(download)
        return await self._checked(ref, data[start : start + ref.length])

    async def _checked(self, ref: BlockRef, data: memoryview) -> Block:
        self._metrics.tier_fetched_bytes_total += len(data)
        checked = 0
        bad: list[int] = []
        for number, run in enumerate(ref.runs):
            start = run.position - ref.position
            try:
                check_run(run, data[start : start + run.length])
            except Corrupted:
                bad.append(number)
            checked += run.length
            if checked >= _CHECK_SLICE:
                checked = 0
                await asyncio.sleep(0)
        if bad:
            return await self._second_look(ref, data, bad)
        if self._disk is not None:
            self._disk.keep(ref.key, ref.position, data)
        return Block(ref, data)

    async def _second_look(self, ref: BlockRef, data: memoryview, bad: Sequence[int]) -> Block:
        """The bad runs once more, past everything that may have spoiled them on their way."""
        mended = bytearray(ref.length)
        mended[: len(data)] = data
        damage: dict[int, Damage] = {}
        for number in bad:
            run = ref.runs[number]
            start = run.position - ref.position
            again = await self._download(ref.key, run.position, run.length)
            mended[start : start + len(again)] = again
            try:
                check_run(run, again)
            except Corrupted as error:
                damage[number] = self._damage_of(ref, run, again, str(error))
            else:
                log.warning("a run came damaged and was whole the second time", key=ref.key, position=run.position)
        return Block(ref, mended, damage=damage)

    def _damage_of(self, ref: BlockRef, run: Run, data: memoryview, reason: str) -> Damage:
        self._metrics.tier_corrupt_runs_total += 1
        log.error("corrupt run in an object", key=ref.key, position=run.position, reason=reason)
        saved = salvage(run, data)
        return Damage(
            front_bytes=sum(map(len, saved.front)),
            front_end=saved.front_end,
            end_offset=run.end_offset,
            reason=reason,
            found_at=asyncio.get_running_loop().time(),
        )

    def _loaded(self, name: tuple[str, int], done: "asyncio.Task[Block]") -> None:
        del self._loading[name]
        if not done.cancelled() and done.exception() is None:
            self._keep(name, done.result())

    def _keep(self, name: tuple[str, int], block: Block) -> None:
        if name in self._blocks:
            self._drop(name)
        self._blocks[name] = block
        self.size += block.memory_bytes
        while self.size > self._size_max and len(self._blocks) > 1:
            self._drop_oldest()
        self._metrics.tier_cache_bytes = self.size

    def _drop_oldest(self) -> None:
        """What was fetched ahead gets a second chance: its reader may be slower than the others, or may be gone."""
        name, block = next(iter(self._blocks.items()))
        if block.is_unread:
            block.is_unread = False
            self._blocks.move_to_end(name)
        else:
            self._drop(name)

    def _drop(self, name: tuple[str, int]) -> None:
        self.size -= self._blocks.pop(name).memory_bytes
        self._metrics.tier_cache_bytes = self.size

    def _load_footer(self, key: str, object_size: int, wanted_bytes: int) -> "asyncio.Task[Footer]":
        task = self._footers_loading.get(key)
        if task is None:
            is_worth = object_size <= _SMALL_BYTES or object_size <= min(_WHOLE_BYTES, 2 * wanted_bytes)
            is_whole = is_worth and (self._files is None or self._disk is not None)
            fetch = self._fetch_whole if is_whole else self._fetch_footer
            task = asyncio.ensure_future(fetch(key, object_size))
            self._footers_loading[key] = task
            task.add_done_callback(partial(self._footer_done, key))
        return task

    async def _fetch_whole(self, key: str, object_size: int) -> Footer:
        data = await self._download(key, 0, object_size)
        try:
            footer = decode_footer(data)
        except Corrupted:
            return await self._fetch_footer(key, object_size)
        for _, runs in groupby(footer.runs, key=_partition_of):
            for ref in blocks_of(key, list(runs)):
                self._keep(_name(ref), await self._checked(ref, data[ref.position : ref.position + ref.length]))
        return footer

    async def _fetch_footer(self, key: str, object_size: int) -> Footer:
        try:
            return await self._try_footer(key, object_size)
        except Corrupted:
            try:
                return await self._try_footer(key, object_size)
            except Corrupted as error:
                raise Corrupted(f"{key}: {error}") from error

    async def _try_footer(self, key: str, object_size: int) -> Footer:
        guess = min(object_size, _FOOTER_GUESS)
        async with self._paced.slot(guess):
            end = await self._blobs.get_range(key, object_size - guess, guess)
            needed = footer_size(end)
            if needed > object_size:
                raise Corrupted(f"footer of {needed} bytes in an object of {object_size}")
            if needed > guess:
                end = await self._blobs.get_range(key, object_size - needed, needed)
        return decode_footer(end)

    def _footer_done(self, key: str, done: "asyncio.Task[Footer]") -> None:
        del self._footers_loading[key]
        if not done.cancelled() and done.exception() is None:
            self.note_footer(key, done.result())


def _name(ref: BlockRef) -> tuple[str, int]:
    return ref.key, ref.position


def _is_worth_another_look(block: Block) -> bool:
    now = asyncio.get_running_loop().time() if block.damage else 0.0
    return any(now - each.found_at >= _DAMAGE_BELIEVED_S for each in block.damage.values())


def _is_next(ref: BlockRef, other: BlockRef) -> bool:
    return other.key == ref.key and other.position == ref.position + ref.length


def _partition_of(run: Run) -> tuple[bytes, int]:
    return run.topic_id, run.partition
