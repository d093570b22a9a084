"""Group commit: everything that arrives while one flush runs rides on the next. There is no timer.

A small group waits a few turns of the loop while every turn brings more: those whom the last flush has answered send their
next requests at once, and a flush costs the same for one of them as for thirty.

Order is decided by a call (`append`), durability by another thread (the flusher). The event loop closes a group and hands
it over; the flusher writes and syncs; the loop looks for the fence and tells those who wait. One flush is under way at a
time, so each group may name the one before it as durable.

After a failed write or flush nobody retries on that file: every waiter fails and the writer stays broken.
"""

import asyncio
import contextlib
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from crc32c import crc32c

from headrace.disk import Disk
from headrace.errors import HeadraceError, NotLeader, NotReady, Overloaded
from headrace.log.wal.file import RingFile
from headrace.log.wal.flusher import FlusherKind
from headrace.log.wal.format import (
    BLOCK_SIZE,
    ENTRY_SIZE,
    ENTRY_TAIL,
    GROUP_HEADER_SIZE,
    GroupFlags,
    GroupHeader,
    encode_group_header,
    padded,
    ring_seed,
)
from headrace.log.wal.images import IMAGE_SIZE, Images
from headrace.records.batch import Buffer

FENCE_NAME: Final = "FENCE"
_GROUP_SIZE_MAX: Final = IMAGE_SIZE
"""A group is closed beyond this, so that one flush never makes everybody wait for long."""
_AMPLE_SIZE: Final = 512 * 1024
"""A group of this size is worth a flush of its own and waits for nobody."""
_TURNS_MAX: Final = 8
_FAR_FROM_FULL: Final = 64 * 1024 * 1024
"""More than one group and the largest request that comes without asking can take together."""
_ROOM_RESERVE: Final = 8 * BLOCK_SIZE
"""For the group's own header and table and for the marks of an idle or closing log."""
_IDLE_AFTER_S: Final = 0.01
_ZERO_AHEAD: Final = 128 * 1024 * 1024
_ZEROS: Final = bytes(BLOCK_SIZE)
_MARKS_RESERVE: Final = 2 * BLOCK_SIZE
"""Kept free of data: a log that is full falls idle and stops too, and says so with a mark each."""


class DurableSink(Protocol):
    """What a partition is to the WAL: somebody to tell how far it is durable."""

    def durable(self, end_offset: int) -> None: ...


class Waiter(Protocol):
    """Somebody who answers a client once a group is durable, or has failed."""

    def settle(self, error: HeadraceError | None) -> None: ...


class Group:
    """Entries that will share one flush."""

    __slots__ = ("ends", "flags", "image", "lsn", "payload_size", "room", "table", "waiters")

    def __init__(self, lsn: int, room: int, image: memoryview) -> None:
        self.lsn = lsn
        self.room = room
        self.image = image
        """What the disk will have. The batches are there from the start, header and table from the hand-over on."""
        self.flags = GroupFlags.DATA
        self.payload_size = 0
        self.table: list[bytes] = []
        self.ends: dict[DurableSink, int] = {}
        self.waiters: list[Waiter] = []

    @property
    def size(self) -> int:
        return padded(GROUP_HEADER_SIZE + self.payload_size + len(self.table) * ENTRY_SIZE)


class WalWriter:
    """The head of the ring. All methods belong to the event loop."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        # for `_append.c`:
        "_is_scheduled",
        "_open",
        "_refusal",
        "is_far_from_full",
        "unflushed_bytes",
    )

    def __init__(
        self,
        file: RingFile,
        *,
        disk: Disk,
        flusher: FlusherKind,
        fence_path: Path,
        next_lsn: int,
        previous_lsn: int,
        group_starts: "array[int]",
        on_fault: Callable[[HeadraceError], None],
        lease: Callable[[], HeadraceError | None] | None = None,
    ) -> None:
        """`lease` says after each flush why nothing may be acknowledged any more, if that is so."""
        self._file = file
        self.data_size = file.data_size
        self.unflushed_bytes = 0
        """Appended, not yet durable."""
        self.is_far_from_full = False
        """As of the last group: a cheap first answer to whether there is room."""
        self._seed = ring_seed(file.superblock.ring_id)
        self._disk = disk
        self._fence_path = fence_path
        self._lease = lease
        self._previous_lsn = previous_lsn
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._flusher = flusher(file, self._flushed)
        self.trim_lsn = file.superblock.trim_lsn
        self._images = Images()
        self._closed: deque[Group] = deque()
        self._open = self._new_group(next_lsn)
        self._in_flight: Group | None = None
        self._is_scheduled = False
        self._refusal: HeadraceError | None = None
        """Why nothing more is taken: a failure, or the end."""
        self._attested = True
        self._idle_timer: asyncio.TimerHandle | None = None
        self._zeroer: asyncio.Future[None] | None = None
        self.durable_lsn = next_lsn
        self.failure: HeadraceError | None = None
        self._group_starts = group_starts
        """Where each durable group above the trim point begins, so that trimming can stop at one."""
        self.flushed_bytes_total = 0
        self.flushed: Callable[[], None] = lambda: None
        """Set by the store; called after every flush, once those who waited for it have been told."""
        self._zero_ahead()

    # -- appending -----------------------------------------------------------------------------------------------

    def append(
        self, sink: DurableSink, head: bytes, batch: Buffer, *, base_offset: int, end_offset: int, leader_epoch: int
    ) -> int:
        """Queue `batch` and give its LSN. Not a coroutine: order in the log is the order of calls."""
        if self._refusal is not None:
            raise self._refusal
        size = len(batch)
        group = self._open
        if group.payload_size + size > group.room:
            group = self._make_room(size)
        start = GROUP_HEADER_SIZE + group.payload_size
        group.image[start : start + size] = batch
        group.payload_size += size
        self.unflushed_bytes += size
        group.room -= ENTRY_SIZE
        group.table.append(head + ENTRY_TAIL.pack(size, base_offset, leader_epoch))
        group.ends[sink] = end_offset
        if not self._is_scheduled:
            self._schedule()
        return group.lsn + start

    def wait(self, waiter: Waiter) -> bool:
        """Settle `waiter` when everything appended so far is durable.

        False when there is nothing to settle later: all is durable, or `waiter` was the last to ask already.
        """
        if self.failure is not None:
            raise self.failure
        if self._open.table:
            group = self._open
        elif self._closed:
            group = self._closed[-1]
        elif self._in_flight is not None:
            group = self._in_flight
        else:
            return False
        if group.waiters and group.waiters[-1] is waiter:
            return False
        group.waiters.append(waiter)
        return True

    @property
    def room_bytes(self) -> int:
        """What can still be appended before the head meets the trim point, its own headers and marks set aside."""
        group = self._open
        head = group.lsn + group.payload_size + len(group.table) * ENTRY_SIZE
        return self.trim_lsn + self.data_size - head - _ROOM_RESERVE

    @property
    def next_lsn(self) -> int:
        """Everything appended so far lies below this, and everything appended from now on does not."""
        group = self._open
        return group.lsn + GROUP_HEADER_SIZE + group.payload_size if group.table else group.lsn

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit, also when the next group has to skip the rest of the ring for them."""
        return self.room_bytes >= 2 * size

    def _new_group(self, lsn: int) -> Group:
        data_size = self.data_size
        to_end = data_size - lsn % data_size
        to_trim = self._trim_end - _MARKS_RESERVE - lsn
        self.is_far_from_full = to_trim > data_size // 4 + _FAR_FROM_FULL
        room = min(_GROUP_SIZE_MAX, to_end, to_trim) - GROUP_HEADER_SIZE - ENTRY_SIZE
        return Group(lsn, room, self._images.take())

    @property
    def _trim_end(self) -> int:
        """Where the head would meet what may not be overwritten."""
        return self.trim_lsn + self.data_size

    def _make_room(self, size: int) -> Group:
        """Close the open group, or move it to the start of the ring, or give it more room than usual.

        The last guard of what is not yet uploaded: whoever appends without asking for room is refused here.
        """
        if self._open.table:
            self._closed.append(self._open)
            self._open = self._new_group(self._open.lsn + self._open.size)
        group = self._open
        if size > group.room:
            to_end = self.data_size - group.lsn % self.data_size
            needed = size + GROUP_HEADER_SIZE + ENTRY_SIZE
            if needed > self.data_size // 2:
                raise Overloaded(f"a batch of {size} bytes does not fit a WAL of {self.data_size}")
            start = group.lsn + to_end if needed > to_end else group.lsn
            if start + padded(needed) > self._trim_end - _MARKS_RESERVE:
                raise Overloaded("the WAL is full: nothing more until some of it is uploaded")
            if needed > to_end:
                self._images.give_back(group.image)
                waiters = group.waiters
                group = self._open = self._new_group(group.lsn + to_end)
                group.waiters = waiters
            if needed > len(group.image):
                self._images.give_back(group.image)
                group.image = self._images.take(padded(needed))
            group.room = max(group.room, size)
        return group

    # -- flushing ------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        self._is_scheduled = True
        if self._in_flight is None:
            self._loop.call_soon(self._gather, 0, _TURNS_MAX)

    def _gather(self, size_before: int, turns_left: int) -> None:
        """Begin once a turn of the loop has brought nothing more."""
        size = self._open.payload_size
        if size == size_before or not turns_left or self._is_ample:
            self._begin()
        else:
            self._loop.call_soon(self._gather, size, turns_left - 1)

    @property
    def _is_ample(self) -> bool:
        return bool(self._closed) or self._open.payload_size >= _AMPLE_SIZE

    def _begin(self) -> None:
        if self._in_flight is not None or self.failure is not None:
            return
        if self._closed:
            group = self._closed.popleft()
        elif self._open.table:
            group = self._open
            self._open = self._new_group(group.lsn + group.size)
        else:
            self._is_scheduled = False
            return
        self._hand_over(group)

    def _hand_over(self, group: Group) -> None:
        self._in_flight = group
        self._attested = group.flags != GroupFlags.DATA
        table = b"".join(group.table)
        header = GroupHeader(group.flags, group.lsn, self._previous_lsn, group.payload_size, len(table), crc32c(table))
        table_at = GROUP_HEADER_SIZE + group.payload_size
        padding = header.size - table_at - len(table)
        image = group.image[: header.size]
        image[:GROUP_HEADER_SIZE] = encode_group_header(header, self._seed)
        image[table_at:] = table + _ZEROS[:padding]
        self._previous_lsn = group.lsn
        self._flusher.write(group.lsn, image)

    def _flushed(self, error: HeadraceError | None) -> None:
        group, self._in_flight = self._in_flight, None
        assert group is not None, "the flusher was given nothing"
        # Written, flushed, and only then looked: if the fence was not there yet, whoever sets it reads us.
        if error is None and self._disk.exists(self._fence_path):
            error = NotLeader("this WAL has been fenced: another broker has taken over")
        if error is None and self._lease is not None:
            error = self._lease()
        if error is not None:
            self._fail(group, error)
            return
        size = group.size
        self.durable_lsn = group.lsn + size
        self.unflushed_bytes -= group.payload_size
        self._group_starts.append(group.lsn)
        self.flushed_bytes_total += size
        if self._is_ample:
            # Before anybody is told about this one: the disk should not wait for us.
            self._begin()
        self._images.give_back(group.image)
        for sink, end_offset in group.ends.items():
            sink.durable(end_offset)
        for waiter in group.waiters:
            waiter.settle(None)
        if self._open.table:
            self._schedule()
        elif self._in_flight is None:
            self._is_scheduled = False
            self._fell_idle()
        self.flushed()
        self._zero_ahead()

    def _fail(self, group: Group, error: HeadraceError) -> None:
        self.failure = self._refusal = error
        failed = [group, *self._closed, self._open]
        self._closed.clear()
        for each in failed:
            for waiter in each.waiters:
                waiter.settle(error)
            each.waiters.clear()
        self._on_fault(error)

    def _fell_idle(self) -> None:
        """An empty group follows the last one, so recovery can tell rot of that one from a torn write."""
        if not self._attested and self._idle_timer is None and self._refusal is None:
            self._idle_timer = self._loop.call_later(_IDLE_AFTER_S, self._attest)

    def _attest(self) -> None:
        self._idle_timer = None
        is_idle = self._in_flight is None and not self._open.table and not self._closed
        if is_idle and not self._attested and self.failure is None:
            self._write_mark(GroupFlags.IDLE)

    def _write_mark(self, flags: GroupFlags) -> None:
        group = self._open
        if group.lsn + group.size > self._trim_end:
            return  # A mark is worth less than the oldest group, which it would overwrite.
        self._open = self._new_group(group.lsn + group.size)
        group.flags = flags
        self._hand_over(group)

    def _zero_ahead(self) -> None:
        """Keep the file zeroed well ahead of the head, beside the flushes: a flush that has to zero is a slow one."""
        file = self._file
        if self._zeroer is not None or file.zeroed_end >= file.superblock.capacity:
            return
        target = min(file.place(self._open.lsn) + _ZERO_AHEAD, file.superblock.capacity)
        if file.zeroed_end < target:
            self._zeroer = self._loop.run_in_executor(None, file.zero_until, target)
            self._zeroer.add_done_callback(self._zeroed)

    def _zeroed(self, done: "asyncio.Future[None]") -> None:
        self._zeroer = None
        if not done.cancelled() and (error := done.exception()) is not None and self.failure is None:
            # Not fatal in itself: the flusher zeroes what it needs and fails with the real error if it cannot.
            del error

    # -- trimming and the end ------------------------------------------------------------------------------------

    def note_trimmed(self, trim_lsn: int) -> None:
        """The superblock on disk says so already; the space below may be used again."""
        assert self.trim_lsn <= trim_lsn <= self.durable_lsn
        self.trim_lsn = trim_lsn
        del self._group_starts[: bisect_left(self._group_starts, trim_lsn)]

    def group_start(self, lsn: int) -> int:
        """The start of the durable group that holds `lsn`, or of the last one: reading back begins at groups."""
        number = bisect_right(self._group_starts, lsn) - 1
        return self._group_starts[number] if number >= 0 else self.trim_lsn

    async def drain(self) -> None:
        """Wait until everything appended so far is durable; raises what the flush raised."""
        done: asyncio.Future[None] = self._loop.create_future()
        if self.wait(_FutureWaiter(done)):
            await done

    async def stop(self) -> None:
        """Flush what is queued, write the end mark, end the thread."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._refusal = self._refusal or NotReady("the log is closing")
        with contextlib.suppress(HeadraceError):
            await self.drain()
        if self.failure is None:
            self._write_mark(GroupFlags.END)
            with contextlib.suppress(HeadraceError):
                await self.drain()
        if self._zeroer is not None:
            await asyncio.wait([self._zeroer])
        self._flusher.close()


class _FutureWaiter:
    def __init__(self, future: "asyncio.Future[None]") -> None:
        self._future = future

    def settle(self, error: HeadraceError | None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)
