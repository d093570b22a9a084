"""Records of many small requests, appended together.

A client that sends one record per request would cost a batch of 61 bytes of header, a CRC and an index entry each.
Everything that arrives for one partition in the same turn of the event loop becomes one batch instead, in order of
arrival; each request still gets its own offsets. A full log holds the gathered records back until there is room, and
the connections they came from stop being read meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from headrace.broker.deferred import Deferred
from headrace.broker.produce import Acks, Appended, Produce
from headrace.broker.topics import PartitionLog
from headrace.errors import HeadraceError, NotReady, TooLarge
from headrace.records.record import NewRecord

T = TypeVar("T")

BATCH_RECORDS_MAX: Final = 5_000
BATCH_BYTES_MAX: Final = 1024 * 1024
"""Of keys, values and headers; a request that is larger alone goes alone."""
_RECORD_OVERHEAD: Final = 32
_BATCH_OVERHEAD: Final = 128


class _Share(Generic[T]):
    """One request's part of a batch."""

    __slots__ = ("deferred", "reply", "start")

    def __init__(self, start: int, reply: Callable[[int], T]) -> None:
        self.start = start
        self.reply = reply
        self.deferred: Deferred[T] = Deferred()


class _Gathered:
    """What waits to become one batch. `Any`: each share knows the type of its own reply."""

    __slots__ = ("partition", "records", "shares", "size")

    def __init__(self, partition: PartitionLog) -> None:
        self.partition = partition
        self.records: list[NewRecord] = []
        self.shares: list[_Share[Any]] = []
        self.size = _BATCH_OVERHEAD

    def appended(self, outcome: Deferred[Appended]) -> None:
        try:
            base_offset = outcome.result().base_offset
        except HeadraceError as error:
            self.failed(error)
            return
        for share in self.shares:
            share.deferred.resolve(share.reply(base_offset + share.start))

    def failed(self, error: HeadraceError) -> None:
        for share in self.shares:
            share.deferred.reject(error)


class Gathering:
    """One per door. `append` decides the order; the batch is made at the end of the loop's turn."""

    def __init__(self, produce: Produce) -> None:
        self._produce = produce
        self._loop = asyncio.get_running_loop()
        self._open: dict[PartitionLog, _Gathered] = {}
        self._closed: list[_Gathered] = []
        self._is_due = False
        self.is_waiting_for_room = False
        """Whether the log is full, so that everything gathered is held back."""
        self._is_stopped = False
        self.held_bytes = 0

    def append(
        self, partition: PartitionLog, records: list[NewRecord], *, size: int, reply: Callable[[int], T]
    ) -> Deferred[T]:
        """Append `records` (`size` bytes in all); resolves with `reply(base offset)` once they are kept."""
        if self._is_stopped:
            raise NotReady("stopping")
        size += _RECORD_OVERHEAD * len(records)
        limit = partition.policy.message_bytes_max
        if size + _BATCH_OVERHEAD > limit:
            # Exact only within the overhead: the log has the last word on what is smaller.
            raise TooLarge(f"{size} bytes in one request; {partition.topic_name} takes {limit} at once")
        gathered = self._open.get(partition)
        if gathered is not None and (
            len(gathered.records) >= BATCH_RECORDS_MAX or gathered.size + size > min(limit, BATCH_BYTES_MAX)
        ):
            self._closed.append(gathered)
            gathered = None
        if gathered is None:
            gathered = self._open[partition] = _Gathered(partition)
            if not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._flush)
        share = _Share(len(gathered.records), reply)
        gathered.records += records
        gathered.shares.append(share)
        gathered.size += size
        self.held_bytes += size
        return share.deferred

    def flush(self) -> None:
        """Append what has been gathered now, for somebody whose record must come after."""
        self._flush()

    def stop(self) -> None:
        """Take nothing more; what the log has no room for fails."""
        self._flush()
        self._is_stopped = True
        for gathered in self._take():
            gathered.failed(NotReady("stopping"))

    def _flush(self) -> None:
        self._is_due = False
        if self.is_waiting_for_room:
            return
        waiting = self._take()
        for index, gathered in enumerate(waiting):
            if not self._produce.can_take(gathered.size):
                self._hold(waiting[index:])
                return
            self.held_bytes -= gathered.size - _BATCH_OVERHEAD
            try:
                outcome = self._produce.append_records(gathered.partition, gathered.records, acks=Acks.ALL)
            except HeadraceError as error:
                gathered.failed(error)
            else:
                outcome.then(gathered.appended)

    def _take(self) -> list[_Gathered]:
        waiting = [*self._closed, *self._open.values()]
        self._closed = []
        self._open = {}
        return waiting

    def _hold(self, waiting: list[_Gathered]) -> None:
        self._closed = waiting
        self.is_waiting_for_room = True
        self._produce.when_room(self._go_on)

    def _go_on(self) -> None:
        self.is_waiting_for_room = False
        self._flush()
