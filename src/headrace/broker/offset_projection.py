"""Committed offsets as others may read them: a copy in the metastore, always a little behind.

The records of `__consumer_offsets` decide. Commits come by the ten thousand, the metastore makes each transaction
durable; so only the newest value of each key is written, many keys at a time, after a pause in which more may come.
"""

import asyncio
from typing import TypeAlias

from headrace.broker.offset_records import CommittedOffset
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Delete, Metastore, Op, Put, chunks_of, only
from headrace.errors import HeadraceError
from headrace.telemetry.logging import get_logger

PAUSE_S = 1.0

log = get_logger(__name__)

Key: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""


class OffsetProjection:
    def __init__(self, store: Metastore) -> None:
        self._store = store
        self._dirty: dict[Key, CommittedOffset | None] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, key: Key, committed: CommittedOffset | None) -> None:
        self._dirty[key] = committed
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

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
        dirty, self._dirty = list(self._dirty.items()), {}
        start = 0
        for ops in chunks_of([_operation(*each) for each in dirty], self._store.txn_limits):
            chunk, start = dirty[start : start + len(ops)], start + len(ops)
            try:
                await self._store.txn((), ops)
            except HeadraceError as error:
                # Nothing depends on the copy; it is complete again when the store is.
                log.warning("offsets not projected", count=len(chunk), reason=str(error))
                self._dirty = {**dict(chunk), **self._dirty}


def _operation(key: Key, committed: CommittedOffset | None) -> Op:
    path = keys.consumer_offset(*key)
    if committed is None:
        return Delete(only(path))
    value = pb.ConsumerOffset(offset=committed.offset, metadata=committed.metadata, commit_ms=committed.commit_ms)
    if committed.leader_epoch >= 0:
        value.leader_epoch = committed.leader_epoch
    return Put(path, values.encode(value))
