"""Committed offsets as others may read them: a copy in the metastore, always a little behind.

The records of `__consumer_offsets` decide. Commits come by the ten thousand, the metastore makes each transaction
durable; so only the newest value of each key is written, many keys at a time, after a pause in which more may come.

Where brokers take turns as coordinators, each transaction compares that its writer still leads the partition of `__consumer_offsets`
that the offsets are from: one that was deposed must not put its old values over those of its successor.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from headrace.broker.offset_records import CommittedOffset
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, Delete, Metastore, Op, Put, TxnLimits, chunks_of, only
from headrace.errors import HeadraceError
from headrace.telemetry.logging import get_logger

PAUSE_S = 1.0

log = get_logger(__name__)

Key: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""


Guard: TypeAlias = Callable[[int], Sequence[Compare] | None]
"""What holds while this broker leads that partition of the log; None where it knows that another one does."""


def no_guard(index: int) -> Sequence[Compare]:
    """A broker that is alone leads everything."""
    return ()


class OffsetProjection:
    def __init__(self, store: Metastore, guard: Guard = no_guard) -> None:
        self._store = store
        self._guard = guard
        self._dirty: dict[int, dict[Key, CommittedOffset | None]] = {}
        """By partition of the log."""
        self._task: asyncio.Task[None] | None = None

    def note(self, index: int, key: Key, committed: CommittedOffset | None) -> None:
        self._dirty.setdefault(index, {})[key] = committed
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def forget(self, index: int) -> None:
        """Another broker has that partition, and all that is in it."""
        self._dirty.pop(index, None)

    async def stop(self) -> None:
        """Write what is left; afterwards nothing is noted any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._write()

    async def _run(self) -> None:
        try:
            while self._dirty:
                await asyncio.sleep(PAUSE_S)
                await self._write()
        finally:
            self._task = None

    async def _write(self) -> None:
        for index in list(self._dirty):
            await self._write_partition(index)

    async def _write_partition(self, index: int) -> None:
        dirty = list(self._dirty.pop(index, {}).items())
        guard = self._guard(index)
        if guard is None:
            return  # It changed hands while they were being written: whoever has it now writes its own.
        limits = self._store.txn_limits
        limits = TxnLimits(ops_max=max(limits.ops_max - len(guard), 1), bytes_max=limits.bytes_max)
        start = 0
        for ops in chunks_of([_operation(*each) for each in dirty], limits):
            chunk, start = dirty[start : start + len(ops)], start + len(ops)
            try:
                result = await self._store.txn(tuple(guard), ops)
            except HeadraceError as error:
                # Nothing depends on the copy; it is complete again when the store is.
                log.warning("offsets not projected", count=len(chunk), reason=str(error))
            else:
                if not guard or result.is_success:
                    continue
                log.info("offsets not projected: the leader's entry has changed", count=len(chunk), partition=index)
            self._dirty[index] = {**dict(chunk), **self._dirty.get(index, {})}


def _operation(key: Key, committed: CommittedOffset | None) -> Op:
    path = keys.consumer_offset(*key)
    if committed is None:
        return Delete(only(path))
    value = pb.ConsumerOffset(offset=committed.offset, metadata=committed.metadata, commit_ms=committed.commit_ms)
    if committed.leader_epoch >= 0:
        value.leader_epoch = committed.leader_epoch
    return Put(path, values.encode(value))
