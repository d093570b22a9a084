"""Records of many small requests, appended together.

A client that sends one record per request would cost a batch of 61 bytes of header, a CRC and an index entry each.
Everything that arrives for one partition in the same turn of the event loop becomes one batch instead, in order of
arrival; each request still gets its own offsets. While a batch of a partition is being made durable, what arrives for it
goes on gathering: it could not be kept any sooner. A full log holds everything back until there is room, and the
connections it came from stop being read meanwhile.

A partition that another broker leads is written there (`broker/forwarding.py`), one batch at a time: a batch whose leader is still being
looked for is not overtaken.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from headrace.broker.deferred import Deferred
from headrace.broker.forwarding import Forwarding
from headrace.broker.ownership import check_client_may
from headrace.broker.produce import Acks, Appended, Produce
from headrace.broker.topics import PartitionLog
from headrace.doors.turns import Turns
from headrace.errors import HeadraceError, NotReady, TooLarge
from headrace.records.builder import BatchBuilder
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
    """What becomes one batch. `Any`: each share knows the type of its own reply."""

    __slots__ = ("_base_offset", "_now_ms", "_shares", "_turns", "_untold", "builder", "size")

    def __init__(self, turns: Turns, now_ms: int) -> None:
        self._turns = turns
        self._now_ms = now_ms
        self._shares: list[_Share[Any]] = []
        self._base_offset = -1
        self._untold: Iterator[_Share[Any]] = iter(())
        self.builder = BatchBuilder()
        self.size = _BATCH_OVERHEAD

    def add(self, records: list[NewRecord], size: int, reply: Callable[[int], T]) -> Deferred[T]:
        """The bytes are made here, in the turn of the request that brings them."""
        share = _Share(self.builder.count, reply)
        for record in records:
            self.builder.add(record, now_ms=self._now_ms)
        self._shares.append(share)
        self.size += size
        return share.deferred

    def kept(self, base_offset: int) -> None:
        """Telling everybody takes turns of its own: the flush that kept these may have kept other doors' records too."""
        self._base_offset = base_offset
        self._untold = iter(self._shares)
        self._turns.next().then(self._tell)

    def _tell(self, _: Deferred[str]) -> None:
        for share in self._untold:
            share.deferred.resolve(share.reply(self._base_offset + share.start))
            if self._turns.is_over():
                self._turns.next().then(self._tell)
                return

    def failed(self, error: HeadraceError) -> None:
        for share in self._shares:
            share.deferred.reject(error)


class _Lane:
    """The batches of one partition: those that gather, in order, and how many are under way."""

    __slots__ = ("gathering", "partition", "under_way")

    def __init__(self, partition: PartitionLog) -> None:
        self.partition = partition
        self.gathering: list[_Gathered] = []
        self.under_way = 0


class Gathering:
    """One per door. `append` decides the order; the batch is made at the end of the loop's turn, or later."""

    def __init__(self, produce: Produce, turns: Turns, forwarding: Forwarding | None = None) -> None:
        """Without `forwarding` only what this broker leads is written."""
        self._produce = produce
        self._turns = turns
        self._forwarding = forwarding
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[bytes, int], _Lane] = {}
        """Of the partitions that have anything gathered or under way."""
        self._ready: list[_Lane] = []
        """Lanes to be looked at by the next flush."""
        self._is_due = False
        self.is_waiting_for_room = False
        """Whether the log is full, so that everything gathered is held back."""
        self._is_stopped = False

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
        return self._gathered_for(partition, size, min(limit, BATCH_BYTES_MAX)).add(records, size, reply)

    def flush(self, partition: PartitionLog) -> None:
        """Append what has been gathered for `partition` now, for somebody whose record must come after."""
        lane = self._lanes.get((partition.topic_id, partition.index))
        if lane is not None and not self.is_waiting_for_room:
            self._append_gathered(lane)

    def flush_all(self) -> None:
        for lane in list(self._lanes.values()):
            self.flush(lane.partition)

    def stop(self) -> None:
        """Take nothing more; what the log has no room for fails."""
        self.flush_all()
        self._is_stopped = True
        for lane in self._lanes.values():
            for gathered in lane.gathering:
                gathered.failed(NotReady("stopping"))
            lane.gathering.clear()

    def _gathered_for(self, partition: PartitionLog, size: int, size_max: int) -> _Gathered:
        """The batch that `size` more bytes go to: the last one of the partition, or a new one."""
        lane = self._lanes.get((partition.topic_id, partition.index))
        if lane is None:
            lane = self._lanes[(partition.topic_id, partition.index)] = _Lane(partition)
        else:
            # It may have changed hands: what gathers from now on goes where this one is led, behind what is under way.
            lane.partition = partition
        if lane.gathering:
            last = lane.gathering[-1]
            # What a Wasm module fails on, it fails as a whole: nobody's records share that with another's.
            is_shared = not self._produce.is_transformed(partition)
            if is_shared and last.builder.count < BATCH_RECORDS_MAX and last.size + size <= size_max:
                return last
        else:
            self._ready.append(lane)
            if not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._flush)
        lane.gathering.append(_Gathered(self._turns, self._produce.now_ms()))
        return lane.gathering[-1]

    def _flush(self) -> None:
        self._is_due = False
        if self.is_waiting_for_room:
            return
        ready, self._ready = self._ready, []
        for lane in ready:
            if self.is_waiting_for_room:
                self._ready.append(lane)
            elif not lane.under_way:
                self._append_gathered(lane)

    def _append_gathered(self, lane: _Lane) -> None:
        gathering, lane.gathering = lane.gathering, []
        for index, gathered in enumerate(gathering):
            if not self._produce.can_take(gathered.size):
                lane.gathering = gathering[index:]
                self._wait_for_room(lane)
                return
            if lane.partition.removed and lane.under_way:
                lane.gathering = gathering[index:]
                return
            self._append(lane, gathered)

    def _append(self, lane: _Lane, gathered: _Gathered) -> None:
        lane.under_way += 1
        try:
            if lane.partition.removed and self._forwarding is not None and self._forwarding.peers is not None:
                check_client_may("write", lane.partition.topic_name)
                passing_on = self._forwarding.append(lane.partition, gathered.builder.build())
                passing_on.then(lambda passed_on: self._passed_on(lane, gathered, passed_on))
                return
            outcome = self._produce.append_built(lane.partition, gathered.builder.build(), acks=Acks.ALL)
        except HeadraceError as error:
            gathered.failed(error)
            self._landed(lane)
        else:
            outcome.then(lambda appended: self._appended(lane, gathered, appended))

    def _appended(self, lane: _Lane, gathered: _Gathered, outcome: Deferred[Appended]) -> None:
        try:
            gathered.kept(outcome.result().base_offset)
        except HeadraceError as error:
            gathered.failed(error)
        self._landed(lane)

    def _passed_on(self, lane: _Lane, gathered: _Gathered, outcome: Deferred[int]) -> None:
        try:
            gathered.kept(outcome.result())
        except HeadraceError as error:
            gathered.failed(error)
        self._landed(lane)

    def _landed(self, lane: _Lane) -> None:
        """One batch less under way: what has gathered behind it may go."""
        lane.under_way -= 1
        if lane.under_way:
            return
        if lane.gathering:
            self._ready.append(lane)
            self._flush()
        elif self._lanes.get(place := (lane.partition.topic_id, lane.partition.index)) is lane:
            del self._lanes[place]

    def _wait_for_room(self, lane: _Lane) -> None:
        self._ready.append(lane)
        self.is_waiting_for_room = True
        self._produce.when_room(self._go_on)

    def _go_on(self) -> None:
        self.is_waiting_for_room = False
        self._flush()
