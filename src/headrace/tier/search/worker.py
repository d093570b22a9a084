"""One search process: reads an order from standard input, looks through its stretches, and tells line by line.

Runs with lowered priority: a search may take its time, a producer may not. Several stretches are read at once, for object stores
answer late; bytes are looked through one stretch after the other.
"""

import asyncio
import heapq
import os
import sys
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from headrace.blob.metrics import BlobMetrics
from headrace.blob.open import bare_store
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.store import BlobStore
from headrace.chance import SYSTEM_CHANCE
from headrace.clock import SystemClock
from headrace.errors import HeadraceError, ObjectNotFound
from headrace.records.filters import RecordFilter, parse_filter
from headrace.tier.search.messages import Advanced, Ended, Found, Line, Order, Stretch
from headrace.tier.search.scan import Match, scan

_PIECE: Final = 8 * 1024 * 1024
_READ_AHEAD: Final = 4
"""Pieces on their way while one is looked through: 32 MiB."""
_NICE: Final = 10


def main() -> None:
    os.nice(_NICE)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    asyncio.run(_search(order))


async def _search(order: Order) -> None:
    clock = SystemClock()
    blobs = RetryingBlobStore(
        bare_store(order.store, clock), order.store, clock=clock, metrics=BlobMetrics(), chance=SYSTEM_CHANCE.random
    )
    newest = _Newest(order.keep)
    chosen = parse_filter(order.filter)
    try:
        for stretch in order.stretches:
            await _look_through(blobs, stretch, chosen, newest)
    finally:
        await blobs.close()


async def _look_through(blobs: BlobStore, stretch: Stretch, chosen: RecordFilter, newest: "_Newest") -> None:
    rest = b""
    try:
        async for piece in _pieces(blobs, stretch):
            data = rest + bytes(piece) if rest else piece
            seen = scan(data, chosen, start=stretch.start, end=stretch.end)
            rest = bytes(memoryview(data)[seen.consumed :])
            for match in seen.matches:
                newest.offer(stretch.partition, match)
            _tell(Advanced(size=len(piece), records=seen.record_count, matched=len(seen.matches)))
        _tell(Ended(number=stretch.number))
    except ObjectNotFound:
        _tell(Ended(number=stretch.number, is_missing=True))
    except HeadraceError as error:
        _tell(Ended(number=stretch.number, problem=f"{stretch.key}: {error}"))


async def _pieces(blobs: BlobStore, stretch: Stretch) -> AsyncIterator[bytes | bytearray | memoryview]:
    """In order, with some of those behind on their way already."""
    starts = range(0, stretch.length, _PIECE)
    coming: list[asyncio.Task[bytes | bytearray | memoryview]] = []
    try:
        for start in starts:
            size = min(_PIECE, stretch.length - start)
            coming.append(asyncio.ensure_future(blobs.get_range(stretch.key, stretch.position + start, size)))
            if len(coming) >= _READ_AHEAD:
                yield await coming.pop(0)
        while coming:
            yield await coming.pop(0)
    finally:
        for task in coming:
            task.cancel()


class _Newest:
    """Tells of a match if it is among the newest so far: whoever listens keeps no more than these anyway."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._times: list[int] = []

    def offer(self, partition: int, match: Match) -> None:
        time_ms = match.record.timestamp_ms
        if len(self._times) >= self._keep:
            if time_ms <= self._times[0]:
                return
            heapq.heapreplace(self._times, time_ms)
        else:
            heapq.heappush(self._times, time_ms)
        header, record = match
        _tell(
            Found(
                partition=partition,
                offset=record.offset,
                timestamp_ms=time_ms,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                batch_base_offset=header.base_offset,
                batch_end_offset=header.end_offset,
                leader_epoch=header.leader_epoch,
                codec=header.codec,
                producer_id=header.producer_id,
                is_transactional=header.is_transactional,
            )
        )


def _tell(line: Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
